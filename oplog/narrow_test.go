package oplog_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/change/changetest"
	"github.com/mongostream/streamer/gap"
	"github.com/mongostream/streamer/oplog"
	"github.com/mongostream/streamer/oplog/oplogtest"
)

// A narrowing source retains everything before a time in lanes: who asks for some namespaces gets
// nothing else of it. It counts its other streams.
type narrowing struct {
	*oplogtest.Log

	until      change.Timestamp
	open, most *atomic.Int32
}

func newNarrowing(log *oplogtest.Log, until uint32) narrowing {
	return narrowing{log, change.Timestamp{T: until}, &atomic.Int32{}, &atomic.Int32{}}
}

// reach is the extent of a log that has lost what is retained.
func (s narrowing) reach() gap.Reach {
	return gap.Reach{First: s.until, Retained: change.Timestamp{T: 1}, Last: change.Timestamp{T: 1 << 30}}
}

func (s narrowing) Open(ctx context.Context, from change.Position) (oplog.Stream, error) {
	stream, err := s.Log.Open(ctx, from)
	if err != nil {
		return nil, err
	}
	s.most.Store(max(s.most.Load(), s.open.Add(1)))
	return counted{stream, s.open}, nil
}

type counted struct {
	oplog.Stream

	open *atomic.Int32
}

func (s counted) Close() {
	s.open.Add(-1)
	s.Stream.Close()
}

func (s narrowing) OpenNarrow(ctx context.Context, from change.Position, scope oplog.Scope, left bool) (oplog.Stream, bool, error) {
	switch has := from.Time.Compare(s.until) < 0; {
	case has:
		stream, err := s.Log.Open(ctx, from)
		return &narrowed{stream, scope, s.until, from.Time}, true, err
	case left:
		return nil, false, oplog.ErrJoin
	}
	stream, err := s.Open(ctx, from)
	return stream, false, err
}

type narrowed struct {
	oplog.Stream

	scope     oplog.Scope
	until, at change.Timestamp
}

func (s *narrowed) Next(ctx context.Context) (oplog.Reply, error) {
	if s.at.Compare(s.until) >= 0 {
		return oplog.Reply{}, oplog.ErrJoin
	}
	reply, err := s.Stream.Next(ctx)
	reply.Retained = true
	if s.at = reply.End.Time; len(reply.Events) > 0 {
		e, err := change.Parse(reply.Events[len(reply.Events)-1])
		if err != nil {
			return reply, err
		}
		s.at = e.Time()
	}
	reply.Events = slices.DeleteFunc(reply.Events, func(raw []byte) bool {
		e, err := change.Parse(raw)
		return err == nil && !s.scope.Concerns(e.Namespace().String())
	})
	return reply, err
}

// A narrowStep is a step of narrowDrive: what is done, and with what.
type narrowStep struct {
	do   string
	n, m int
}

// A reader of some namespaces.
type narrowFollower struct {
	cursor *oplog.Cursor
	scope  oplog.Scope
	want   []change.Position // that it has not read yet
	fault  error
}

// read reads one batch, and compares what it has of the scope.
func (f *narrowFollower) read(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	b, err := f.cursor.Next(ctx)
	if err != nil {
		return // nothing new
	}
	for i := range b.Len() {
		e := b.Event(i)
		if !f.scope.Concerns(e.Namespace().String()) {
			continue
		}
		if f.fault == nil && (len(f.want) == 0 || f.want[0].Compare(e.Position()) != 0) {
			f.fault = fmt.Errorf("%d changes before the end another one comes: %s", len(f.want), e.Position())
		}
		f.want = f.want[min(1, len(f.want)):]
	}
}

