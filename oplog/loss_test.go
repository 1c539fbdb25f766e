package oplog_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/change/changetest"
	"github.com/mongostream/streamer/gap"
	"github.com/mongostream/streamer/oplog"
	"github.com/mongostream/streamer/oplog/oplogtest"
)

// What the oplog no longer holds is an entry in its place, bounded by where reading could go on:
// for those who needed it, clipped to where each of them is. Whoever is later reads on as if
// nothing had happened, and nobody else hears of it.
func TestLostHistoryIsAnEntryInItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{ReplyEvents: 10}
		events := source.Append(inserts(100, 0)...)
		source.Truncate(50)
		var losses []oplog.Loss
		l, end := beginLog(t, oplog.Config{Namespaces: []string{"shop.orders"}, Lost: told(&losses)}, source, change.Position{})
		defer end()
		synctest.Wait()
		older, old := l.Cursor(oplog.Start{Position: events[10].Position()}), l.Cursor(oplog.Start{Position: events[20].Position()})
		fine := l.Cursor(oplog.Start{Position: events[60].Position()})
		for c, from := range map[*oplog.Cursor]change.Position{older: events[10].Position(), old: events[20].Position()} {
			got := read(t, c, 51)
			loss := got[0].loss
			if loss == nil || loss.Tail || loss.Reason != gap.HistoryLost || loss.From.Compare(from) != 0 || loss.To.Compare(change.At(events[50].Time)) != 0 || !slices.Equal(loss.Namespaces, []string{"shop.orders"}) {
				t.Errorf("from %v: %+v", from, loss)
			}
			if err := same(got[1:], positions(events[50:])); err != nil {
				t.Errorf("from %v: %v", from, err)
			}
		}
		if err := same(read(t, fine, 39), positions(events[61:])); err != nil {
			t.Error(err)
		}
		if len(losses) != 0 {
			t.Errorf("everybody is told of %+v", losses)
		}
	})
}

// The oldest entry of an oplog cannot be opened before MongoDB 5.0, and under writes it is
// truncated between the look and the opening. Reading goes on at the earliest place that the server
// accepts, and never at the end while there is something earlier.
func TestReadingGoesOnAtTheEarliestPlaceThatTheServerAccepts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{ReplyEvents: 10, Strict: true}
		events := source.Append(inserts(1000, 0)...)
		source.Truncate(500)
		l, end := beginLog(t, oplog.Config{}, source, change.Position{})
		defer end()
		synctest.Wait()
		c := l.Cursor(oplog.Start{Position: events[10].Position()})
		got := read(t, c, 400)
		loss := got[0].loss
		if loss == nil || loss.To.Compare(change.At(events[501].Time)) != 0 {
			t.Fatalf("%+v, the log begins at %v", loss, events[500].Time)
		}
		if err := same(got[1:], positions(events[501:][:len(got)-1])); err != nil {
			t.Error(err)
		}
	})
}

func TestTailThatIsRefusedReadsOnWhereItWas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{ReplyEvents: 10}
		source.Tick(1)
		var losses []oplog.Loss
		l, end := beginLog(t, oplog.Config{Lost: told(&losses)}, source, change.Position{})
		defer end()
		synctest.Wait()
		c := l.Cursor(oplog.Start{Live: true})
		source.Append(inserts(5, 0)...)
		read(t, c, 5)
		source.FailNext(oplog.ErrPositionLost)
		synctest.Wait()
		more := source.Append(inserts(5, 5)...)
		if err := same(read(t, c, 5), positions(more)); err != nil { // the log still has everything
			t.Error(err)
		}
		source.Stall(true)
		lost := source.Append(inserts(5, 10)...)
		source.Append(inserts(5, 15)...)
		source.Truncate(5)
		source.Stall(false)
		got := read(t, c, 6)
		if loss := got[0].loss; loss == nil || !loss.Tail || loss.From.Compare(more[4].Position()) != 0 || !loss.To.After(lost[4].Position()) {
			t.Errorf("%+v", loss)
		}
		if len(losses) != 1 || !losses[0].Tail {
			t.Errorf("everybody is told of %+v", losses)
		}
	})
}

