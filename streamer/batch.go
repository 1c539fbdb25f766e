package streamer

import (
	"time"

	"github.com/mongostream/streamer/change"
)

// Bounds of a batch; a single event may go beyond the bytes.
const (
	MaxBatchEvents = 1024
	MaxBatchBytes  = 256 << 10
)

// A Batch is a stretch of a session's stream. It belongs to the transport from Receive on.
type Batch struct {
	// Seq numbers the batches of a session, from 1. It acknowledges this batch and all before it.
	Seq uint64
	// To is where the batch ends: the session has everything of its partitions up to here. It is never earlier than that of the batch before,
	// except after a rewind or where partitions were attached at an earlier position.
	To     change.Position
	Events []Event
	// Generation is that of the subscriber's checkpoint in which it is at To.
	Generation uint64
	// Loss, in the place of events, says what became of the stretch.
	Loss *Loss
	// Snapshot, in the place of events, says that a snapshot begins or is complete.
	Snapshot *SnapshotMark
	// Attached, in the place of events, are partitions that the session has from here on.
	Attached []change.Partition

	payloads []byte // of the events, one after the other
	size     int    // what it counts against the credit, in bytes
}

// An Event is one change as a session gets it.
type Event struct {
	Ref change.Ref
	// Partition is that of the document; Keyless says that the event is of no document and concerns every partition.
	Partition change.Partition
	Keyless   bool
	Format    Format
	// Snapshot says that it is no change, but a document as it was when it was read. Its Ref is where the stream was then.
	Snapshot bool
	// Subscriptions are those that match and ask for this form. The slice is shared: do not change it.
	Subscriptions []string

	end int // of the payload among the batch's; it begins where the one before ends
}

// Payload returns the i-th event as its form says. It aliases the batch.
func (b *Batch) Payload(i int) []byte {
	from := 0
	if i > 0 {
		from = b.Events[i-1].end
	}
	return b.payloads[from:b.Events[i].end:b.Events[i].end]
}

// Size returns the length of the payloads in bytes.
func (b *Batch) Size() int { return b.size }

// grows reports whether an event may still be added. The first batch stays empty: it says where the session begins.
func (b *Batch) grows() bool {
	return b.Seq != 1 && b.Loss == nil && b.Attached == nil && b.Snapshot == nil && len(b.Events) < MaxBatchEvents && len(b.payloads) < MaxBatchBytes
}

// A Kind says what a loss is about.
type Kind string

// The kinds of loss.
const (
	// Resync: changes between From and To may have been missed. Read the documents of the namespaces again.
	Resync Kind = "resync"
	// Rewound: an operator has moved the subscriber back to To; what follows has been delivered before.
	Rewound Kind = "rewound"
)

// A Loss is an entry of a session's stream that is no change: it has its place among the events, is acknowledged like them, and comes again
// until it is.
type Loss struct {
	Kind   Kind
	Reason string // as package gap names it, or "operator"
	// From and To bound the stretch.
	From, To change.Position
	// Generation is that of the subscriber's checkpoint from here on, of a rewind.
	Generation uint64
	// Namespaces are those concerned; empty means everything that is watched.
	Namespaces []string
	// Found is when the loss was found.
	Found time.Time
	// Advice says what to do.
	Advice string
}
