package lane_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/lane"
	"github.com/mongostream/streamer/lane/lanetest"
)

// What the log no longer holds is told with where reading really goes on, and then everything comes that it still has: also where the oldest
// entry cannot be opened, and where the log wraps beside the openings.
func TestReadingGoesOnAtTheEarliestPlaceThatHolds(t *testing.T) {
	for _, c := range []struct {
		strict bool
		wraps  int
		least  int // events of the 50 that are there at first
	}{{false, 0, 50}, {true, 0, 49}, {false, 2, 25}, {true, 2, 25}, {true, 5, 15}} {
		t.Run(fmt.Sprintf("strict %v, %d wrap at each opening", c.strict, c.wraps), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				source := &lanetest.Log{ReplyEvents: 10, Strict: c.strict}
				events := source.Append(inserts(100, 0)...)
				l, end := begin(t, lane.Config{}, source, change.Position{})
				defer end()
				synctest.Wait()
				source.Truncate(50)
				source.Wraps = c.wraps
				from := events[10].Position()
				for name, cursor := range map[string]*lane.Cursor{"lane": l.Lane(0, lane.Start{Position: from}), "session": l.All(lane.Start{Position: from})} {
					_, err := cursor.Next(t.Context())
					lost, ok := errors.AsType[*lane.LostError](err)
					if !ok || !errors.Is(err, lane.ErrPositionLost) || lost.Onward.IsZero() {
						t.Fatalf("%s: %v", name, err)
					}
					if at := cursor.Position(); at.Compare(from) != 0 {
						t.Errorf("%s: the cursor is at %v before the loss has been taken", name, at)
					}
					left := 0
					for left < len(events) && !events[left].Position().After(lost.Onward) {
						left++
					}
					if n := len(events) - left; n < c.least {
						t.Errorf("%s: goes on at %v, with %d events", name, lost.Onward, n)
					}
					if name == "lane" {
						if _, err := next(t, cursor); err != nil {
							t.Error(err)
						}
					} else if err := same(read(t, cursor, len(events)-left), positions(events[left:])); err != nil {
						t.Errorf("%s: %v", name, err)
					}
					cursor.Close()
				}
			})
		})
	}
}

// next reads one batch, within a time.
func next(t *testing.T, c *lane.Cursor) (*lane.Batch, error) {
	t.Helper()
	c.Alarm(change.Timestamp{T: 1})
	return c.Next(t.Context())
}

// Nobody is told of a loss twice, and who stands behind it is told of none.
func TestLossIsToldOnceAndOnlyToWhoHasIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &lanetest.Log{ReplyEvents: 10, Strict: true}
		events := source.Append(inserts(100, 0)...)
		l, end := begin(t, lane.Config{}, source, change.Position{})
		defer end()
		synctest.Wait()
		source.Truncate(50)
		var cursors []*lane.Cursor
		for i := range 100 {
			cursors = append(cursors, l.All(lane.Start{Position: events[i].Position()}))
		}
		for i, c := range cursors {
			losses, want := 0, 99-i
			if i < 50 {
				want = 49
			}
			for got := 0; got < want; {
				b, err := c.Next(t.Context())
				if lost, ok := errors.AsType[*lane.LostError](err); ok && !lost.Onward.IsZero() {
					losses++
					continue
				}
				if err != nil {
					t.Fatalf("cursor %d: %v", i, err)
				}
				got += b.Len()
			}
			if (losses == 1) != (i <= 50) || losses > 1 { // number 50 stands at the oldest event, which an older server cannot open
				t.Errorf("cursor %d is told of %d losses", i, losses)
			}
			c.Close()
		}
	})
}

// What is lost while it is read is looked for behind it at once; whoever reads it stays where it was until it has taken the loss.
func TestLogThatWrapsPastAReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &lanetest.Log{ReplyEvents: 10, Strict: true}
		events := source.Append(inserts(1000, 0)...)
		l, end := begin(t, lane.Config{PrefetchBytes: 1}, source, change.Position{})
		defer end()
		synctest.Wait()
		c := l.All(lane.Start{Position: change.At(events[0].Time)})
		if err := same(read(t, c, 20), positions(events[:20])); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		source.Truncate(500)
		got := 20
		var lost *lane.LostError
		for lost == nil {
			b, err := c.Next(t.Context())
			if err != nil {
				var ok bool
				if lost, ok = errors.AsType[*lane.LostError](err); !ok {
					t.Fatal(err)
				}
				continue
			}
			got += b.Len()
		}
		if at := c.Position(); at.Compare(events[got-1].Position()) != 0 {
			t.Errorf("after %d events at %v", got, at)
		}
		if lost.Onward.Compare(change.At(events[501].Time)) != 0 {
			t.Errorf("goes on at %v", lost.Onward)
		}
		if err := same(read(t, c, 499), positions(events[501:])); err != nil {
			t.Error(err)
		}
	})
}

func TestEarliest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for strict, want := range map[bool]uint32{false: 51, true: 52} {
			source := &lanetest.Log{Strict: strict}
			source.Append(inserts(100, 0)...)
			source.Truncate(50)
			first, _ := source.Reach()
			if at, err := lane.Earliest(t.Context(), source, first); err != nil || at.I != want {
				t.Errorf("strict %v: %v, %v", strict, at, err)
			}
			if open, _, _ := source.Streams(); open != 0 {
				t.Errorf("%d streams are left open", open)
			}
		}
	})
}
