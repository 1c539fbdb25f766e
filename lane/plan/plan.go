package plan

import (
	"cmp"
	"slices"
	"time"

	"github.com/mongostream/streamer/change"
)

// A Cursor is one that stands behind every ring.
type Cursor struct {
	// Open is where a reader is to be opened for it.
	Open change.Position
	// Session says that it is a session's and not a lane's.
	Session bool
}

// A Reader is a catch-up: its ring holds what stands behind Base, and it has come to End.
type Reader struct {
	Base, End change.Position
}

// Limits bound the catch-ups.
type Limits struct {
	// Budget is how many there may be at a time; sessions open at most half of them.
	Budget int
	// Neighbourhood is how far behind a cursor's wish a reader may be and still be shared while another one would be free.
	Neighbourhood time.Duration
}

// Nowhere is the place of a cursor that gets no reader now.
const Nowhere = -1

// Assign returns the place of each cursor: the number of a reader, counting on behind those that are there to those that are to be
// opened, at the positions returned. The rearmost cursor is served first, lanes before sessions. A cursor shares a reader whose ring
// still holds what it wants, or that will come by; it opens one of its own when that reader would have to come a long way and the
// budget allows.
func Assign(cursors []Cursor, readers []Reader, limits Limits) (places []int, open []change.Position) {
	places = make([]int, len(cursors))
	all := slices.Clone(readers)
	for _, i := range order(cursors) {
		c := cursors[i]
		at := nearest(all, c.Open)
		budget := limits.Budget
		if c.Session {
			budget = max(1, budget/2)
		}
		if (at == Nowhere || c.Open.Time.Time().Sub(all[at].End.Time.Time()) > limits.Neighbourhood) && len(all) < budget {
			at = len(all)
			all = append(all, Reader{Base: c.Open, End: c.Open})
			open = append(open, c.Open)
		}
		places[i] = at
	}
	return places, open
}

// order returns the cursors' numbers in the order in which they are served.
func order(cursors []Cursor) []int {
	numbers := make([]int, len(cursors))
	for i := range numbers {
		numbers[i] = i
	}
	rank := map[bool]int{false: 0, true: 1}
	slices.SortStableFunc(numbers, func(i, j int) int {
		a, b := cursors[i], cursors[j]
		return cmp.Or(cmp.Compare(rank[a.Session], rank[b.Session]), a.Open.Compare(b.Open))
	})
	return numbers
}

// nearest returns the reader that will come by the position and has the shortest way to it.
func nearest(readers []Reader, p change.Position) (best int) {
	best = Nowhere
	for i, r := range readers {
		if !r.Base.After(p) && (best == Nowhere || r.End.After(readers[best].End)) {
			best = i
		}
	}
	return best
}
