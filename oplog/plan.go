package oplog

import (
	"slices"
	"time"

	"github.com/mongostream/streamer/change"
)

// A span is the range of a catch-up: its ring holds the entries after base, and it has read up to
// end. No stream of it was opened before begun.
type span struct {
	base, end change.Position
	begun     time.Time
}

// A start is where a reader would be opened for a cursor. It must not have begun before since.
type start struct {
	at    change.Position
	since time.Time
}

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
func startsOf(cursors []*Cursor) []start {
	starts := make([]start, len(cursors))
	for i, c := range cursors {
		starts[i] = start{c.open, c.reread.Since}
	}
	return starts
}

// assign returns a reader index for each start: existing readers first, then new ones, whose
// positions it also returns. The earliest start is served first. It shares a reader whose ring
// holds, or will reach, the position; it gets a new one if that reader is far away and the budget
// allows.
func assign(starts []start, readers []span, limits limits) (places []int, open []change.Position) {
	places = make([]int, len(starts))
	order := make([]int, len(starts))
	var latest time.Time // new readers begin after this
	for i := range order {
		order[i] = i
		if starts[i].since.After(latest) {
			latest = starts[i].since
		}
	}
	slices.SortStableFunc(order, func(i, j int) int { return starts[i].at.Compare(starts[j].at) })
	all := slices.Clone(readers)
	for _, i := range order {
		at := nearest(all, starts[i])
		from := starts[i].at
		if (at == nowhere || from.Time.Time().Sub(all[at].end.Time.Time()) > limits.neighbourhood) && len(all) < limits.budget {
			at = len(all)
			all = append(all, span{base: from, end: from, begun: latest})
			open = append(open, from)
		}
		places[i] = at
	}
	return places, open
}

// nearest returns the reader that may serve the start, will reach it and is closest to it.
func nearest(readers []span, s start) (best int) {
	best = nowhere
	for i, r := range readers {
		if s.at.Covers(r.base) && !r.begun.Before(s.since) && (best == nowhere || r.end.After(readers[best].end)) {
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
