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

// A narrowing source has everything before a time in lanes: who asks for some namespaces gets
// nothing else of it.
type narrowing struct {
	*oplogtest.Log

	until change.Timestamp
}

func (s narrowing) OpenNarrow(ctx context.Context, from change.Position, scope oplog.Scope) (oplog.Stream, bool, error) {
	stream, err := s.Open(ctx, from)
	if err != nil || from.Time.Compare(s.until) >= 0 {
		return stream, false, err
	}
	return narrowed{stream, scope}, true, nil
}

type narrowed struct {
	oplog.Stream

	scope oplog.Scope
}

func (s narrowed) Next(ctx context.Context) (oplog.Reply, error) {
	reply, err := s.Stream.Next(ctx)
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
	source := narrowing{&oplogtest.Log{ReplyEvents: 5}, change.Timestamp{T: uint32(1000 + until)}}
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
	if _, most, _ := source.Streams(); most > streams {
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

func (s *bounded) OpenNarrow(ctx context.Context, from change.Position, scope oplog.Scope) (oplog.Stream, bool, error) {
	if s.left.Add(-1) < 0 {
		return nil, false, errors.New("streams are opened again and again")
	}
	return s.narrowing.OpenNarrow(ctx, from, scope)
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
		source := &bounded{narrowing: narrowing{&oplogtest.Log{ReplyEvents: 2, Delay: 100 * time.Millisecond}, change.Timestamp{T: 9000}}}
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
		source := &bounded{narrowing: narrowing{&oplogtest.Log{ReplyEvents: 2, Delay: 100 * time.Millisecond}, change.Timestamp{T: 9000}}}
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
		source := &bounded{narrowing: narrowing{&oplogtest.Log{ReplyEvents: 2, Delay: 100 * time.Millisecond}, change.Timestamp{T: 9000}}}
		source.left.Store(20)
		l, c0, of, end := crowd(t, source)
		defer end()
		first, last := source.Reach()
		l.SetReach(gap.Reach{First: first, Last: last}, change.Timestamp{T: 2000})
		c1 := l.Cursor(oplog.Start{Position: of[1][3], Scope: oplog.Scope{{DB: "shop", Coll: "c1"}}})
		all(t, c1, "c1", of[1][4:])
		synctest.Wait()
		if open, most, opened := source.Streams(); open != 3 || most != 3 || opened != 4 {
			t.Errorf("%d streams are open, %d were at most, %d were opened", open, most, opened)
		}
		all(t, c0, "c0", of[0][1:])
	})
}