// narrowDrive lets cursors with scopes come and go.
func narrowDrive(t *testing.T, streams, until int, steps []narrowStep) error {
	source := newNarrowing(&oplogtest.Log{ReplyEvents: 5}, uint32(1000+until))
	source.Tick(1)
	written := func(n, m int) (events []changetest.Event) {
		for i := range n {
			events = append(events, changetest.Event{ID: int64(i), Coll: fmt.Sprint("c", (m+i*i)%5)})
		}
		return source.Append(events...)
	}
	all := written(40, 0)
	l, end := begin(t, oplog.Config{RingBytes: 4_000, PrefetchBytes: 2_000, MaxStreams: streams, Neighbourhood: time.Second}, source, source.Reach, change.Position{})
	defer end()
	l.SetReach(source.reach(), change.Timestamp{})
	synctest.Wait()
	var followers []*narrowFollower
	append1 := func(events []changetest.Event) {
		all = append(all, events...)
		for _, f := range followers {
			f.expect(events)
		}
	}
	for _, s := range steps {
		switch {
		case s.do == "append":
			append1(written(s.n, s.m))
		case s.do == "tick":
			source.Tick(uint32(s.n) + 1)
		case s.do == "wait":
			synctest.Wait()
		case s.do == "follow":
			f := &narrowFollower{}
			for i := range s.n % 3 { // none is everything
				f.scope = append(f.scope, change.Namespace{DB: "shop", Coll: fmt.Sprint("c", (s.m+i)%5)})
			}
			if s.n%7 == 0 {
				f.scope = oplog.Scope{{DB: "shop"}}
			}
			from := (s.m * 7) % len(all)
			f.expect(all[from+1:])
			f.cursor = l.Cursor(oplog.Start{Position: all[from].Position(), Scope: f.scope})
			followers = append(followers, f)
		case len(followers) > 0 && s.do == "read":
			followers[s.m%len(followers)].read(t)
		case len(followers) > 0 && s.do == "leave":
			followers[s.m%len(followers)].cursor.Close()
			followers = slices.Delete(followers, s.m%len(followers), s.m%len(followers)+1)
		}
	}
	for i, f := range followers {
		for tries := 0; len(f.want) > 0 && f.fault == nil && tries < 300; tries++ {
			f.read(t)
		}
		if f.fault != nil || len(f.want) > 0 {
			return fmt.Errorf("follower %d of %v: %w, %d changes are missing (%+v)", i, f.scope, f.fault, len(f.want), l.Stats())
		}
		f.cursor.Close()
	}
	if most := source.most.Load(); int(most) > streams {
		return fmt.Errorf("%d streams of MongoDB at a time", most)
	}
	if _, most, _ := source.Streams(); most > 2*streams-1 {
		return fmt.Errorf("%d streams at a time", most)
	}
	return nil
}

// expect adds what the follower must get of some changes.
func (f *narrowFollower) expect(events []changetest.Event) {
	for _, e := range events {
		if f.scope.Concerns("shop." + e.Coll) {
			f.want = append(f.want, e.Position())
		}
	}
}

// Cursors of different namespaces share streams that leave out what none of them reads: each gets
// everything of its own, once and in order, whoever comes and goes meanwhile.
func TestCursorsMissNothingOfTheirNamespaces(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		streams := rapid.IntRange(2, 5).Draw(rt, "streams")
		until := rapid.SampledFrom([]int{0, 5, 30, 1000}).Draw(rt, "lanes until")
		steps := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) narrowStep {
			return narrowStep{
				do: rapid.SampledFrom([]string{"append", "append", "follow", "follow", "follow", "read", "read", "read", "leave", "tick", "wait"}).Draw(rt, "do"),
				n:  rapid.IntRange(0, 30).Draw(rt, "n"), m: rapid.IntRange(0, 1000).Draw(rt, "m"),
			}
		}), 1, 60).Draw(rt, "steps")
		var err error
		synctest.Test(t, func(t *testing.T) { err = narrowDrive(t, streams, until, steps) })
		if err != nil {
			rt.Fatal(err)
		}
	})
}

// A bounded source is narrowing, and fails if more streams are opened for some namespaces than a
// number.
type bounded struct {
	narrowing

	left atomic.Int32
}

func (s *bounded) OpenNarrow(ctx context.Context, from change.Position, scope oplog.Scope, left bool) (oplog.Stream, bool, error) {
	if scope != nil && s.left.Add(-1) < 0 {
		return nil, false, errors.New("streams are opened again and again")
	}
	return s.narrowing.OpenNarrow(ctx, from, scope, left)
}

