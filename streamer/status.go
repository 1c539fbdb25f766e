package streamer

import (
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/health"
	"github.com/mongostream/streamer/oplog"
	"github.com/mongostream/streamer/snapshot"
)

// A PartitionStatus is the status of a partition that the node owns.
type PartitionStatus struct {
	Partition change.Partition
	Epoch     change.Epoch
	State     health.Status
	// LastKnown is what was known while MongoDB could be read, nil while it can: Lag and HeadRoom
	// are unknown then.
	LastKnown *health.LastKnown
	// Failure says why a shared subscriber is not served, nil if it is.
	Failure error
	// Position is how far the partition has been read and acknowledged by all shared subscribers.
	Position change.Position
	// Lag is the log time from the position to the last operation; nil while unknown.
	Lag *time.Duration
	// HeadRoom is the log time until the position leaves the oplog; nil while unknown.
	HeadRoom      *time.Duration
	HeadRoomLevel oplog.Level
	// Events counts the events in this term; Rate is the recent number per second.
	Events uint64
	Rate   float64
	// LastEvent is when the last event was read, zero if there was none.
	LastEvent time.Time
}

// A SubscriberStatus is the status of one subscriber with a session at this node.
type SubscriberStatus struct {
	Name   string
	Shared bool
	// Process is the process ID of an exclusive subscriber, By its identity.
	Process, By string
	Generation  uint64
	// Live says that the session is on the live path; otherwise it is catching up or has no credit.
	Live bool
	// Position is its earliest acknowledged position.
	Position change.Position
	// Partitions is the number of partitions that the session serves.
	Partitions int
	// Unacknowledged counts queued or sent events, Bytes their size, Losses the unacknowledged
	// losses.
	Unacknowledged, Bytes, Losses int
	// Lost counts the losses of the subscriber alone that its session was sent.
	Lost uint64
	// Owes is how long the subscriber has acknowledged none of its changes; 0 if it owes nothing.
	// Overdue says that this is more than half of NodeConfig.AckTimeout, after which its session
	// ends.
	Owes    time.Duration
	Overdue bool
	// CreditEvents and CreditBytes are the remaining credit.
	CreditEvents, CreditBytes int
	// Acknowledged counts events since the session began.
	Acknowledged uint64
	// Lag is the log time from the position to the last operation, or, where nothing waits for the
	// subscriber, from what the node has read; HeadRoom the log time until the position leaves the
	// oplog; nil while unknown.
	Lag, HeadRoom *time.Duration
	HeadRoomLevel oplog.Level
	// Failure says why a shared subscriber has stopped, or gets nothing of some partitions, nil if
	// it does.
	Failure error
	// Snapshots is the progress of the session's snapshots.
	Snapshots []snapshot.Progress
}
