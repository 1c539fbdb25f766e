package oplog

import (
	"sort"

	"github.com/mongostream/streamer/change"
)

// A ring holds the last slots of a reader, bounded in bytes. The caller synchronizes access.
type ring struct {
	limit int64
	slots []*slot // oldest first
	next  uint64  // number of the slot to come
	total int64   // bytes ever appended
	base  change.Position
	end   change.Position
}

// newRing returns an empty ring that begins after the position and holds at most limit bytes.
func newRing(limit int64, after change.Position) ring {
	return ring{limit: limit, base: after, end: after}
}

// bytes returns the bytes held.
func (r *ring) bytes() int64 {
	if len(r.slots) == 0 {
		return 0
	}
	return r.total - r.slots[0].offset
}

// first returns the number of the oldest slot, or of the next one if the ring is empty.
func (r *ring) first() uint64 { return r.next - uint64(len(r.slots)) }

// at returns a slot by number, nil if it is overwritten or does not exist yet.
func (r *ring) at(seq uint64) *slot {
	if seq < r.first() || seq >= r.next {
		return nil
	}
	return r.slots[seq-r.first()]
}

// ahead returns the bytes of the slots from a number on.
func (r *ring) ahead(seq uint64) int64 {
	if seq >= r.next {
		return 0
	}
	if seq < r.first() {
		return r.bytes()
	}
	return r.total - r.at(seq).offset
}

// append adds a slot and overwrites the oldest ones until the ring is within its bound, except
// slots from keep on.
func (r *ring) append(s *slot, keep uint64) {
	s.seq, s.offset = r.next, r.total
	r.slots = append(r.slots, s)
	r.next++
	r.total += s.size
	r.end = s.end
	drop := 0
	for drop < len(r.slots)-1 && r.total-r.slots[drop].offset > r.limit && r.slots[drop].seq < keep {
		r.base = r.slots[drop].end
		r.slots[drop] = nil
		drop++
	}
	r.slots = r.slots[drop:]
}

// firstAfter returns the number of the oldest slot that append would keep.
func (r *ring) firstAfter(s *slot, keep uint64) uint64 {
	first := r.first()
	total := r.total + s.size
	for _, old := range r.slots {
		if total-old.offset <= r.limit || old.seq >= keep {
			break
		}
		first++
	}
	return first
}

// find returns the number of the first slot that may hold something after the position.
func (r *ring) find(p change.Position) uint64 {
	i := sort.Search(len(r.slots), func(i int) bool { return r.slots[i].end.Time.Compare(p.Time) >= 0 })
	for i < len(r.slots) && p.Covers(r.slots[i].end) {
		i++
	}
	return r.first() + uint64(i)
}
