package oplog_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/change/changetest"
	"github.com/mongostream/streamer/dedup"
	"github.com/mongostream/streamer/gap"
	"github.com/mongostream/streamer/oplog"
	"github.com/mongostream/streamer/oplog/oplogtest"
)

// begin runs a Log over the source and returns it with a function that ends it and waits.
func begin(t *testing.T, cfg oplog.Config, source oplog.Source, reach func() (first, last change.Timestamp), from change.Position) (*oplog.Log, func()) {
	t.Helper()
	cfg.Partitions = 8
	cfg.Reach = func(context.Context) (gap.Reach, error) {
		first, last := reach()
		return gap.Reach{First: first, Last: last}, nil
	}
	l := oplog.New(cfg, source)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx, from) }()
	return l, func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	}
}

// beginLog is begin for a source in memory.
func beginLog(t *testing.T, cfg oplog.Config, source *oplogtest.Log, from change.Position) (*oplog.Log, func()) {
	t.Helper()
	return begin(t, cfg, source, source.Reach, from)
}

// An entry is what a cursor has yielded: an event or a loss.
type entry struct {
	at   change.Position
	loss *oplog.Loss
}

// next reads one batch that is not empty.
func next(t *testing.T, c *oplog.Cursor) (got []entry) {
	t.Helper()
	for len(got) == 0 {
		b, err := c.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if b.Loss() != nil {
			got = append(got, entry{b.Loss().To, b.Loss()})
		}
		for i := range b.Len() {
			got = append(got, entry{at: b.Event(i).Position().Clone()})
		}
	}
	return got
}

// read reads n entries.
func read(t *testing.T, c *oplog.Cursor, n int) (got []entry) {
	t.Helper()
	for len(got) < n {
		got = append(got, next(t, c)...)
	}
	return got
}

func inserts(n int, from int64) []changetest.Event {
	events := make([]changetest.Event, n)
	for i := range events {
		events[i].ID = from + int64(i)
	}
	return events
}

func positions(events []changetest.Event) (p []change.Position) {
	for _, e := range events {
		p = append(p, e.Position())
	}
	return p
}

// same compares entries, none of which may be a loss, with what was to come.
func same(got []entry, want []change.Position) error {
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i].loss != nil || got[i].at.Compare(want[i]) != 0 {
			return fmt.Errorf("entry %d of %d (want %d) differs", i, len(got), len(want))
		}
	}
	return nil
}

func TestOneStreamServesEveryCursorInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{ReplyEvents: 7}
		source.Tick(1)
		l, end := beginLog(t, oplog.Config{}, source, change.Position{})
		defer end()
		synctest.Wait()
		cursors := make([]*oplog.Cursor, 5)
		for i := range cursors {
			cursors[i] = l.Cursor(oplog.Start{Live: i == 0})
		}
		events := source.Append(append(inserts(50, 0), changetest.Event{Op: "drop", Keyless: true}, changetest.Event{ID: 3})...)
		for i, c := range cursors {
			if err := same(read(t, c, len(events)), positions(events)); err != nil {
				t.Errorf("cursor %d: %v", i, err)
			}
		}
		if open, most, _ := source.Streams(); open != 1 || most != 1 {
			t.Errorf("%d streams open, %d at most", open, most)
		}
	})
}

func TestPartitionsOfEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{}
		source.Tick(1)
		l, end := beginLog(t, oplog.Config{}, source, change.Position{})
		defer end()
		synctest.Wait()
		c := l.Cursor(oplog.Start{})
		source.Append(append(inserts(20, 0), changetest.Event{Op: "drop", Keyless: true})...)
		for n := 0; n < 21; {
			b, err := c.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for i := range b.Len() {
				n++
				p, keyed := b.Partition(i)
				want, wantKeyed := change.NewPartitioner(8).Of(b.Event(i))
				if keyed != wantKeyed || keyed && p != want {
					t.Errorf("event %d: partition %d (%v), want %d (%v)", i, p, keyed, want, wantKeyed)
				}
			}
		}
	})
}

// A cursor that has read everything is where the reader is, and is told when that moves on, so that
// whoever waits for a time in a quiet log learns of it.
func TestQuietLogMovesCursorsOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{}
		source.Tick(1)
		l, end := beginLog(t, oplog.Config{}, source, change.Position{})
		defer end()
		synctest.Wait()
		c := l.Cursor(oplog.Start{})
		for i := range uint32(3) {
			source.Tick(10)
			b, err := c.Next(t.Context())
			if err != nil || b.Len() != 0 || b.Loss() != nil {
				t.Fatalf("%v, %+v", err, b)
			}
			if want := (change.Timestamp{T: 1001 + 10*(i+1), I: 1}); b.End().Time != want || c.Position().Time != want {
				t.Errorf("at %v and %v, want %v", b.End(), c.Position(), want)
			}
		}
	})
}