// A server that refuses one position for good, although its log holds it, costs the stretch up to
// where it accepts one. A server that refuses everything says nothing of what it has: it is waited
// for, and nothing is lost.
func TestServerThatRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &refusing{Log: &oplogtest.Log{ReplyEvents: 10}}
		source.Tick(1)
		events := source.Append(inserts(20, 0)...)
		source.Tick(100)
		var losses []oplog.Loss
		l, end := begin(t, oplog.Config{Lost: told(&losses)}, source, source.Reach, change.Position{})
		defer end()
		synctest.Wait()

		source.refuse(func(change.Position) bool { return true })
		c := l.Cursor(oplog.Start{Position: events[3].Position()})
		for range 3600 {
			time.Sleep(time.Second)
			if b, err := c.Poll(); b != nil || err != nil {
				t.Fatalf("%+v, %v", b, err)
			}
		}
		source.refuse(nil)
		if err := same(read(t, c, 16), positions(events[4:])); err != nil || len(losses) != 0 {
			t.Errorf("%v, told of %v", err, losses)
		}

		c.Close() // and with it the catch-up, whose ring has it all
		synctest.Wait()
		source.refuse(func(p change.Position) bool { return p.Time.Compare(events[10].Time) <= 0 })
		c = l.Cursor(oplog.Start{Position: events[3].Position()})
		more := source.Append(inserts(2, 20)...)
		got := read(t, c, 3)
		if err := same(got[1:], positions(more)); err != nil {
			t.Error(err)
		}
		if loss := got[0].loss; loss == nil || loss.Reason != gap.Refused || loss.From.Compare(events[3].Position()) != 0 || !loss.To.After(events[10].Position()) {
			t.Errorf("%+v", loss)
		}
	})
}

// A server that refuses everything for a while, and accepts positions again just while a later
// place is looked for, has lost nothing.
func TestServerThatAcceptsPositionsAgainHasLostNothing(t *testing.T) {
	for after := range 20 {
		synctest.Test(t, func(t *testing.T) {
			source := &refusing{Log: &oplogtest.Log{ReplyEvents: 10}}
			source.Tick(1)
			events := source.Append(inserts(20, 0)...)
			source.Tick(100)
			var losses []oplog.Loss
			l, end := begin(t, oplog.Config{Lost: told(&losses)}, source, source.Reach, change.Position{})
			defer end()
			synctest.Wait()
			var openings atomic.Int64
			source.refuse(func(change.Position) bool { return openings.Add(1) <= int64(after) })
			c := l.Cursor(oplog.Start{Position: events[3].Position()})
			if err := same(read(t, c, 16), positions(events[4:])); err != nil || len(losses) != 0 {
				t.Errorf("after %d openings: %v, told of %v", after, err, losses)
			}
		})
	}
}

// A refusing source opens nothing that it is told to refuse.
type refusing struct {
	*oplogtest.Log

	refuses atomic.Pointer[func(change.Position) bool]
}

func (r *refusing) refuse(f func(change.Position) bool) {
	if f == nil {
		f = func(change.Position) bool { return false }
	}
	r.refuses.Store(&f)
}

func (r *refusing) Open(ctx context.Context, from change.Position) (oplog.Stream, error) {
	if f := r.refuses.Load(); f != nil && (*f)(from) {
		return nil, fmt.Errorf("open at %s: %w", from, oplog.ErrPositionLost)
	}
	return r.Log.Open(ctx, from)
}

