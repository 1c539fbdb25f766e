package oplog

import (
	"time"

	"github.com/mongostream/streamer/change"
)

// everyPartition marks an event without a document, which concerns all partitions.
const everyPartition = change.MaxPartitions

// A slot is a reply in a ring, or a part of one: an optional loss, and the events after it.
type slot struct {
	seq        uint64 // its number in its ring
	loss       *Loss
	told       bool           // the loss is known to others
	held       bool           // the loss is not counted yet, because the tail had the stretch
	events     []change.Event // in the order of the log
	partitions []uint16       // of each event, or everyPartition
	end        change.Position
	at         time.Time // when the reply came

	offset int64 // bytes of the ring before this slot, since the ring began
	size   int64
}

// A Batch is one reply as a cursor sees it: an optional loss, then events. Both are absent if the
// log has only advanced. It is valid until the cursor's next call; its events alias the reply.
type Batch struct {
	slot  *slot
	loss  *Loss
	first int // of the slot's events
}

// Loss returns the loss before the events, or nil.
func (b *Batch) Loss() *Loss { return b.loss }

// Len returns the number of events.
func (b *Batch) Len() int { return len(b.slot.events) - b.first }

// Event returns the i-th event.
func (b *Batch) Event(i int) *change.Event { return &b.slot.events[b.first+i] }

// Partition returns the partition of the i-th event. keyed is false for an event without a
// document, which concerns every partition.
func (b *Batch) Partition(i int) (p change.Partition, keyed bool) {
	n := b.slot.partitions[b.first+i]
	return change.Partition(n), n != everyPartition
}

// End returns the position up to which everything has been read after this batch. The caller may
// keep it.
func (b *Batch) End() change.Position { return b.slot.end }

// At returns when the reply came, zero if it has no events.
func (b *Batch) At() time.Time { return b.slot.at }

// skip removes everything that is known to be at or before the position.
func (b *Batch) skip(p change.Position) {
	if b.loss != nil && b.first == 0 {
		b.loss = b.loss.after(p)
	}
	for b.Len() > 0 && p.Has(b.Event(0).Position()) {
		b.first++
		b.loss = nil
	}
}
