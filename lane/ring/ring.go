package ring

import "github.com/mongostream/streamer/change"

// A Ring holds the last slots of a reader, bounded in bytes. Whoever shares it guards it.
type Ring struct {
	limit int64
	slots []*Slot // oldest first
	next  uint64  // number of the slot to come
	total int64   // bytes ever appended
	base  change.Position
	end   change.Position
}

// New makes an empty ring that holds everything behind the position, within so many bytes.
func New(limit int64, behind change.Position) Ring {
	return Ring{limit: limit, base: behind, end: behind}
}

// Base returns the position behind which the ring holds everything.
func (r *Ring) Base() change.Position { return r.base }

// End returns the position up to which the ring holds everything.
func (r *Ring) End() change.Position { return r.end }

// Advance moves the end where a reply held nothing to keep.
func (r *Ring) Advance(end change.Position) { r.end = end }

// Next returns the number of the slot to come.
func (r *Ring) Next() uint64 { return r.next }

// Bytes returns the bytes held.
func (r *Ring) Bytes() int64 {
	if len(r.slots) == 0 {
		return 0
	}
	return r.total - r.slots[0].offset
}

// First returns the number of the oldest slot, or of the slot to come.
func (r *Ring) First() uint64 { return r.next - uint64(len(r.slots)) }

// At returns the slot of a number, or nil when it is overwritten or not there yet.
func (r *Ring) At(seq uint64) *Slot {
	if seq < r.First() || seq >= r.next {
		return nil
	}
	return r.slots[seq-r.First()]
}

// Behind returns the bytes that stand in the slot of a number and after it.
func (r *Ring) Behind(seq uint64) int64 {
	if seq >= r.next {
		return 0
	}
	if seq < r.First() {
		return r.Bytes()
	}
	return r.total - r.At(seq).offset
}

// Append adds a slot and then overwrites the oldest ones until the ring is within its bound; slots from the number keep on are
// never overwritten, because the foremost cursor has yet to read them.
func (r *Ring) Append(s *Slot, keep uint64) {
	s.Seq, s.offset = r.next, r.total
	r.slots = append(r.slots, s)
	r.next++
	r.total += s.size
	r.end = s.End
	drop := 0
	for drop < len(r.slots)-1 && r.total-r.slots[drop].offset > r.limit && r.slots[drop].Seq < keep {
		r.base = r.slots[drop].End
		r.slots[drop] = nil
		drop++
	}
	r.slots = r.slots[drop:]
}

// FirstAfter returns the number of the oldest slot that Append would leave there.
func (r *Ring) FirstAfter(s *Slot, keep uint64) uint64 {
	first, total := r.First(), r.total+s.size
	for _, old := range r.slots {
		if total-old.offset <= r.limit || old.Seq >= keep {
			break
		}
		first++
	}
	return first
}

// Find returns the number of the first slot that may hold events behind the position.
func (r *Ring) Find(p change.Position) uint64 {
	low, high := 0, len(r.slots)
	for low < high {
		if mid := (low + high) / 2; r.slots[mid].End.After(p) {
			high = mid
		} else {
			low = mid + 1
		}
	}
	return r.First() + uint64(low)
}