// A position later than MongoDB's own time is of another log: no cursor goes on from there.
func TestPositionAheadOfMongoDB(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{}
		events := source.Append(inserts(3, 0)...)
		l, end := beginLog(t, oplog.Config{}, source, change.Position{})
		defer end()
		synctest.Wait()
		ahead := l.Cursor(oplog.Start{Position: change.At(change.Timestamp{T: 5000, I: 1})})
		soon := l.Cursor(oplog.Start{Position: change.At(change.Timestamp{T: 1010, I: 1})}) // saved by a node that reads from another server
		first, last := source.Reach()
		l.SetReach(gap.Reach{First: first, Last: last}, change.Timestamp{})
		if _, err := ahead.Next(t.Context()); !errors.Is(err, oplog.ErrAhead) {
			t.Errorf("%v", err)
		}
		fine := l.Cursor(oplog.Start{Position: events[0].Position()})
		if err := same(read(t, fine, 2), positions(events[1:])); err != nil {
			t.Error(err)
		}
		source.Append(changetest.Event{ID: 4, Time: change.Timestamp{T: 1009, I: 1}})
		later := source.Append(changetest.Event{ID: 5, Time: change.Timestamp{T: 1011, I: 1}})
		if err := same(read(t, soon, 1), positions(later)); err != nil {
			t.Error(err)
		}
	})
}

// Cluster time jumps where nothing proves the stream to be continuous: the stretch is read again,
// and what was missed comes in its place.
func TestSuspectJumpIsReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{}
		source.Tick(1)
		var losses []oplog.Loss
		registry := prometheus.NewRegistry()
		l, end := beginLog(t, oplog.Config{Lost: told(&losses), Registerer: registry}, source, change.Position{})
		defer end()
		synctest.Wait()
		c := l.Cursor(oplog.Start{Live: true})
		first := source.Append(inserts(2, 0)...)
		read(t, c, 2)
		if n := rescanned(t, registry); n != 0 {
			t.Errorf("%v events of stretches that were read again, before one was", n)
		}
		source.Hide(true) // what is appended now the stream does not show, but a new one does
		hidden := source.Append(inserts(2, 2)...)
		source.Hide(false)
		source.Tick(3600)
		source.Suspect()
		last := source.Append(inserts(2, 4)...)
		if err := same(read(t, c, 4), positions(append(hidden, last...))); err != nil {
			t.Errorf("%v after %v", err, first)
		}
		if n := rescanned(t, registry); n != float64(len(hidden)+1) { // and the one at which the jump was seen
			t.Errorf("%v events of the stretch that was read again, want %d", n, len(hidden)+1)
		}
		source.Tick(3600)
		source.Suspect() // quiet, and shown again: accepted
		last = source.Append(inserts(2, 6)...)
		if err := same(read(t, c, 2), positions(last)); err != nil {
			t.Error(err)
		}
		if _, _, opened := source.Streams(); opened != 3 || len(losses) != 0 {
			t.Errorf("%d streams opened, told of %v", opened, losses)
		}
	})
}

// rescanned returns how many events of stretches that were read again are counted.
func rescanned(t *testing.T, registry *prometheus.Registry) float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "streamer_rescan_events_total" {
			return f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	t.Fatal("there is no streamer_rescan_events_total")
	return 0
}

// A quiet hour is no jump, and neither is one after a proven reopening.
func TestQuietHoursAreNoJumps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{}
		source.Tick(1)
		l, end := beginLog(t, oplog.Config{}, source, change.Position{})
		defer end()
		synctest.Wait()
		c := l.Cursor(oplog.Start{Live: true})
		source.Tick(7200)
		events := source.Append(inserts(2, 0)...)
		if err := same(read(t, c, 2), positions(events)); err != nil {
			t.Error(err)
		}
		if _, _, opened := source.Streams(); opened != 1 {
			t.Errorf("%d streams opened", opened)
		}
	})
}