// crowd has a stream of everything, one of the collection c0, and no room for another one. It
// returns the cursor of c0, and the changes of c0 and c1.
func crowd(t *testing.T, source *bounded) (l *oplog.Log, c0 *oplog.Cursor, of [2][]change.Position, end func()) {
	t.Helper()
	source.Tick(1)
	for i := range 20 {
		e := source.Append(changetest.Event{ID: int64(i), Coll: fmt.Sprint("c", i%2)})[0]
		of[i%2] = append(of[i%2], e.Position())
	}
	source.Tick(3600)
	_, later := source.Reach()
	source.Append(inserts(5, 100)...)
	source.Tick(3600)
	l, end = begin(t, oplog.Config{MaxStreams: 3}, source, source.Reach, change.Position{})
	l.SetReach(source.reach(), change.Timestamp{})
	synctest.Wait()
	next(t, l.Cursor(oplog.Start{Position: change.At(later)}))
	c0 = l.Cursor(oplog.Start{Position: change.At(change.Timestamp{T: 1000, I: 1}), Scope: oplog.Scope{{DB: "shop", Coll: "c0"}}})
	if first := next(t, c0); first[0].at.Compare(of[0][0]) != 0 {
		t.Fatalf("the first change is %s", first[0].at)
	}
	time.Sleep(time.Millisecond)
	return l, c0, of, end
}

// all reads the changes of a collection, and nothing else of it.
func all(t *testing.T, c *oplog.Cursor, coll string, want []change.Position) {
	t.Helper()
	for len(want) > 0 {
		b, err := c.Next(t.Context())
		if err != nil {
			t.Errorf("%s: %v", coll, err)
			return
		}
		for i := range b.Len() {
			e := b.Event(i)
			if e.Namespace().Coll != coll {
				continue
			}
			if len(want) == 0 || want[0].Compare(e.Position()) != 0 {
				t.Errorf("%s: %d changes before the end another one comes: %s", coll, len(want), e.Position())
				return
			}
			want = want[1:]
		}
	}
}

// Where there is no room for another stream, cursors of different namespaces share one of
// everything: they do not end each other's streams in turn.
func TestCursorsOfDifferentNamespacesUnite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &bounded{narrowing: newNarrowing(&oplogtest.Log{ReplyEvents: 2, Delay: 100 * time.Millisecond}, 9000)}
		source.left.Store(20)
		l, c0, of, end := crowd(t, source)
		defer end()
		c1 := l.Cursor(oplog.Start{Position: of[1][3], Scope: oplog.Scope{{DB: "shop", Coll: "c1"}}})
		var reading sync.WaitGroup
		begun := time.Now()
		reading.Go(func() { all(t, c0, "c0", of[0][1:]) })
		reading.Go(func() { all(t, c1, "c1", of[1][4:]) })
		reading.Wait()
		if took := time.Since(begun); took > 10*time.Second { // one waited for the other
			t.Errorf("read after %s", took)
		}
	})
}

// A cursor that reads anew ends no stream that it could not share.
func TestCursorsUniteOnlyWhereTheyCanShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &bounded{narrowing: newNarrowing(&oplogtest.Log{ReplyEvents: 2, Delay: 100 * time.Millisecond}, 9000)}
		source.left.Store(1)
		l, c0, of, end := crowd(t, source)
		defer end()
		c1 := l.Cursor(oplog.Start{
			Position: of[1][3], Scope: oplog.Scope{{DB: "shop", Coll: "c1"}}, Reread: oplog.Reread{Since: time.Now(), Until: of[1][9].Time},
		})
		all(t, c1, "c1", of[1][4:])
		synctest.Wait()
		if open, _, _ := source.Streams(); open != 3 {
			t.Errorf("%d streams are open", open)
		}
		all(t, c0, "c0", of[0][1:])
	})
}

// For a cursor that cannot wait, and that could also share a stream but for its scope, one stream
// is ended and not two.
func TestOneStreamIsEndedAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &bounded{narrowing: newNarrowing(&oplogtest.Log{ReplyEvents: 2, Delay: 100 * time.Millisecond}, 9000)}
		source.left.Store(20)
		l, c0, of, end := crowd(t, source)
		defer end()
		l.SetReach(source.reach(), change.Timestamp{T: 2000})
		c1 := l.Cursor(oplog.Start{Position: of[1][3], Scope: oplog.Scope{{DB: "shop", Coll: "c1"}}})
		all(t, c1, "c1", of[1][4:])
		synctest.Wait()
		if open, most, opened := source.Streams(); open != 3 || most != 3 || opened != 4 {
			t.Errorf("%d streams are open, %d were at most, %d were opened", open, most, opened)
		}
		all(t, c0, "c0", of[0][1:])
	})
}

