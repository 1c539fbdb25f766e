package wire

import (
	"slices"

	"mongostream/change"
)

// A Known is what a subscriber had seen before its session: what the place tells, and everything up to a position.
type Known struct {
	Place

	Stood change.Position
}

// A Sent is a batch on its way.
type Sent struct {
	To            Place
	End           change.Position
	Events, Bytes int
	// Exact says that it is acknowledged by its own end alone, because what is behind it has been sent before.
	Exact bool
	// Unplaced says that it tells of a loss that no position behind it would tell again.
	Unplaced bool
}

// ReachedBy reports whether whoever stands at the place has everything up to the end of the batch.
func (b *Sent) ReachedBy(at Place) bool {
	switch c := at.Compare(b.To); {
	case c != 0:
		return c > 0 && !b.Exact
	case len(b.To.Hashes) == 0:
		return true
	default:
		return slices.Contains(at.Hashes, b.To.Hashes[0])
	}
}

// Held returns the position up to which a partition has been acknowledged of which batches are on their way.
func Held(acked change.Position, sent []Sent) change.Position {
	for _, b := range sent {
		if !b.Exact {
			continue
		}
		if before := change.At(b.End.Time.Prev()); acked.After(before) {
			acked = before
		}
	}
	return acked
}
