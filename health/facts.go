package health

import (
	"time"

	"github.com/mongostream/streamer/fault"
)

// A Since says since when something does not hold that should, and why. The zero Since says that it
// holds. The time is when the next sign that all was well should have come, not that of the last
// one: a fact must not seem older than its cause.
type Since struct {
	At  time.Time
	Err error
}

// lasted reports whether it has lasted for the duration.
func (s Since) lasted(now time.Time, d time.Duration) bool {
	return !s.At.IsZero() && now.Sub(s.At) >= d
}

// Facts are a node's knowledge at one moment, without a judgement. [Judge] uses nothing else.
type Facts struct {
	Now  time.Time
	Node string

	// Starting says that the node has not been ready yet, Stopping that its planned stop has begun.
	Starting, Stopping Since
	LogFacts
	EtcdFacts
	ClusterFacts

	// Unsaved says that checkpoints cannot be saved. Store is the subject of their store: etcd or
	// mongodb.
	Unsaved Since
	Store   string
	// Retention says that the log cannot be retained, or not be read.
	Retention Since
	// Certificates and Identities say that their files are unusable, Log that nobody reads the
	// node's log.
	Certificates, Identities, Log Since

	Partitions  []Partition
	Subscribers []Subscriber
	// Stalled are the components of the node that make no progress.
	Stalled []Stall

	// Others are the problems that other nodes report.
	Others []Problem
}

// LogFacts are about MongoDB and the node's position in its log.
type LogFacts struct {
	// MongoDB says that no server can be asked, or that streams break. Closed says that the stream
	// is not open although MongoDB answers, Silent that an open one brings nothing although the
	// oplog advances, Majority that the majority commit point does not follow.
	MongoDB, Closed, Silent, Majority Since
	// Late says that the node reads the oplog later than is tolerated.
	Late Since
}

// EtcdFacts are about etcd.
type EtcdFacts struct {
	// Etcd says that etcd does not answer; Alarm is its raised alarm, Unread the error of
	// unreadable data.
	Etcd, Alarm, Unread Since
	// EtcdWas is the last Etcd that is over, EtcdBack when etcd answered again; zero before the
	// first.
	EtcdWas  Since
	EtcdBack time.Time
}

// ClusterFacts are about the other nodes, and the node's place among them.
type ClusterFacts struct {
	// Detached says that the node has left the cluster because its lease may have run out, Apart
	// that it cannot join again although etcd answers.
	Detached, Apart Since
	// Unled says that the cluster has no leader. Unserved says that partitions that the plan
	// assigns to the node are not served, Unowned that partitions have no owner.
	Unled, Unserved, Unowned Since
	// Missing says that nodes are gone or send no heartbeats, which are MissingNodes: a heartbeat
	// is due since then.
	Missing      Since
	MissingNodes []string
	// Differ says that nodes read or serve something else than this one, Refused that nodes are
	// given no partitions because they cannot take part.
	Differ, Refused Since
	// Unanswered says that components of other nodes do not answer those who look after them, as
	// the node that does knows.
	Unanswered Since
	// Unswept says that nobody looks after the components: the next look is due since then.
	Unswept Since
}

// A Stall is a component without progress. Since is when the stall was first seen, because the age
// of its progress does not grow while a dependency is unreachable.
type Stall struct {
	Slug  string
	Since time.Time
}

// A Subscriber describes a subscriber with a session at the node. A slow client is not a problem of
// the node, so that it is late leads to no conclusion.
type Subscriber struct {
	Name   string
	Shared bool
	// Failed says that a shared subscriber has stopped, whole or in part.
	Failed Since
	// Waits says that a sink waits for a destination that takes nothing, and tries it again by
	// itself.
	Waits Since
	// Unacknowledged says that the target of a sink acknowledges no waiting message, or that a
	// client acknowledges none of its changes.
	Unacknowledged Since
	// Lost says that it has yet to acknowledge a loss.
	Lost Since
	// Late says that its lag is more than is tolerated, Paused that an operator has paused the
	// sink.
	Late   Since
	Paused bool
	// Near says that its position is about to leave the oplog, HeadRoom in which log time, and
	// Urgent that this is less than the critical threshold.
	Near     Since
	HeadRoom time.Duration
	Urgent   bool
}

// codeOf is the code of an error, or another one where it has none.
func codeOf(err error, other fault.Code) fault.Code {
	if code := fault.Of(err); code != "" {
		return code
	}
	return other
}