// A catch-up that has read the retained log to its end waits for one of MongoDB's streams, and
// continues when another catch-up has ended.
func TestRetainedLogIsLeftWithinTheBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := newNarrowing(&oplogtest.Log{ReplyEvents: 2}, 1100)
		source.Tick(1)
		old := source.Append(inserts(10, 0)...)
		source.Tick(3600)
		recent := source.Append(inserts(50, 100)...)
		source.Tick(3600)
		l, end := begin(t, oplog.Config{RingBytes: 4_000, PrefetchBytes: 1_000, MaxStreams: 2}, source, source.Reach, change.Position{})
		defer end()
		l.SetReach(source.reach(), change.Timestamp{})
		synctest.Wait()
		slow := l.Cursor(oplog.Start{Position: recent[0].Position()})
		next(t, slow)
		late := l.Cursor(oplog.Start{Position: old[0].Position()})
		defer late.Close()
		read := 0
		poll := func() {
			for {
				synctest.Wait()
				b, err := late.Poll()
				if err != nil {
					t.Fatal(err)
				}
				if b == nil {
					return
				}
				read += b.Len()
			}
		}
		if poll(); read < len(old)-1 || read >= len(old)+len(recent)-1 {
			t.Errorf("%d changes were read while there was no stream", read)
		}
		if s := l.Stats(); s.Retained != 1 || s.Streams != 2 {
			t.Errorf("%+v", s)
		}
		slow.Close()
		if poll(); read != len(old)+len(recent)-1 {
			t.Errorf("%d changes were read", read)
		}
		if most := source.most.Load(); most > 2 {
			t.Errorf("%d streams of MongoDB at a time", most)
		}
	})
}

// The retained log has documents as they were looked up long ago: it serves no cursor that reads
// anew what MongoDB still has.
func TestWhatMongoDBHasIsNotReadAnewFromTheRetainedLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := newNarrowing(&oplogtest.Log{ReplyEvents: 2}, 4000)
		source.Tick(1)
		old := source.Append(inserts(50, 100)...)
		source.Tick(3600)
		recent := source.Append(inserts(50, 100)...)
		source.Tick(3600)
		l, end := begin(t, oplog.Config{RingBytes: 4_000, PrefetchBytes: 1_000, Neighbourhood: 3 * time.Hour}, source, source.Reach, change.Position{})
		defer end()
		l.SetReach(source.reach(), change.Timestamp{})
		late := l.Cursor(oplog.Start{Position: old[0].Position()})
		defer late.Close()
		next(t, late)
		anew := l.Cursor(oplog.Start{Position: recent[0].Position(), Reread: oplog.Reread{Since: time.Now().Add(-time.Hour), Until: recent[49].Time}})
		defer anew.Close()
		next(t, anew)
		if s := l.Stats(); s.Retained != 1 || s.Streams != 2 {
			t.Errorf("%+v", s)
		}
	})
}

