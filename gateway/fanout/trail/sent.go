package trail

import (
	"slices"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/gateway/wire"
)

// A Known is what a subscriber has seen: what the place tells, and everything up to a position, which is at or before it.
type Known struct {
	wire.Place

	Stood change.Position
}

// From returns the position behind which everything is that the subscriber has not seen.
func (k Known) From() change.Position { return change.Later(change.At(k.Time()), k.Stood) }

// A sent is a batch on its way.
type sent struct {
	to            wire.Place
	end           change.Position
	events, bytes int
	// exact says that it is acknowledged by its own end alone, because what is behind it has been sent before.
	exact bool
	// unplaced says that it tells of a loss that no position behind it would tell again.
	unplaced bool
}

// reachedBy reports whether whoever stands at the place has everything up to the end of the batch.
func (b *sent) reachedBy(at wire.Place) bool {
	switch c := at.Compare(b.to); {
	case c != 0:
		return c > 0 && !b.exact
	case len(b.to.Hashes) == 0:
		return true
	default:
		return slices.Contains(at.Hashes, b.to.Hashes[0])
	}
}
