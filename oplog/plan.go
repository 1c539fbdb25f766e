package oplog

import (
	"slices"
	"time"

	"github.com/mongostream/streamer/change"
)

// A span is what a catch-up serves: its ring holds what comes after base, and it has read up to end.
type span struct{ base, end change.Position }

// limits bound the catch-ups.
type limits struct {
	// budget is how many there may be at a time.
	budget int
	// neighbourhood is how far a reader may have to go to a cursor's position and still be shared while another one would be free.
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

// assign returns the place of each cursor that begins at one of the starts: the number of a reader, counting on after those that are there
// to those that are to be opened, at the positions returned. The rearmost is served first. A cursor shares a reader whose ring still
// holds what it wants, or that will come by; it opens one of its own when that reader would have to go a long way and the budget allows.
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

// nearest returns the reader that will come by the position and has the shortest way to it.
func nearest(readers []span, p change.Position) (best int) {
	best = nowhere
	for i, r := range readers {
		if !r.base.After(p) && (best == nowhere || r.end.After(readers[best].end)) {
			best = i
		}
	}
	return best
}

// recent is how far back in the log the tail itself is opened after a restart. Cursors that are further back are served by catch-ups, and
// the tail is live at once.
const recent = time.Minute

// TailStart returns where to open the tail for cursors that begin at starts: at the rearmost of the recent ones, so that a quick restart
// costs one stream; otherwise now.
func TailStart(starts []change.Position, now change.Timestamp) change.Position {
	tail := change.At(now)
	for _, p := range starts {
		if now.Time().Sub(p.Time.Time()) <= recent && tail.After(p) {
			tail = p
		}
	}
	return tail
}