// However far apart cursors are, and whatever is known of the retained log, the number of readers
// is bounded, and all get everything. One that cannot wait gets a stream of MongoDB.
func TestReadersOfTheRetainedLogAreBounded(t *testing.T) {
	const maxStreams, retained = 3, 2
	for name, c := range map[string]struct {
		reach func(*gap.Reach)
		most  int
	}{
		"it reaches the oplog":        {func(*gap.Reach) {}, retained},
		"it does not reach the oplog": {func(r *gap.Reach) { r.Retained = change.Timestamp{} }, retained},
		"it is not known what it has": {func(r *gap.Reach) { *r = gap.Reach{Last: r.Last} }, 2 * retained},
		"readers leave the oplog":     {func(r *gap.Reach) { r.First.T = 10 * 3600 }, 2 * retained},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				source := newNarrowing(&oplogtest.Log{ReplyEvents: 1, Delay: 100 * time.Millisecond}, 30*3600)
				source.Tick(1)
				var events []changetest.Event
				for i := range 40 {
					source.Tick(3600)
					events = append(events, source.Append(changetest.Event{ID: int64(i)})...)
				}
				l, end := begin(t, oplog.Config{MaxStreams: maxStreams}, source, source.Reach, change.Position{})
				defer end()
				reach := source.reach()
				c.reach(&reach)
				l.SetReach(reach, change.Timestamp{})
				synctest.Wait()
				most := 0
				var reading sync.WaitGroup
				follow := func(from int, reread oplog.Reread) {
					reading.Go(func() {
						cursor := l.Cursor(oplog.Start{Position: events[from].Position(), Reread: reread})
						defer cursor.Close()
						if err := same(read(t, cursor, len(events)-from-1), positions(events[from+1:])); err != nil {
							t.Errorf("cursor %d: %v", from, err)
						}
					})
				}
				for i := range 20 {
					follow(i, oplog.Reread{})
				}
				for range 10 {
					time.Sleep(10 * time.Millisecond)
					most = max(most, l.Stats().Retained)
				}
				_, _, before := source.Streams()
				begun := time.Now()
				anew := l.Cursor(oplog.Start{
					Position: events[35].Position(), Reread: oplog.Reread{Since: time.Now(), Until: events[39].Time},
				})
				if err := same(read(t, anew, 4), positions(events[36:])); err != nil {
					t.Error(err)
				}
				if _, _, opened := source.Streams(); opened != before+1 {
					t.Errorf("for one that cannot wait %d streams were opened", opened-before)
				}
				if took := time.Since(begun); took > time.Second {
					t.Errorf("one that cannot wait has read after %s", took)
				}
				anew.Close()
				reading.Wait()
				if most > c.most {
					t.Errorf("%d readers of the retained log", most)
				}
				if most := source.most.Load(); most > maxStreams {
					t.Errorf("%d streams of MongoDB at a time", most)
				}
				if _, most, _ := source.Streams(); most > 2*maxStreams-1 {
					t.Errorf("%d readers at a time", most)
				}
			})
		})
	}
}

// A cursor that cannot wait has a stream of MongoDB before those that have read the retained log to
// its end: one stream is ended for it, and not one for each of them.
func TestWhoeverCannotWaitGoesBeforeThoseThatJoin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := newNarrowing(&oplogtest.Log{ReplyEvents: 2}, 9000)
		source.Tick(1)
		var old, recent []changetest.Event
		for i := range 4 {
			old = append(old, source.Append(inserts(5, int64(10*i))...)...)
			source.Tick(1000)
		}
		source.Tick(9000)
		for i := range 4 {
			recent = append(recent, source.Append(inserts(50, int64(100*i))...)...)
			source.Tick(1000)
		}
		l, end := begin(t, oplog.Config{RingBytes: 4_000, PrefetchBytes: 1_000, MaxStreams: 3}, source, source.Reach, change.Position{})
		defer end()
		l.SetReach(source.reach(), change.Timestamp{})
		synctest.Wait()
		next(t, l.Cursor(oplog.Start{Position: recent[0].Position()}))
		next(t, l.Cursor(oplog.Start{Position: recent[50].Position()}))
		for _, from := range []int{0, 10} {
			joins := l.Cursor(oplog.Start{Position: old[from].Position()})
			read(t, joins, len(old)-from-1)
			if _, err := joins.Poll(); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if s := l.Stats(); s.Retained != 2 || s.Streams != 3 {
			t.Fatalf("%+v", s)
		}
		time.Sleep(time.Millisecond)
		anew := l.Cursor(oplog.Start{
			Position: recent[120].Position(), Reread: oplog.Reread{Since: time.Now(), Until: recent[199].Time},
		})
		if got := next(t, anew); got[0].at.Compare(recent[121].Position()) != 0 {
			t.Errorf("the first change is %s", got[0].at)
		}
		synctest.Wait()
		if s := l.Stats(); s.Retained != 2 || s.Streams != 3 {
			t.Errorf("%+v", s)
		}
		if _, _, opened := source.Streams(); opened != 6 {
			t.Errorf("%d streams were opened", opened)
		}
		anew.Close() // then one of them joins
		synctest.Wait()
		if s := l.Stats(); s.Retained != 1 || s.Streams != 3 {
			t.Errorf("%+v", s)
		}
	})
}