// A cursor that stalls loses its place in the ring, comes back through a catch-up and misses
// nothing; the live one never waits for it.
func TestStalledCursorCatchesUpWithoutGapOrDuplicate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{ReplyEvents: 10}
		source.Tick(1)
		l, end := beginLog(t, oplog.Config{RingBytes: 100_000, PrefetchBytes: 50_000}, source, change.Position{})
		defer end()
		synctest.Wait()
		live, stalled := l.Cursor(oplog.Start{Live: true}), l.Cursor(oplog.Start{})
		var all []changetest.Event
		for round := range 20 {
			all = append(all, source.Append(inserts(100, int64(100*round))...)...)
			if err := same(read(t, live, 100), positions(all[len(all)-100:])); err != nil {
				t.Fatalf("round %d: %v", round, err)
			}
		}
		if err := same(read(t, stalled, len(all)), positions(all)); err != nil {
			t.Errorf("stalled cursor: %v", err)
		}
		synctest.Wait()
		more := source.Append(inserts(100, 5000)...)
		if err := same(read(t, stalled, 100), positions(more)); err != nil {
			t.Errorf("after the catch-up: %v", err)
		}
		time.Sleep(5 * time.Second)
		if open, most, _ := source.Streams(); open != 1 || most > 2 {
			t.Errorf("%d streams open in the end, %d at most", open, most)
		}
	})
}

// The tail reads only so far ahead of the live cursor, and overwrites nothing that it needs, also
// where others are far ahead of it.
func TestTailKeepsPaceWithTheLiveCursor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{ReplyEvents: 10}
		source.Tick(1)
		l, end := beginLog(t, oplog.Config{RingBytes: 20_000, PrefetchBytes: 5_000}, source, change.Position{})
		defer end()
		synctest.Wait()
		live, fast := l.Cursor(oplog.Start{Live: true}), l.Cursor(oplog.Start{})
		events := source.Append(inserts(1000, 0)...)
		got := next(t, live)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for {
			if _, err := fast.Next(ctx); err != nil {
				break
			}
		}
		if s := l.Stats(); s.TailBytes > 20_000 || s.TailCursors != 2 || !s.Full {
			t.Errorf("ring of %d bytes, %d cursors; waits for them: %v", s.TailBytes, s.TailCursors, s.Full)
		}
		if err := same(append(got, read(t, live, 990)...), positions(events)); err != nil {
			t.Error(err)
		}
		if _, _, opened := source.Streams(); opened != 1 {
			t.Errorf("%d streams opened", opened)
		}
	})
}

// The ring keeps as much as is configured of what its readers have passed, and no more.
func TestRingKeepsAsMuchAsConfigured(t *testing.T) {
	for _, ring := range []int64{20_000, 60_000} {
		synctest.Test(t, func(t *testing.T) {
			source := &oplogtest.Log{ReplyEvents: 10}
			source.Tick(1)
			l, end := beginLog(t, oplog.Config{RingBytes: ring, PrefetchBytes: 5_000}, source, change.Position{})
			defer end()
			synctest.Wait()
			live := l.Cursor(oplog.Start{Live: true})
			source.Append(inserts(1000, 0)...)
			read(t, live, 1000)
			synctest.Wait()
			if s := l.Stats(); s.TailBytes > ring || s.TailBytes < ring/2 {
				t.Errorf("a ring of %d bytes has %d", ring, s.TailBytes)
			}
		})
	}
}

func TestFatalErrorReachesEveryCursor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fatal := errors.New("unauthorized")
		source := &oplogtest.Log{}
		source.Tick(1)
		l := oplog.New(oplog.Config{Partitions: 1}, source)
		done := make(chan error, 1)
		go func() { done <- l.Run(t.Context(), change.Position{}) }()
		c := l.Cursor(oplog.Start{})
		synctest.Wait()
		source.FailNext(fatal)
		if _, err := c.Next(t.Context()); !errors.Is(err, fatal) {
			t.Errorf("cursor: %v", err)
		}
		if err := <-done; !errors.Is(err, fatal) {
			t.Errorf("Run: %v", err)
		}
		if _, err := l.Cursor(oplog.Start{}).Next(t.Context()); !errors.Is(err, fatal) {
			t.Errorf("later cursor: %v", err)
		}
	})
}

func TestCatchupsStayWithinTheirBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{ReplyEvents: 5, Delay: time.Millisecond}
		for range 40 {
			source.Append(inserts(10, 0)...)
			source.Tick(120) // too far for neighbours
		}
		l, end := beginLog(t, oplog.Config{MaxStreams: 3}, source, change.Position{})
		defer end()
		synctest.Wait()
		var cursors []*oplog.Cursor
		for i := range 24 {
			cursors = append(cursors, l.Cursor(oplog.Start{Position: change.At(change.Timestamp{T: uint32(1000 + 150*i)})}))
		}
		source.Append(changetest.Event{Op: "drop", Keyless: true})
		var reading sync.WaitGroup
		for i, c := range cursors {
			reading.Go(func() {
				for last := false; !last; {
					b, err := c.Next(t.Context())
					if err != nil {
						t.Errorf("cursor %d: %v", i, err)
						return
					}
					last = b.Len() > 0 && b.Event(b.Len()-1).Op() == change.OpDrop
				}
			})
		}
		reading.Wait()
		if _, most, _ := source.Streams(); most > 3 {
			t.Errorf("%d streams at a time", most)
		}
	})
}

// A slow source takes its time to open a stream at the log's end.
type slow struct {
	*oplogtest.Log

	until chan struct{}
}

func (s slow) Open(ctx context.Context, from change.Position) (oplog.Stream, error) {
	if from.IsZero() {
		select {
		case <-s.until:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	return s.Log.Open(ctx, from)
}

// While the tail takes long to open, cursors that are further back are served all the same, and
// join it when it is there.
func TestCursorsAreServedWhileTheTailTakesLongToOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := slow{&oplogtest.Log{ReplyEvents: 10}, make(chan struct{})}
		source.Tick(1)
		all := source.Append(inserts(20, 0)...)
		l, end := begin(t, oplog.Config{}, source, source.Reach, change.Position{})
		defer end()
		late, young := l.Cursor(oplog.Start{Position: change.At(all[0].Time)}), l.Cursor(oplog.Start{})
		begun := time.Now()
		if err := same(read(t, late, 20), positions(all)); err != nil {
			t.Error(err)
		}
		if took := time.Since(begun); took < time.Second || took > 10*time.Second {
			t.Errorf("served after %v", took)
		}
		source.Append(inserts(5, 20)...)
		read(t, late, 5)
		close(source.until)
		synctest.Wait()
		last := source.Append(inserts(5, 25)...)
		for _, c := range []*oplog.Cursor{late, young} {
			if err := same(read(t, c, 5), positions(last)); err != nil {
				t.Error(err)
			}
		}
		for range 60 { // they are read on, so that they join
			time.Sleep(time.Second)
			_, _ = late.Poll()
		}
		if stats := l.Stats(); stats.Streams != 1 || stats.TailCursors != 2 {
			t.Errorf("%+v", stats)
		}
	})
}

// Cursors that take their turns on few processors are at different places of a backlog. As long as
// they make progress one stream serves them all, however fast the foremost is and however few
// replies the ring holds.
func TestCursorsOfACatchupThatMakeProgressAreNotLeftBehind(t *testing.T) {
	const cursors, events, reply = 8, 8_000, 400
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{ReplyEvents: reply}
		source.Tick(1)
		all := source.Append(inserts(events, 0)...)
		var size int64
		for _, e := range all[:reply] {
			size += int64(len(e.Bytes())) + 96
		}
		l, end := beginLog(t, oplog.Config{RingBytes: 4 * 3 * size, PrefetchBytes: size, MaxStreams: 3}, source, change.Position{})
		defer end()
		synctest.Wait()
		var reading sync.WaitGroup
		for i := range cursors {
			cursor := l.Cursor(oplog.Start{Position: change.At(all[0].Time)})
			reading.Go(func() {
				for n := 0; n < events; {
					b, err := cursor.Next(t.Context())
					if err != nil {
						t.Errorf("cursor %d after %d of %d events: %v", i, n, events, err)
						return
					}
					n += b.Len()
					time.Sleep(time.Duration(i) * time.Millisecond) // in the bubble: what the work takes
				}
			})
		}
		reading.Wait()
		if _, _, opened := source.Streams(); opened != 2 {
			t.Errorf("%d streams were opened for one backlog beside the tail", opened)
		}
	})
}

