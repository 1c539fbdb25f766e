package oplog

import (
	"slices"
	"time"

	"github.com/mongostream/streamer/change"
)

// A span is the range of a catch-up: its ring holds the entries after base, and it has read up to
// end.
type span struct{ base, end change.Position }

// limits are the limits for catch-ups.
type limits struct {
	// budget is the maximum number of catch-ups.
	budget int
	// neighbourhood is the log time that a shared reader may have to read to reach a cursor while
	// another reader could be opened.
	neighbourhood time.Duration
}

// nowhere is the place of a cursor that gets no reader now.
const nowhere = -1

// startsOf returns where readers would be opened for the cursors.
func startsOf(cursors []*Cursor) []change.Position {
	starts := make([]change.Position, len(cursors))
	for i, c := range cursors {
		starts[i] = c.open
	}
	return starts
}

// assign returns a reader index for each start: existing readers first, then new ones, whose
// positions it also returns. The earliest start is served first. It shares a reader whose ring
// holds, or will reach, the position; it gets a new one if that reader is far away and the budget
// allows.
func assign(starts []change.Position, readers []span, limits limits) (places []int, open []change.Position) {
	places = make([]int, len(starts))
	order := make([]int, len(starts))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int { return starts[i].Compare(starts[j]) })
	all := slices.Clone(readers)
	for _, i := range order {
		at := nearest(all, starts[i])
		if (at == nowhere || starts[i].Time.Time().Sub(all[at].end.Time.Time()) > limits.neighbourhood) && len(all) < limits.budget {
			at = len(all)
			all = append(all, span{base: starts[i], end: starts[i]})
			open = append(open, starts[i])
		}
		places[i] = at
	}
	return places, open
}

// nearest returns the reader that will reach the position and is closest to it.
func nearest(readers []span, p change.Position) (best int) {
	best = nowhere
	for i, r := range readers {
		if p.Covers(r.base) && (best == nowhere || r.end.After(readers[best].end)) {
			best = i
		}
	}
	return best
}

// recent is the age up to which the tail is opened at a cursor's position after a restart. Earlier
// cursors are served by catch-ups, so that the tail is live at once.
const recent = time.Minute

// TailStart returns where to open the tail for cursors that begin at starts: at the earliest of the
// recent ones, so that a quick restart costs one stream; otherwise now.
func TailStart(starts []change.Position, now change.Timestamp) change.Position {
	tail := change.At(now)
	for _, p := range starts {
		if now.Time().Sub(p.Time.Time()) <= recent && tail.After(p) {
			tail = p
		}
	}
	return tail
}