// Whoever waits to join MongoDB from where the oplog is about to end, because the retained log does
// not have what follows, has a stream before others that can wait. When its client has gone,
// nothing is opened for it.
func TestWhoeverJoinsLateIsNotLeftToWait(t *testing.T) {
	for name, floor := range map[string]change.Timestamp{"late": {T: 9000}, "in turn": {}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				source := newNarrowing(&oplogtest.Log{ReplyEvents: 2}, 1) // it retains nothing
				source.Tick(1)
				early := source.Append(inserts(5, 0)...)
				source.Tick(20_000)
				var recent []changetest.Event
				for i := range 3 {
					recent = append(recent, source.Append(inserts(50, int64(100*(i+1)))...)...)
					source.Tick(1000)
				}
				l, end := begin(t, oplog.Config{RingBytes: 4_000, PrefetchBytes: 1_000, MaxStreams: 3}, source, source.Reach, change.Position{})
				defer end()
				l.SetReach(gap.Reach{First: change.Timestamp{T: 8000}, Last: change.Timestamp{T: 1 << 30}}, floor)
				synctest.Wait()
				next(t, l.Cursor(oplog.Start{Position: recent[0].Position()}))
				next(t, l.Cursor(oplog.Start{Position: recent[50].Position()}))
				_, _, before := source.Streams()

				joins := l.Cursor(oplog.Start{Position: early[0].Position()})
				if floor.IsZero() {
					if _, err := joins.Poll(); err != nil {
						t.Fatal(err)
					}
					synctest.Wait()
					if s := l.Stats(); s.Retained != 1 {
						t.Errorf("it waits: %+v", s)
					}
					joins.Close()
					synctest.Wait()
					if s := l.Stats(); s.Retained != 0 || s.Streams != 3 {
						t.Errorf("its client has gone: %+v", s)
					}
					return
				}
				begun := time.Now()
				if got := next(t, joins); got[0].at.Compare(early[1].Position()) != 0 || time.Since(begun) > time.Second {
					t.Errorf("the first change is %s, after %s", got[0].at, time.Since(begun))
				}
				synctest.Wait()
				if _, _, opened := source.Streams(); opened != before+1 || l.Stats().Streams != 3 {
					t.Errorf("%d streams were opened for it: %+v", opened-before, l.Stats())
				}
			})
		})
	}
}

// Whoever joins late has a stream before those that read anew, which do not take it back.
func TestWhoeverJoinsLateGoesBeforeThoseThatReadAnew(t *testing.T) {
	for range 20 { // whoever asks first
		synctest.Test(t, func(t *testing.T) {
			source := newNarrowing(&oplogtest.Log{ReplyEvents: 2}, 1) // it retains nothing
			source.Tick(1)
			early := source.Append(inserts(5, 0)...)
			source.Tick(20_000)
			recent := source.Append(inserts(500, 100)...)
			source.Tick(1000)
			source.Append(inserts(500, 1000)...)
			l, end := begin(t, oplog.Config{RingBytes: 4_000, PrefetchBytes: 1_000, MaxStreams: 2}, source, source.Reach, change.Position{})
			defer end()
			l.SetReach(gap.Reach{First: change.Timestamp{T: 8000}, Last: change.Timestamp{T: 1 << 30}}, change.Timestamp{T: 9000})
			synctest.Wait()
			anew := l.Cursor(oplog.Start{
				Position: recent[0].Position(), Reread: oplog.Reread{Since: time.Now(), Until: recent[499].Time},
			})
			next(t, anew)
			_, _, before := source.Streams()

			ctx, stop := context.WithCancel(t.Context())
			var asking sync.WaitGroup
			asking.Go(func() { // again at once, whatever it has lost
				for ctx.Err() == nil {
					_, _ = anew.Next(ctx)
				}
			})
			defer asking.Wait()
			defer stop()
			if got := next(t, l.Cursor(oplog.Start{Position: early[0].Position()})); got[0].at.Compare(early[1].Position()) != 0 {
				t.Errorf("the first change is %s", got[0].at)
			}
			if _, _, opened := source.Streams(); opened != before+1 {
				t.Errorf("%d streams were opened for it", opened-before)
			}
		})
	}
}

// A scoped source counts the streams of everything that are opened of the retained log.
type scoped struct {
	narrowing

	whole *atomic.Int32
}

func (s scoped) OpenNarrow(ctx context.Context, from change.Position, scope oplog.Scope, left bool) (oplog.Stream, bool, error) {
	if scope == nil && left {
		s.whole.Add(1)
	}
	return s.narrowing.OpenNarrow(ctx, from, scope, left)
}