// TestEveryCursorSeesEverythingOnce drives cursors through random rings, stalls and reopenings,
// against the model that each sees what comes after its start, once and in order.
func TestEveryCursorSeesEverythingOnce(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		d := drive{
			reply:    rapid.IntRange(1, 20).Draw(rt, "reply"),
			ring:     rapid.Int64Range(500, 20_000).Draw(rt, "ring"),
			prefetch: rapid.Int64Range(500, 8_000).Draw(rt, "prefetch"),
			streams:  rapid.IntRange(2, 4).Draw(rt, "streams"),
			dedup:    rapid.Bool().Draw(rt, "dedup"),
			steps: rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) step {
				return step{
					do: rapid.SampledFrom([]string{"append", "read", "read", "read", "follow", "tick", "wait", "suspect", "break"}).Draw(rt, "do"),
					n:  rapid.IntRange(0, 60).Draw(rt, "n"), m: rapid.IntRange(0, 1000).Draw(rt, "m"),
				}
			}), 1, 80).Draw(rt, "steps"),
		}
		var err error
		synctest.Test(t, func(t *testing.T) { err = d.run(t) })
		if err != nil {
			rt.Fatal(err)
		}
	})
}

// A reader that the server refuses again and again, and then accepts, looks for its place with one
// stream at a time.
func TestRefusedReadersStayWithinTheirBudget(t *testing.T) {
	d := drive{reply: 1, ring: 500, prefetch: 500, streams: 2, steps: slices.Concat(
		[]step{{do: "append"}, {do: "follow"}}, slices.Repeat([]step{{do: "break"}}, 5))}
	for range 200 { // the order in which the two readers are refused varies
		synctest.Test(t, func(t *testing.T) {
			if err := d.run(t); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// A drive is a script for a Log, its source and its cursors.
type drive struct {
	reply, streams int
	ring, prefetch int64
	dedup          bool
	steps          []step
}

type step struct {
	do   string
	n, m int
}

// A follower is a cursor and what it has read.
type follower struct {
	cursor *oplog.Cursor
	start  change.Position
	got    []entry
}

// read reads one batch.
func (f *follower) read(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	b, err := f.cursor.Next(ctx)
	if err != nil {
		return // nothing new
	}
	if b.Loss() != nil {
		f.got = append(f.got, entry{b.Loss().To, b.Loss()})
	}
	for i := range b.Len() {
		f.got = append(f.got, entry{at: b.Event(i).Position().Clone()})
	}
}

func (d drive) run(t *testing.T) error {
	source := &oplogtest.Log{ReplyEvents: d.reply}
	source.Tick(1)
	all := source.Append(inserts(20, 0)...)
	cfg := oplog.Config{RingBytes: d.ring, PrefetchBytes: d.prefetch, MaxStreams: d.streams}
	if d.dedup {
		cfg.Dedup = &dedup.Config{}
	}
	l, end := beginLog(t, cfg, source, change.Position{})
	defer end()
	synctest.Wait()
	followers := []*follower{{cursor: l.Cursor(oplog.Start{Live: true}), start: all[len(all)-1].Position()}}
	for _, s := range d.steps {
		switch s.do {
		case "append":
			all = append(all, source.Append(append(inserts(s.n, int64(s.m)), changetest.Event{Op: "drop", Keyless: true})...)...)
		case "tick":
			source.Tick(uint32(s.n*s.n + 1))
		case "suspect":
			source.Suspect()
		case "break": // the log has everything: what the server refused once it accepts the next time
			if source.FailNext(oplog.ErrPositionLost) == 1 {
				all = append(all, source.Append(inserts(1, int64(s.m))...)...)
				synctest.Wait()
			}
		case "wait":
			synctest.Wait()
		case "follow":
			start := all[(s.m*7)%len(all)].Position()
			followers = append(followers, &follower{cursor: l.Cursor(oplog.Start{Position: start}), start: start})
		case "read":
			followers[s.m%len(followers)].read(t)
		}
	}
	for i, f := range followers {
		want := positions(all)
		for len(want) > 0 && !want[0].After(f.start) {
			want = want[1:]
		}
		for tries := 0; len(f.got) < len(want) && tries < len(want)+200; tries++ {
			f.read(t)
		}
		if err := same(f.got, want); err != nil {
			return fmt.Errorf("follower %d from %v: %w (%+v)", i, f.start, err, l.Stats())
		}
		if _, most, _ := source.Streams(); most > d.streams {
			return fmt.Errorf("%d streams at a time", most)
		}
		f.cursor.Close()
	}
	return nil
}

// reason collects the losses that the Log has told of.
func told(losses *[]oplog.Loss) func(oplog.Loss) {
	var mu sync.Mutex
	return func(l oplog.Loss) {
		mu.Lock()
		defer mu.Unlock()
		*losses = append(*losses, l)
	}
}