// An event that MongoDB could not deliver is a loss of one place. A rename onto a watched
// collection is a loss right before its event, which comes again for whoever has not read the
// event.
func TestPoisonAndRenamesAreLossesInTheirPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{}
		source.Tick(1)
		l, end := beginLog(t, oplog.Config{Namespaces: []string{"shop.orders"}}, source, change.Position{})
		defer end()
		synctest.Wait()
		start := l.End()
		events := source.Append(
			changetest.Event{ID: 1}, changetest.Event{Op: change.SkippedName, Keyless: true}, changetest.Event{ID: 2},
			changetest.Event{Op: "rename", Coll: "other", To: "orders", Keyless: true}, changetest.Event{ID: 3},
			changetest.Event{Op: "rename", Coll: "other", To: "elsewhere", Keyless: true}, changetest.Event{Op: change.SkippedName, Keyless: true})
		at := positions(events)
		for skip := range len(events) {
			from := start
			if skip > 0 {
				from = at[skip-1]
			}
			var want []string
			for i, e := range events[skip:] {
				switch {
				case e.Op == change.SkippedName:
					want = append(want, "poison at "+at[skip+i].String())
				case e.To == "orders":
					before := start
					if i+skip > 0 {
						before = at[skip+i-1]
					}
					want = append(want, "renamed at "+before.String(), at[skip+i].String())
				default:
					want = append(want, at[skip+i].String())
				}
			}
			var got []string
			for _, e := range read(t, l.Cursor(oplog.Start{Position: from}), len(want)) {
				if e.loss != nil {
					got = append(got, fmt.Sprintf("%s at %s", e.loss.Reason, e.loss.To))
				} else {
					got = append(got, e.at.String())
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("from %s:\n%q\nwant\n%q", from, got, want)
			}
		}
	})
}

// A wrapping source is a log that wraps right after a stream has been answered so often.
type wrapping struct {
	*oplogtest.Log

	answers int
}

func (w *wrapping) Open(ctx context.Context, from change.Position) (oplog.Stream, error) {
	s, err := w.Log.Open(ctx, from)
	return &wrappingStream{s, w}, err
}

type wrappingStream struct {
	oplog.Stream

	source *wrapping
}

func (s *wrappingStream) Next(ctx context.Context) (oplog.Reply, error) {
	if s.source.answers--; s.source.answers == -1 {
		s.source.Truncate(1)
		return oplog.Reply{}, oplog.ErrPositionLost
	}
	return s.Stream.Next(ctx)
}

// What had been read when the log wrapped is not lost, whether or not anybody has looked at it.
func TestWhatHadBeenReadWhenTheLogWrappedIsNotLost(t *testing.T) {
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			source := &wrapping{&oplogtest.Log{ReplyEvents: 10}, 1000}
			source.Tick(1)
			source.Stall(true)
			l, end := begin(t, oplog.Config{}, source, source.Reach, change.Position{})
			defer end()
			synctest.Wait()
			c := l.Cursor(oplog.Start{Live: true})
			events := source.Append(inserts(60, 0)...)
			source.answers = 2 // beside the one that is waited for
			source.Stall(false)
			var got []entry
			lost := func() int { return slices.IndexFunc(got, func(e entry) bool { return e.loss != nil }) }
			for lost() < 0 {
				got = append(got, next(t, c)...)
			}
			if err := same(got[:lost()], positions(events[:30])); err != nil {
				t.Fatal(err)
			}
			if loss := got[lost()].loss; loss.From.Compare(events[29].Position()) != 0 {
				t.Fatalf("lost from %s on, read was up to %s", loss.From, events[29].Position())
			}
		})
	}
}

// A jump that is not above MaxGap is believed.
func TestJumpWithinMaxGapIsNoSuspicion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{}
		source.Tick(1)
		l, end := beginLog(t, oplog.Config{MaxGap: 2 * time.Hour}, source, change.Position{})
		defer end()
		synctest.Wait()
		c := l.Cursor(oplog.Start{Live: true})
		source.Append(inserts(2, 0)...)
		read(t, c, 2)
		source.Tick(3600)
		source.Suspect()
		last := source.Append(inserts(2, 2)...)
		if err := same(read(t, c, 2), positions(last)); err != nil {
			t.Error(err)
		}
		if _, _, opened := source.Streams(); opened != 1 {
			t.Errorf("%d streams opened", opened)
		}
	})
}
