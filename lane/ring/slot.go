package ring

import (
	"iter"
	"slices"
	"time"

	"github.com/mongostream/streamer/change"
)

// A Slot is one reply in a ring: its events, and for each partition that occurs which of them are its own.
type Slot struct {
	// Seq is its number in its ring.
	Seq uint64
	// Events are in the order of the log, each behind the one before.
	Events []change.Event
	// End is the position up to which the ring holds everything, with this slot.
	End change.Position
	// At is when the reply arrived.
	At time.Time
	// Unproven says that nothing proves that the log was read without a hole up to this slot. Such a slot concerns every partition,
	// and may have no events.
	Unproven bool

	offset  int64 // bytes of the ring before this slot, since the ring began
	size    int64
	groups  []group  // in the order of the partitions
	order   []uint32 // indices of events that concern one document, group by group
	keyless []uint32 // indices of those that concern none: they are every partition's
}

// A group is the part of a slot that belongs to a partition: order[from:to].
type group struct {
	partition change.Partition
	from, to  uint32
}

// What a slot holds for itself, in bytes.
const (
	eventSize = 96 // of an event beside its bytes in the reply
	indexSize = 4
	groupSize = 12
)

// bytes returns what the slot takes, for a reply of so many bytes.
func (s *Slot) bytes(reply int) int64 {
	return int64(reply) + int64(len(s.Events))*eventSize + int64(len(s.order)+len(s.keyless))*indexSize + int64(len(s.groups))*groupSize
}

// Of returns the indices of the events that concern a document of the partition, nil where there are none.
func (s *Slot) Of(p change.Partition) []uint32 {
	i, found := slices.BinarySearchFunc(s.groups, p, func(g group, p change.Partition) int { return int(g.partition) - int(p) })
	if !found {
		return nil
	}
	return s.order[s.groups[i].from:s.groups[i].to]
}

// Partitions yields those of n partitions that the slot concerns, in the order of their numbers.
func (s *Slot) Partitions(n int) iter.Seq[change.Partition] {
	return func(yield func(change.Partition) bool) {
		if s.Unproven || len(s.keyless) > 0 {
			for p := range change.Partition(n) {
				if !yield(p) {
					return
				}
			}
			return
		}
		for _, g := range s.groups {
			if !yield(g.partition) {
				return
			}
		}
	}
}
