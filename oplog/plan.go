package oplog

import (
	"cmp"
	"slices"
	"time"

	"github.com/mongostream/streamer/change"
)

// A span is the range of a catch-up: its ring holds the entries after base, and it has read up to
// end. No stream of it was opened before begun.
type span struct {
	base, end change.Position
	begun     time.Time
	scope     Scope
	settled   bool // it has that scope; otherwise its scope will be that of all its cursors
	opened    bool // it keeps that scope; otherwise it may turn out to have everything
	retained  bool // it reads the retained log
	joins     bool // it waits for a stream of MongoDB, because the retained log has ended
	turn      turn // at which it gets one
}

// A want is the need of a cursor: everything of the scope after the position, from a reader that
// has not begun before since. Only the retained log has the position, if retained is true.
type want struct {
	at       change.Position
	scope    Scope
	since    time.Time
	turn     turn
	retained bool
}

// A turn is the order in which cursors get readers.
type turn int

const (
	// beforeLoss is the turn of cursors whose position is about to leave the oplog.
	beforeLoss turn = iota
	// anew is the turn of those that read anew: they would be at the tail otherwise, and wait for
	// no one's hours of log.
	anew
	// inTurn is the turn of all others. They wait for a free stream.
	inTurn
)

// An opening is a catch-up to be opened.
type opening struct {
	from     change.Position
	whole    bool // its scope is everything
	retained bool
}

// limits are the limits for catch-ups.
type limits struct {
	// budget is the maximum number of catch-ups that read MongoDB, and of those that are opened to
	// read the retained log. Those opened for MongoDB may turn out to read it, too, so that there
	// may be twice as many in all.
	budget int
	// neighbourhood is the log time that a shared reader may have to read to reach a cursor while
	// another reader could be opened.
	neighbourhood time.Duration
}

const (
	// nowhere is the place of a cursor that gets no reader now.
	nowhere = -1
	// undecided is the place of a cursor whose reader is being opened, and may not have its scope.
	undecided = -2
)

// wantsOf returns where readers would be opened for the cursors, and for what.
func (l *Log) wantsOf(cursors []*Cursor) []want {
	wants := make([]want, len(cursors))
	for i, c := range cursors {
		wants[i] = want{c.open, c.scope, c.reread.Since, l.turn(c), l.left(c)}
	}
	return wants
}

// left reports whether a cursor's position has left the oplog, and the retained log may have it:
// also one that does not reach the oplog, or whose extent is unknown.
func (l *Log) left(c *Cursor) bool {
	_, retains := l.source.(Retainer)
	return retains && c.open.Time.Compare(l.reach.First) < 0
}

// turn returns when a cursor gets a reader.
func (l *Log) turn(c *Cursor) turn {
	switch {
	case c.open.Time.Compare(l.floor) < 0:
		return beforeLoss
	case !c.reread.Since.IsZero():
		return anew
	default:
		return inTurn
	}
}

// turnOf returns when a catch-up that waits to join MongoDB gets a stream: as a cursor at its place
// would, that reads anew if one of its own does.
func (l *Log) turnOf(r *reader) turn {
	if _, end := r.reach(); end.Time.Compare(l.floor) < 0 {
		return beforeLoss
	}
	for c := range r.cursors {
		if !c.reread.Since.IsZero() {
			return anew
		}
	}
	return inTurn
}

// assign returns a reader index for each want: existing readers first, then new ones, which it also
// returns. The wants are served by turn, the earliest first. One shares a reader whose ring holds,
// or will reach, the position, and whose scope covers its own; it gets a new one if that reader is
// far away and the budget allows. At least half of the budget is for readers that others can share:
// of everything, or of a scope that has a reader already.
func assign(wants []want, readers []span, limits limits) (places []int, open []opening) {
	places = make([]int, len(wants))
	order := make([]int, len(wants))
	var latest time.Time // new readers begin after this
	for i := range order {
		order[i] = i
		if wants[i].since.After(latest) {
			latest = wants[i].since
		}
	}
	slices.SortStableFunc(order, func(i, j int) int {
		return cmp.Or(cmp.Compare(wants[i].turn, wants[j].turn), wants[i].at.Compare(wants[j].at))
	})
	all := slices.Clone(readers)
	for _, i := range order {
		w := wants[i]
		at := nearest(all, w)
		if (at == nowhere || w.at.Time.Time().Sub(all[at].end.Time.Time()) > limits.neighbourhood) && limits.allow(all, w) {
			whole := others(all, w) >= limits.budget/2
			at = len(all)
			planned := span{base: w.at, end: w.at, begun: latest, scope: w.scope, settled: whole, retained: w.retained}
			if whole {
				planned.scope = nil
			}
			all = append(all, planned)
			open = append(open, opening{from: w.at, whole: whole, retained: w.retained})
		}
		if at != nowhere && !all[at].has(w.scope) {
			at = undecided
		}
		places[i] = at
	}
	return places, open
}

// counts reports whether a reader is one of those of the want's log, which have a budget. One that
// waits to join MongoDB is also one of MongoDB's, for those whose turn is not before its own.
func (s *span) counts(w want) bool {
	return s.retained == w.retained || s.joins && s.turn <= w.turn
}

// allow reports whether there may be another reader for a want.
func (l limits) allow(readers []span, w want) bool {
	n := 0
	for i := range readers {
		if readers[i].counts(w) {
			n++
		}
	}
	return n < l.budget && len(readers) < 2*l.budget
}

// others returns how many readers that count for a want may have neither everything nor its scope.
func others(readers []span, w want) (n int) {
	for i := range readers {
		r := &readers[i]
		isNarrow := !r.settled || r.scope != nil
		isOther := r.scope == nil || !r.scope.covers(w.scope)
		if isNarrow && isOther && r.counts(w) {
			n++
		}
	}
	return n
}

// has reports whether a reader has, or will have, everything of a scope.
func (s *span) has(scope Scope) bool { return !s.settled || s.scope.covers(scope) }

// nearest returns the reader that will reach the position and is closest to it, among those that
// may serve the cursor: they have its scope, or may turn out to have it. Entries that can be read
// anew are not read from the retained log, which has documents as they were looked up long ago.
func nearest(readers []span, w want) (best int) {
	best = nowhere
	for i, r := range readers {
		old := r.begun.Before(w.since) || r.retained && !w.since.IsZero() && !w.retained
		serves := !old && (!r.opened || r.has(w.scope))
		isNearer := best == nowhere || r.end.After(readers[best].end)
		if serves && isNearer && w.at.Covers(r.base) {
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
