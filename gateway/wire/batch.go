package wire

import (
	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/delivery"
)

// Bounds of a batch; a single event may go beyond the bytes.
const (
	MaxBatchEvents = 256
	MaxBatchBytes  = 256 << 10
)

// A Batch is a stretch of one partition. It belongs to the transport from Receive on.
type Batch struct {
	Partition change.Partition
	Epoch     change.Epoch
	From, To  Place
	Events    []Event
	// Loss, in the place of events, says what became of the stretch.
	Loss *delivery.Notice

	// End is where it ends in the log, as a whole position: what To shows of it may leave the cluster. It is set by Receive.
	End change.Position

	// Bytes is the length of the payloads.
	Bytes int
}

// An Event is one change as a session gets it. Its payload is shared with other sessions.
type Event struct {
	Head    [change.HeadSize]byte
	Hash    [16]byte
	Payload []byte
	Format  Format
	// Subscriptions are those that match and ask for this form.
	Subscriptions []string
}

// Grows reports whether an event may still be added.
func (b *Batch) Grows() bool {
	return b.Loss == nil && len(b.Events) < MaxBatchEvents && b.Bytes < MaxBatchBytes
}
