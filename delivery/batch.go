package delivery

import (
	"slices"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/delivery/fair"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/snapshot"
)

// Bounds of a batch. A single event may exceed MaxBatchBytes.
const (
	MaxBatchEvents = 1024
	MaxBatchBytes  = 256 << 10
)

// A Batch is a stretch of a session's stream. After Receive it belongs to the transport.
type Batch struct {
	// Seq numbers the batches of a session, from 1. Acknowledging it acknowledges all earlier
	// batches.
	Seq uint64
	// To is the end of the batch: the session has everything of its partitions up to here. It
	// decreases only after a rewind or when partitions are attached at an earlier position.
	To     change.Position
	Events []Event
	// Generation is that of the subscriber's checkpoint at To.
	Generation uint64
	// Loss is set instead of Events if the stretch was lost or the subscriber was rewound.
	Loss *Loss
	// Snapshot is set instead of Events at the beginning and the end of a snapshot.
	Snapshot *SnapshotMark
	// Stamp is that of the snapshots that the session had before the batch, or after it if it has a
	// mark.
	Stamp uint32
	// Snapshots is the progress that the stamp is of. It must not be modified.
	Snapshots []snapshot.Progress
	// Attached is set instead of Events: the partitions that the session has from here on.
	Attached []change.Partition
	// Detached are partitions that the session has lost: neither this batch nor a later one has
	// their events.
	Detached []change.Partition

	payloads []byte        // of the events, without the documents of a page
	page     *pagePayloads // of the page whose documents the batch has; do not modify them
	shared   int           // bytes of these documents
	lease    *fair.Lease   // of the page
	came     time.Time     // when MongoDB's reply with its first event came, on the live path
	size     int           // bytes that count against the credit
	charged  int           // bytes that count against the budget
}

// An Event is one change in a session's stream.
type Event struct {
	Ref change.Ref
	// Partition is the partition of the document. Keyless says that the event has no document and
	// concerns every partition.
	Partition change.Partition
	Keyless   bool
	Format    Format
	// Snapshot says that the event is a document of a snapshot, not a change. Its Ref is the
	// position at which it was read.
	Snapshot bool

	paged    bool  // its payload is in the batch's page, not in its payloads
	from, to int32 // where the payload is

	// Subscriptions are the matching subscriptions with this form. The slice is shared: do not
	// modify it.
	Subscriptions []string
}

// Payload returns the encoded i-th event. It aliases the batch, or a page that several share, and
// must not be modified.
func (b *Batch) Payload(i int) []byte {
	e := &b.Events[i]
	payloads := b.payloads
	if e.paged {
		payloads = b.page.bytes
	}
	return payloads[e.from:e.to:e.to]
}

// add adds an event whose payload is the end of payloads, which continues the batch's.
func (b *Batch) add(e Event, payloads []byte) {
	e.from, e.to = int32(len(b.payloads)), int32(len(payloads))
	b.payloads = payloads
	b.Events = append(b.Events, e)
}

// Size returns the length of the payloads in bytes.
func (b *Batch) Size() int { return b.size }

// grows reports whether an event may be added. The first batch stays empty: it says where the
// session begins.
func (b *Batch) grows() bool {
	return b.Seq != 1 && b.Loss == nil && b.Attached == nil && b.Snapshot == nil && len(b.Events) < MaxBatchEvents && len(b.payloads)+b.shared < MaxBatchBytes
}

// prune removes events, and moves the others to the front.
func (b *Batch) prune(over func(*Event) bool) {
	events, payloads := b.Events, b.payloads
	b.Events = events[:0]
	b.payloads = payloads[:0]
	for _, e := range events {
		switch {
		case over(&e):
		case e.paged:
			b.Events = append(b.Events, e)
		default:
			b.add(e, append(b.payloads, payloads[e.from:e.to]...))
		}
	}
}

// A Kind is the kind of a loss.
type Kind string

// The kinds of loss.
const (
	// Resync means that changes between From and To may have been missed: read the documents of the
	// namespaces again.
	Resync Kind = "resync"
	// Rewound means that an operator has moved the subscriber back to To: later changes may have
	// been delivered before.
	Rewound Kind = "rewound"
)

// A Loss is an entry of a session's stream that is not a change. It is ordered and acknowledged
// like an event and redelivered until it is.
type Loss struct {
	Kind   Kind
	Reason string // a reason of package gap, or "operator"
	// From and To bound the stretch.
	From, To change.Position
	// Generation is the checkpoint generation after a rewind.
	Generation uint64
	// Namespaces are the affected namespaces; empty means all watched ones.
	Namespaces []string
	// Partitions are those concerned, of a rewind of a shared subscriber; empty means all of the
	// session.
	Partitions []change.Partition
	// Found is when the loss was found.
	Found time.Time
	// Own says that it is the loss of this subscriber alone, which came back too late or was not
	// read for: its checkpoint keeps it, and nobody else hears of it.
	Own bool
	// Advice says what to do.
	Advice string
}

// A SnapshotState is the state of a snapshot.
type SnapshotState string

// The states of a snapshot.
const (
	SnapshotBegun SnapshotState = "begun"
	SnapshotDone  SnapshotState = "done" // all documents have been sent
	// SnapshotCancelled says that an operator has ended it.
	SnapshotCancelled SnapshotState = "cancelled"
)

// A SnapshotMark is an entry of a session's stream at the beginning or the end of a snapshot.
type SnapshotMark struct {
	Subscription string
	State        SnapshotState
	Reason       snapshot.Reason
	// Namespaces are those whose documents come; empty means all that the subscription selects.
	Namespaces []string
	// Read counts the documents read, Estimated the documents at the beginning.
	Read, Estimated uint64
}

// Progress returns the progress of the snapshots that the stamp is of as text, while any is left;
// empty if it is too long.
func (b *Batch) Progress() string {
	if !b.Owes() {
		return ""
	}
	return snapshot.Text(b.Snapshots)
}

// Owes reports whether something is left of the session's snapshots after the batch.
func (b *Batch) Owes() bool {
	return slices.ContainsFunc(b.Snapshots, func(p snapshot.Progress) bool { return !p.Done })
}

// maxLost bounds the acknowledged losses that a session remembers.
const maxLost = 8

// appendLoss adds a loss. Of more than maxLost the two oldest become one, which contains both and
// the span between them.
func appendLoss(lost []Loss, l Loss) []Loss {
	if lost = append(lost, l); len(lost) <= maxLost {
		return lost
	}
	both := lost[1]
	both.From = change.Earlier(lost[0].From, both.From)
	both.To = change.Later(lost[0].To, both.To)
	both.Namespaces = nil // all
	return append([]Loss{both}, lost[2:]...)
}

// A Notice is information about the service without a place in the log.
type Notice struct {
	Kind, Text, Subscription string
	Code                     fault.Code
	At                       time.Time
	// Partitions are the affected partitions; empty means all.
	Partitions []change.Partition
	// Namespaces are the namespaces that it concerns; empty means none in particular. It is only
	// for subscribers that may read one of them. Private says that it is only for those that may
	// read everything: it names other subscribers or members, or contains an error of a dependency.
	Namespaces []string
	Private    bool
}

// CollectionMissing is the kind of a notice about a subscription to what does not exist yet.
const CollectionMissing = "collection_missing"

// missingNotice is the notice about a subscription to what does not exist yet.
func missingNotice(subscription, text string) Notice {
	return Notice{Kind: CollectionMissing, Text: text, Subscription: subscription, Code: fault.MongoMissing, At: time.Now()}
}
