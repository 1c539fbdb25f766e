package plan_test

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/lane/plan"
)

func at(minutes int) change.Position {
	return change.At(change.Timestamp{T: uint32(1_000_000 + 60*minutes), I: 1})
}

func TestWhoSharesAndWhoOpens(t *testing.T) {
	limits := plan.Limits{Budget: 2, Neighbourhood: time.Minute}
	lane := func(minutes int) plan.Cursor { return plan.Cursor{Open: at(minutes)} }
	session := func(minutes int) plan.Cursor { return plan.Cursor{Open: at(minutes), Session: true} }
	for name, c := range map[string]struct {
		cursors []plan.Cursor
		readers []plan.Reader
		places  []int
		open    []change.Position
	}{
		"one opens":                           {[]plan.Cursor{lane(5)}, nil, []int{0}, []change.Position{at(5)}},
		"neighbours share":                    {[]plan.Cursor{lane(6), lane(5)}, nil, []int{0, 0}, []change.Position{at(5)}},
		"who is far opens another":            {[]plan.Cursor{lane(50), lane(5)}, nil, []int{1, 0}, []change.Position{at(5), at(50)}},
		"beyond the budget the nearest comes": {[]plan.Cursor{lane(50), lane(5), lane(90)}, nil, []int{1, 0, 1}, []change.Position{at(5), at(50)}},
		"an open reader is shared":            {[]plan.Cursor{lane(5)}, []plan.Reader{{at(4), at(5)}}, []int{0}, nil},
		"a ring that has passed is not":       {[]plan.Cursor{lane(5)}, []plan.Reader{{at(6), at(9)}}, []int{1}, []change.Position{at(5)}},
		"no reader will come by":              {[]plan.Cursor{lane(5)}, []plan.Reader{{at(6), at(9)}, {at(7), at(9)}}, []int{plan.Nowhere}, nil},
		"sessions open at most half":          {[]plan.Cursor{session(50), session(5)}, nil, []int{0, 0}, []change.Position{at(5)}},
		"lanes before sessions":               {[]plan.Cursor{session(5), lane(50)}, nil, []int{plan.Nowhere, 0}, []change.Position{at(50)}},
	} {
		places, open := plan.Assign(c.cursors, c.readers, limits)
		same := slices.EqualFunc(open, c.open, func(a, b change.Position) bool { return a.Compare(b) == 0 })
		if !slices.Equal(places, c.places) || !same {
			t.Errorf("%s: places %v, open %v", name, places, open)
		}
	}
}

func TestNobodyIsSentToAReaderThatHasPassed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		minute := rapid.IntRange(0, 100)
		cursors := rapid.SliceOf(rapid.Custom(func(t *rapid.T) plan.Cursor {
			return plan.Cursor{Open: at(minute.Draw(t, "open")), Session: rapid.Bool().Draw(t, "session")}
		})).Draw(t, "cursors")
		readers := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) plan.Reader {
			base := minute.Draw(t, "base")
			return plan.Reader{Base: at(base), End: at(base + minute.Draw(t, "length"))}
		}), 0, 4).Draw(t, "readers")
		limits := plan.Limits{Budget: rapid.IntRange(1, 6).Draw(t, "budget"), Neighbourhood: 5 * time.Minute}
		places, open := plan.Assign(cursors, readers, limits)
		if len(open) > 0 && len(readers)+len(open) > limits.Budget {
			t.Fatalf("%d readers with a budget of %d", len(readers)+len(open), limits.Budget)
		}
		for i, place := range places {
			switch {
			case place == plan.Nowhere:
			case place < len(readers):
				if readers[place].Base.After(cursors[i].Open) {
					t.Fatalf("cursor at %v is sent to a ring that begins at %v", cursors[i].Open, readers[place].Base)
				}
			default:
				if open[place-len(readers)].After(cursors[i].Open) {
					t.Fatalf("cursor at %v is sent to a reader opened at %v", cursors[i].Open, open[place-len(readers)])
				}
			}
		}
	})
}
