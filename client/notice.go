package client

import (
	"time"

	"github.com/mongostream/streamer/gateway/streampb"
)

// A Notice is a message from the client to the program; its type says what happened. [Resync],
// [Rewound], [SnapshotBegun] and [SnapshotDone] arrive in order with the changes, and delivery
// waits until they have been handled. The others are about sessions, subscriptions and the service;
// nothing waits for them.
type Notice interface{ notice() }

// A Resync says that changes between From and To may have been missed. The program should read the
// documents of the namespaces again if it needs them. A Resync may be redelivered until it has been
// acknowledged.
type Resync struct {
	From, To   time.Time // by MongoDB's clock, rounded outwards to seconds; From is zero if unknown
	Reason     string    // history_lost, poison, renamed, position_unknown, …
	Namespaces []string  // the affected namespaces; empty: all watched namespaces
	Found      time.Time // when the loss was detected
	Advice     string    // what to do
}

// A Rewound says that an operator has moved the subscriber back: the changes that follow may have
// been delivered before.
type Rewound struct {
	To     time.Time // by MongoDB's clock; zero if the rewind happened while the program was not connected
	Advice string
}

// A SnapshotBegun says that the documents of a subscription follow, among its changes. After a
// restart within a snapshot it may not come again; if the snapshot has to begin again, it does.
type SnapshotBegun struct{ Snapshot }

// A SnapshotDone says that the subscription has had all documents that existed. With the changes
// since then the program has MongoDB's documents, except for those that it had before and whose
// deletion was lost: documents that a snapshot after a Resync did not contain are gone.
type SnapshotDone struct{ Snapshot }

// A SnapshotCancelled says that an operator has ended the snapshot of a subscription, which has not
// had all documents.
type SnapshotCancelled struct{ Snapshot }

// A Snapshot is the progress of a subscription's snapshot.
type Snapshot struct {
	Subscription string
	Reason       string // start, loss or operator
	// Namespaces are those whose documents come; empty: all of the subscription.
	Namespaces []string
	// Read counts the documents that the node has read, whether they match the filter or not, and
	// Estimated how many there were at the beginning.
	Read, Estimated uint64
}

// Connected says that a session has begun. From now on every matching change is delivered, even if
// the connection breaks. With Owned there is one session with each node.
type Connected struct {
	Address, Cluster, Node string
	PartitionCount         uint32
	Begin                  Begin
}

// Begin says where a session began.
type Begin int

// Where a session can begin.
const (
	BeginPosition   Begin = iota + 1 // at the position of the program
	BeginCheckpoint                  // at the subscriber's checkpoint
	BeginStart                       // at Config.Start, because there was no saved position
)

// Disconnected says that a session has ended, or that none could be opened. Run reconnects.
type Disconnected struct {
	Address string
	Err     error
	// Failures is the number of consecutive failures.
	Failures int
}

// Subscribed says that a node has accepted a subscription. With several sessions, each sends one.
type Subscribed struct{ Subscription string }

// Rejected says that a node has rejected a subscription. The client removes it.
type Rejected struct {
	Subscription          string
	Code, Message, Remedy string
}

// Service is information about the service. It requires no action.
type Service struct {
	Kind ServiceKind
	Text string
	At   time.Time
	// Partitions are the affected partitions; empty means all.
	Partitions []uint32
	// Subscription is the affected subscription and Code the fault code, if any.
	Subscription, Code string
}

// ServiceKind is the kind of a Service notice. Later versions may add kinds.
type ServiceKind string

// The kinds.
const (
	ShuttingDown ServiceKind = "shutting_down" // the node is about to stop; the client connects to another node before it leaves
	Moved        ServiceKind = "moved"         // partitions have moved
	Degraded     ServiceKind = "degraded"      // the service is degraded
	Recovered    ServiceKind = "recovered"     // the service has recovered
	// SubscriberReplaced says that the program has taken its subscriber's name over from another
	// process, which is disconnected if it still runs.
	SubscriberReplaced ServiceKind = "subscriber_replaced"
	FilterFailed       ServiceKind = "filter_failed" // a filter could not be evaluated for a change, which was not delivered to its subscription

	// FilterSuspended says that a filter keeps costing too much: the session ends, and the node
	// refuses the filter for a while.
	FilterSuspended ServiceKind = "filter_suspended"
	// CollectionMissing says that a subscription names a collection or a database that does not
	// exist yet.
	CollectionMissing ServiceKind = "collection_missing"
)

func (Resync) notice()            {}
func (Rewound) notice()           {}
func (SnapshotBegun) notice()     {}
func (SnapshotDone) notice()      {}
func (SnapshotCancelled) notice() {}
func (Connected) notice()         {}
func (Disconnected) notice()      {}
func (Subscribed) notice()        {}
func (Rejected) notice()          {}
func (Service) notice()           {}

// notice returns the notice of a batch that has no events but a place among them.
func (b *batch) notice() Notice {
	m := b.snapshot
	if m == nil {
		return lossOf(b.loss)
	}
	s := Snapshot{Subscription: m.GetSubscription(), Reason: m.GetReason(), Namespaces: m.GetNamespaces(), Read: m.GetRead(), Estimated: m.GetEstimated()}
	switch m.GetState() {
	case streampb.Snapshot_STATE_DONE:
		return SnapshotDone{s}
	case streampb.Snapshot_STATE_CANCELLED:
		return SnapshotCancelled{s}
	default:
		return SnapshotBegun{s}
	}
}

func serviceOf(m *streampb.Notice) Service {
	return Service{
		Kind: ServiceKind(m.GetKind()), Text: m.GetText(), At: m.GetAt().AsTime(), Partitions: m.GetPartitions(), Subscription: m.GetSubscription(), Code: m.GetCode(),
	}
}

// lossOf converts a loss to a Notice. An unknown kind may be a loss of changes and becomes a
// Resync.
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
