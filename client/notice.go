package client

import (
	"time"

	"github.com/mongostream/streamer/gateway/streampb"
)

// A Notice is what a client tells a program besides changes; its type says which it is. Losses, [Resync] and [Rewound], come in their place
// between the changes, and wait until they have been dealt with. The others are about the service and about subscriptions; nothing waits for
// them.
type Notice interface{ notice() }

// A Resync says that changes between From and To may have been missed. The program reads the documents of the namespaces again, or knows that
// it need not. It may come again until it has been acknowledged.
type Resync struct {
	From, To   time.Time // by MongoDB's clock, in whole seconds that contain the stretch; From is zero where nobody knows
	Reason     string    // history_lost, poison, renamed, position_unknown, …
	Namespaces []string  // those concerned; none: everything that is watched
	Found      time.Time
	Advice     string // what to do
}

// A Rewound says that an operator has moved the subscriber back to a time: what follows may have been delivered before.
type Rewound struct {
	To     time.Time // by MongoDB's clock; zero where it moved while the program was not connected
	Advice string
}

// Connected says that a session has begun, of which there may be one with each node, and that from now on everything that happens is
// delivered, however often the connection breaks.
type Connected struct {
	Address, Cluster, Node string
	PartitionCount         uint32
	Begin                  Begin
}

// Begin says where a session has begun.
type Begin int

// The places where sessions begin.
const (
	BeginPosition   Begin = iota + 1 // where the program says that it is
	BeginCheckpoint                  // at the checkpoint under the subscriber's name
	BeginStart                       // as Config.Start says, because nothing was known
)

// Disconnected says that a session has ended, or that none could be begun, and why. Run goes on.
type Disconnected struct {
	Address string
	Err     error
	// Failures is how many sessions have come to nothing in a row.
	Failures int
}

// Subscribed says that a subscription holds. Clients with several sessions are told by each.
type Subscribed struct{ Subscription string }

// Rejected says why there is no subscription of the id. The client forgets it.
type Rejected struct {
	Subscription          string
	Code, Message, Remedy string
}

// Service is about the service. It asks for nothing: it explains what is seen.
type Service struct {
	Kind ServiceKind
	Text string
	At   time.Time
	// Partitions are those concerned; none: all.
	Partitions []uint32
	// Subscription is the one concerned, and Code says what went wrong; empty where there is none.
	Subscription, Code string
}

// ServiceKind says what a notice about the service tells. Nodes of a later version may have further kinds.
type ServiceKind string

// The kinds.
const (
	ShuttingDown ServiceKind = "shutting_down" // the node is about to stop; the client connects to another, and leaves this one when that one serves
	Detached     ServiceKind = "detached"      // the node is cut off from its cluster
	Moving       ServiceKind = "moving"        // partitions are about to move to another node
	Moved        ServiceKind = "moved"         // they have
	Stale        ServiceKind = "stale"         // partitions lag, or have lost something
	Degraded     ServiceKind = "degraded"      // the service is not well
	Recovered    ServiceKind = "recovered"     // it is again
	FilterFailed ServiceKind = "filter_failed" // a subscription's filter was neither true nor false for a change, which was not delivered to it
)

func (Resync) notice()       {}
func (Rewound) notice()      {}
func (Connected) notice()    {}
func (Disconnected) notice() {}
func (Subscribed) notice()   {}
func (Rejected) notice()     {}
func (Service) notice()      {}

func serviceOf(m *streampb.Notice) Service {
	return Service{
		Kind: ServiceKind(m.GetKind()), Text: m.GetText(), At: m.GetAt().AsTime(), Partitions: m.GetPartitions(), Subscription: m.GetSubscription(), Code: m.GetCode(),
	}
}

// lossOf makes a Notice of a loss. A kind that is not known may be a loss of changes, and is told as one.
func lossOf(m *streampb.Loss) Notice {
	if m.GetKind() == streampb.Loss_KIND_REWOUND {
		r := Rewound{Advice: m.GetAdvice()}
		if m.GetTo() != nil {
			r.To = m.GetTo().AsTime()
		}
		return r
	}
	r := Resync{To: m.GetTo().AsTime(), Reason: m.GetReason(), Namespaces: m.GetNamespaces(), Found: m.GetFound().AsTime(), Advice: m.GetAdvice()}
	if m.GetFrom() != nil {
		r.From = m.GetFrom().AsTime()
	}
	return r
}