// Cursors of one collection that are far apart read nothing else of the retained log, however many
// readers they have. Those of different collections leave half of the readers to everything.
func TestReadersOfOneCollectionReadNothingElse(t *testing.T) {
	const apart, budget = 6, 4
	for _, c := range []struct{ collections, whole int }{{1, 0}, {apart, budget / 2}} {
		for _, atOnce := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d collections, at once %t", c.collections, atOnce), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					source := scoped{newNarrowing(&oplogtest.Log{ReplyEvents: 1, Delay: 100 * time.Millisecond}, 30*3600), &atomic.Int32{}}
					source.Tick(1)
					var places, ends []change.Position
					for range apart { // a change of each collection at the beginning of an hour, and at its end
						for _, all := range []*[]change.Position{&places, &ends} {
							for i := range c.collections {
								*all = append(*all, source.Append(changetest.Event{ID: int64(i), Coll: fmt.Sprint("c", i)})[0].Position())
							}
							source.Tick(1800)
						}
					}
					l, end := begin(t, oplog.Config{MaxStreams: budget + 1}, source, source.Reach, change.Position{})
					defer end()
					l.SetReach(source.reach(), change.Timestamp{})
					synctest.Wait()
					var reading sync.WaitGroup
					for i := apart - 1; i >= 0; i-- { // the later ones first, which the earlier ones cannot share
						coll := fmt.Sprint("c", i%c.collections)
						at := i*c.collections + i%c.collections
						cursor := l.Cursor(oplog.Start{Position: places[at], Scope: oplog.Scope{{DB: "shop", Coll: coll}}})
						var want []change.Position
						for hour := i; hour < apart; hour++ {
							if hour > i {
								want = append(want, places[hour*c.collections+i%c.collections])
							}
							want = append(want, ends[hour*c.collections+i%c.collections])
						}
						reading.Go(func() {
							defer cursor.Close()
							all(t, cursor, coll, want)
						})
						if !atOnce {
							synctest.Wait()
						}
					}
					if !atOnce {
						if whole, retained := source.whole.Load(), l.Stats().Retained; whole != int32(c.whole) || retained != budget {
							t.Errorf("%d of %d readers read everything", whole, retained)
						}
					}
					reading.Wait()
					if c.whole == 0 && source.whole.Load() != 0 {
						t.Errorf("%d readers read everything", source.whole.Load())
					}
				})
			})
		}
	}
}

// A gated source opens streams of the retained log when it is let.
type gated struct {
	narrowing

	gate chan struct{}
}

func (s gated) OpenNarrow(ctx context.Context, from change.Position, scope oplog.Scope, left bool) (oplog.Stream, bool, error) {
	<-s.gate
	return s.narrowing.OpenNarrow(ctx, from, scope, left)
}

// A cursor that is about to lose its place, and may share a catch-up that waits to join, does not
// keep it from that.
func TestWhoeverMayShareACatchupThatJoinsLetsItJoin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := gated{newNarrowing(&oplogtest.Log{ReplyEvents: 2}, 1), make(chan struct{})} // it retains nothing
		source.Tick(6995)
		before := source.Append(inserts(2, 0)...)
		source.Tick(10)
		within := source.Append(inserts(2, 10)...)
		source.Tick(20_000)
		source.Append(inserts(50, 100)...)
		l, end := begin(t, oplog.Config{RingBytes: 4_000, PrefetchBytes: 1_000, MaxStreams: 3}, source, source.Reach, change.Position{})
		defer end()
		l.SetReach(gap.Reach{First: change.Timestamp{T: 8000}, Last: change.Timestamp{T: 1 << 30}}, change.Timestamp{T: 9000})
		synctest.Wait()
		joins := l.Cursor(oplog.Start{Position: before[0].Position(), Scope: oplog.Scope{{DB: "shop", Coll: "orders"}}})
		synctest.Wait() // its scope is settled
		whole := l.Cursor(oplog.Start{Position: within[0].Position()})
		synctest.Wait()
		close(source.gate)
		begun := time.Now()
		next(t, joins)
		if got := next(t, whole); got[0].at.Compare(within[1].Position()) != 0 || time.Since(begun) > time.Second {
			t.Errorf("the first change is %s, after %s", got[0].at, time.Since(begun))
		}
	})
}
