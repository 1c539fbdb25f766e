package notice

import (
	"time"

	"github.com/mongostream/streamer/gateway/client/partition"
	"github.com/mongostream/streamer/gateway/streampb"
)

// A Notice tells of something that is not a change. Which notice it is its type tells.
type Notice interface{ notice() }

// A Resync says that changes of a partition between From and To may have been missed. The program reads the documents of the namespaces
// again, or knows that it need not. It comes in its place between the changes, once for each partition concerned, and may come again.
type Resync struct{ Loss }

// A Rewound says that an operator has moved the partition back to To: what follows has been delivered before.
type Rewound struct{ Loss }

// A Loss is what Resync and Rewound have in common.
type Loss struct {
	Partition  uint32
	From, To   partition.Position
	Reason     string // history_lost, poison, position_unknown, …
	Namespaces []string
	Found      time.Time
	Advice     string // what to do
}

// Connected says that a session has begun, of which there may be one with each node, and that what it began with is safe: from now on, what happens is delivered however often
// the connection breaks. If it is not Recovered, what may have been missed is told in a Resync.
type Connected struct {
	Address, Cluster, Node string
	PartitionCount         uint32
	Recovered              bool
}

// Disconnected says that a session has ended, or that none could be begun, and why. Run goes on.
type Disconnected struct {
	Address string
	Err     error
	// Failures is how many sessions have come to nothing in a row.
	Failures int
}

// Subscribed says that a subscription holds.
type Subscribed struct{ Subscription string }

// Rejected says why there is no subscription of the id. The client forgets it.
type Rejected struct {
	Subscription          string
	Code, Message, Remedy string
}

// FilterFailed says that a subscription's filter could be neither true nor false for a change, which was not delivered to it.
type FilterFailed struct {
	Info
	Subscription string
	Code         string
}

// Info is what notices about the service have in common.
type Info struct {
	Text string
	At   time.Time
	// Partitions are those concerned; none: all.
	Partitions []uint32
}

// Notices about the service. None of them asks for anything: they explain what is seen.
type (
	// ShuttingDown says that the node is about to stop; the client connects to another one, and leaves this one when that one serves.
	ShuttingDown struct{ Info }
	// Detached says that the node is cut off from its cluster; the client goes on elsewhere.
	Detached struct{ Info }
	// Moving says that partitions are about to move to another node.
	Moving struct{ Info }
	// Moved says that they have.
	Moved struct{ Info }
	// Stale says that partitions lag behind or have lost something.
	Stale struct{ Info }
	// Degraded says that the service is not well.
	Degraded struct{ Info }
	// Recovered says that it is again.
	Recovered struct{ Info }
	// Other is a notice of a kind that this version does not know.
	Other struct {
		Info
		Kind, Subscription, Code string
	}
)

func (Resync) notice()       {}
func (Rewound) notice()      {}
func (Connected) notice()    {}
func (Disconnected) notice() {}
func (Subscribed) notice()   {}
func (Rejected) notice()     {}
func (FilterFailed) notice() {}
func (ShuttingDown) notice() {}
func (Detached) notice()     {}
func (Moving) notice()       {}
func (Moved) notice()        {}
func (Stale) notice()        {}
func (Degraded) notice()     {}
func (Recovered) notice()    {}
func (Other) notice()        {}

// Of makes a Notice of what a node says about the service.
func Of(m *streampb.Notice) Notice {
	info := Info{Text: m.GetText(), At: m.GetAt().AsTime(), Partitions: m.GetPartitions()}
	switch m.GetKind() {
	case "shutting_down":
		return ShuttingDown{info}
	case "detached":
		return Detached{info}
	case "moving":
		return Moving{info}
	case "moved":
		return Moved{info}
	case "stale":
		return Stale{info}
	case "degraded":
		return Degraded{info}
	case "recovered":
		return Recovered{info}
	case "filter_failed":
		return FilterFailed{info, m.GetSubscription(), m.GetCode()}
	default:
		return Other{info, m.GetKind(), m.GetSubscription(), m.GetCode()}
	}
}

// OfLoss makes a Notice of what became of a batch's stretch. A kind that is not known may be a loss, and is told as one.
func OfLoss(b *streampb.Batch) Notice {
	m := b.GetLoss()
	loss := Loss{
		Partition: b.GetPartition(), From: partition.Of(b.GetFrom()), To: partition.Of(b.GetTo()),
		Reason: m.GetReason(), Namespaces: m.GetNamespaces(), Found: m.GetFound().AsTime(), Advice: m.GetAdvice(),
	}
	if m.GetKind() == streampb.Loss_KIND_REWOUND {
		return Rewound{loss}
	}
	return Resync{loss}
}
