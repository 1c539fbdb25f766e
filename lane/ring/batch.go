package ring

import (
	"time"

	"github.com/mongostream/streamer/change"
)

// A Batch is what a slot holds for one reader, or the rest of it.
type Batch struct {
	slot  *Slot
	all   bool     // for a reader of every partition: all events of the slot
	own   []uint32 // else the indices of those of its documents; those of no document are its own too
	first int      // index of the batch's first event among the reader's events in the slot
	count int
}

// All returns the batch of who reads every partition, from the event first on.
func (s *Slot) All(first int) Batch {
	return Batch{slot: s, all: true, first: first, count: len(s.Events) - first}
}

// Lane returns the batch of a partition, from its event first on.
func (s *Slot) Lane(p change.Partition, first int) Batch {
	own := s.Of(p)
	return Batch{slot: s, own: own, first: first, count: len(own) + len(s.keyless) - first}
}

// Skip leaves out the events that do not stand behind the position.
func (b *Batch) Skip(p change.Position) {
	for b.count > 0 && !b.Event(0).Position().After(p) {
		b.first++
		b.count--
	}
}

// Len returns the number of events: at least one, or none in a batch that is there only because it is unproven or because of an
// alarm.
func (b *Batch) Len() int { return b.count }

// First returns the index of the first event among the reader's events in the slot.
func (b *Batch) First() int { return b.first }

// Event returns the i-th event.
func (b *Batch) Event(i int) *change.Event {
	n := b.first + i
	switch {
	case b.all:
	case len(b.slot.keyless) == 0:
		n = int(b.own[n])
	default:
		n = int(merged(b.own, b.slot.keyless, n))
	}
	return &b.slot.Events[n]
}

// merged returns the n-th of the numbers of two lists in ascending order, without merging them: one list of those of no document is enough
// for all partitions.
func merged(a, b []uint32, n int) uint32 {
	low, high := max(0, n-len(b)), min(n, len(a)) // how many of the numbers before it are of a
	for low < high {
		if mid := (low + high) / 2; a[mid] < b[n-mid-1] {
			low = mid + 1
		} else {
			high = mid
		}
	}
	if other := n - low; low == len(a) || other < len(b) && b[other] < a[low] {
		return b[other]
	}
	return a[low]
}

// Seq returns the number of the slot.
func (b *Batch) Seq() uint64 { return b.slot.Seq }

// End returns the position up to which everything of the reader has been read once the whole batch has.
func (b *Batch) End() change.Position { return b.slot.End }

// Unproven reports whether nothing proves that the log was read without a hole up to this batch.
func (b *Batch) Unproven() bool { return b.slot.Unproven }

// At returns when the reply arrived.
func (b *Batch) At() time.Time { return b.slot.At }
