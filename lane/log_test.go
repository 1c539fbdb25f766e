package lane_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/change/changetest"
	"github.com/mongostream/streamer/lane"
	"github.com/mongostream/streamer/lane/lanetest"
)

const partitions = 8

// begin runs a Log over the source and returns it with a function that ends it and waits.
func begin(t *testing.T, cfg lane.Config, source lane.Source, from change.Position) (*lane.Log, func()) {
	t.Helper()
	return beginOf(t, partitions, cfg, source, from)
}

func beginOf(t *testing.T, n int, cfg lane.Config, source lane.Source, from change.Position) (*lane.Log, func()) {
	t.Helper()
	cfg.Partitions = n
	l := lane.NewLog(cfg, source)
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

// read reads n events from the cursor.
func read(t *testing.T, c *lane.Cursor, n int) (got []change.Position) {
	t.Helper()
	for len(got) < n {
		b, err := c.Next(t.Context())
		if err != nil {
			t.Fatalf("after %d of %d events: %v", len(got), n, err)
		}
		for i := range b.Len() {
			got = append(got, b.Event(i).Position().Clone())
		}
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

// byPartition sorts events into the partitions that a cursor of each would see.
func byPartition(t *testing.T, events []changetest.Event) map[change.Partition][]change.Position {
	t.Helper()
	want := make(map[change.Partition][]change.Position)
	for _, ev := range events {
		e, err := change.Parse(ev.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		p, keyed := change.NewPartitioner(partitions).Of(&e)
		for q := range change.Partition(partitions) {
			if !keyed || p == q {
				want[q] = append(want[q], ev.Position())
			}
		}
	}
	return want
}

func same(got, want []change.Position) error {
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i].Compare(want[i]) != 0 {
			return fmt.Errorf("event %d of %d (want %d) differs", i, len(got), len(want))
		}
	}
	return nil
}

func TestEachLaneSeesItsEventsInOrderAndOneStreamServesAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &lanetest.Log{ReplyEvents: 7}
		source.Tick(1)
		l, end := begin(t, lane.Config{}, source, change.Position{})
		defer end()
		synctest.Wait()
		cursors := make([]*lane.Cursor, partitions)
		for p := range cursors {
			cursors[p] = l.Lane(change.Partition(p), lane.Start{})
		}
		session := l.All(lane.Start{})
		events := source.Append(append(inserts(50, 0), changetest.Event{Op: "drop", Keyless: true}, changetest.Event{ID: 3})...)
		for p, want := range byPartition(t, events) {
			if err := same(read(t, cursors[p], len(want)), want); err != nil {
				t.Errorf("partition %d: %v", p, err)
			}
		}
		if got := read(t, session, len(events)); len(got) != len(events) {
			t.Errorf("the session saw %d events", len(got))
		}
		if open, most, _ := source.Streams(); open != 1 || most != 1 {
			t.Errorf("%d streams open, %d at most", open, most)
		}
	})
}

func TestIdleLaneStandsWhereTheReaderIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &lanetest.Log{}
		source.Tick(1)
		l, end := begin(t, lane.Config{}, source, change.Position{})
		defer end()
		synctest.Wait()
		events := source.Append(inserts(1, 0)...)
		want := byPartition(t, events)
		for p := range change.Partition(partitions) {
			c := l.Lane(p, lane.Start{Position: change.At(change.Timestamp{T: 1001})})
			ctx, cancel := context.WithCancel(t.Context())
			if len(want[p]) > 0 {
				read(t, c, 1)
				if c.Position().After(events[0].Position()) {
					t.Error("stands behind an event that has not been settled")
				}
			}
			go func() { _, _ = c.Next(ctx) }()
			synctest.Wait()
			source.Tick(10)
			time.Sleep(2 * time.Second)
			if got := c.Position().Time; got != (change.Timestamp{T: 1001 + 10*uint32(p+1), I: 1}) {
				t.Errorf("partition %d stands at %v", p, got)
			}
			cancel()
		}
	})
}

// A lane that stalls is left behind by the ring, comes back through a catch-up and misses nothing; the others never wait for it.
func TestStalledLaneCatchesUpWithoutGapOrDuplicate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &lanetest.Log{ReplyEvents: 10}
		source.Tick(1)
		l, end := begin(t, lane.Config{RingBytes: 100_000, PrefetchBytes: 50_000}, source, change.Position{})
		defer end()
		synctest.Wait()
		cursors := make([]*lane.Cursor, partitions)
		for p := range cursors {
			cursors[p] = l.Lane(change.Partition(p), lane.Start{})
		}
		var all []changetest.Event
		for round := range 20 {
			all = append(all, source.Append(inserts(100, int64(100*round))...)...)
			want := byPartition(t, all[len(all)-100:])
			for p := 1; p < partitions; p++ { // lane 0 stalls
				if err := same(read(t, cursors[p], len(want[change.Partition(p)])), want[change.Partition(p)]); err != nil {
					t.Fatalf("round %d, partition %d: %v", round, p, err)
				}
			}
		}
		want := byPartition(t, all)[0]
		if err := same(read(t, cursors[0], len(want)), want); err != nil {
			t.Errorf("stalled lane: %v", err)
		}
		synctest.Wait()
		more := source.Append(inserts(100, 5000)...)
		want = byPartition(t, more)[0]
		if err := same(read(t, cursors[0], len(want)), want); err != nil {
			t.Errorf("after the catch-up: %v", err)
		}
		time.Sleep(5 * time.Second)
		if open, most, _ := source.Streams(); open != 1 || most > 2 {
			t.Errorf("%d streams open in the end, %d at most", open, most)
		}
		if s := l.Stats(); s.TailCursors != partitions {
			t.Errorf("%d cursors in the tail", s.TailCursors)
		}
	})
}

func TestTailWaitsWhenAllAreSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &lanetest.Log{ReplyEvents: 10}
		source.Tick(1)
		l, end := begin(t, lane.Config{RingBytes: 20_000, PrefetchBytes: 5_000}, source, change.Position{})
		defer end()
		synctest.Wait()
		session := l.All(lane.Start{})
		events := source.Append(inserts(1000, 0)...)
		session.Next(t.Context())
		time.Sleep(time.Minute)
		if s := l.Stats(); s.TailBytes > 20_000 || s.TailCursors != 1 || !s.Full {
			t.Errorf("ring of %d bytes, %d cursors; waits for them: %v", s.TailBytes, s.TailCursors, s.Full)
		}
		if got := read(t, session, len(events)-10); len(got) != len(events)-10 {
			t.Errorf("%d events", len(got))
		}
		if _, _, opened := source.Streams(); opened != 1 {
			t.Errorf("%d streams opened", opened)
		}
	})
}

func TestLostPositionFailsOnlyWhoStandsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &lanetest.Log{ReplyEvents: 10}
		events := source.Append(inserts(100, 0)...)
		source.Truncate(50)
		l, end := begin(t, lane.Config{}, source, change.Position{})
		defer end()
		synctest.Wait()
		lost := l.All(lane.Start{Position: events[10].Position()})
		fine := l.All(lane.Start{Position: events[60].Position()})
		if _, err := lost.Next(t.Context()); !errors.Is(err, lane.ErrPositionLost) {
			t.Errorf("lost position: %v", err)
		}
		if err := same(read(t, fine, 39), positions(events[61:])); err != nil {
			t.Error(err)
		}
	})
}

func positions(events []changetest.Event) (p []change.Position) {
	for _, e := range events {
		p = append(p, e.Position())
	}
	return p
}

func TestTailThatLosesItsPositionBeginsAnewAndItsCursorsLearnIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &lanetest.Log{ReplyEvents: 10}
		source.Tick(1)
		l, end := begin(t, lane.Config{}, source, change.Position{})
		defer end()
		synctest.Wait()
		c := l.All(lane.Start{})
		source.Append(inserts(5, 0)...)
		read(t, c, 5)
		source.FailNext(lane.ErrPositionLost)
		synctest.Wait()
		more := source.Append(inserts(5, 5)...)
		// The log still has everything: the catch-up succeeds and nothing is missed.
		if err := same(read(t, c, 5), positions(more)); err != nil {
			t.Error(err)
		}
		source.FailNext(lane.ErrPositionLost)
		source.Append(inserts(5, 10)...)
		source.Truncate(0)
		if _, err := c.Next(t.Context()); !errors.Is(err, lane.ErrPositionLost) {
			t.Errorf("after a loss: %v", err)
		}
	})
}

func TestFatalErrorReachesEveryCursor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fatal := errors.New("unauthorized")
		source := &lanetest.Log{}
		source.Tick(1)
		l := lane.NewLog(lane.Config{Partitions: partitions}, source)
		done := make(chan error, 1)
		go func() { done <- l.Run(t.Context(), change.Position{}) }()
		c := l.Lane(0, lane.Start{})
		synctest.Wait()
		source.FailNext(fatal)
		if _, err := c.Next(t.Context()); !errors.Is(err, fatal) {
			t.Errorf("cursor: %v", err)
		}
		if err := <-done; !errors.Is(err, fatal) {
			t.Errorf("Run: %v", err)
		}
		if _, err := l.Lane(1, lane.Start{}).Next(t.Context()); !errors.Is(err, fatal) {
			t.Errorf("later cursor: %v", err)
		}
	})
}

func TestCatchupsStayWithinTheirBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &lanetest.Log{ReplyEvents: 5, Delay: time.Millisecond}
		for range 40 {
			source.Append(inserts(10, 0)...)
			source.Tick(120) // too far for neighbours
		}
		l, end := begin(t, lane.Config{MaxStreams: 3}, source, change.Position{})
		defer end()
		synctest.Wait()
		var cursors []*lane.Cursor
		for i := range 12 {
			cursors = append(cursors, l.All(lane.Start{Position: change.At(change.Timestamp{T: uint32(1000 + 300*i)})}))
			cursors = append(cursors, l.Lane(change.Partition(i%partitions), lane.Start{Position: change.At(change.Timestamp{T: uint32(1000 + 300*i)})}))
		}
		source.Append(changetest.Event{Op: "drop", Keyless: true})
		for i, c := range cursors {
			for last := false; !last; {
				b, err := c.Next(t.Context())
				if err != nil {
					t.Fatalf("cursor %d: %v", i, err)
				}
				last = b.Event(b.Len()-1).Op() == change.OpDrop
			}
		}
		if _, most, _ := source.Streams(); most > 3 {
			t.Errorf("%d streams at a time", most)
		}
	})
}

// TestEveryCursorSeesEverythingOnce drives cursors of all kinds through random rings, stalls and reopenings, against the model
// that each sees what stands behind its start, once and in order.
func TestEveryCursorSeesEverythingOnce(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		d := drive{
			reply:    rapid.IntRange(1, 20).Draw(rt, "reply"),
			ring:     rapid.Int64Range(500, 20_000).Draw(rt, "ring"),
			prefetch: rapid.Int64Range(500, 8_000).Draw(rt, "prefetch"),
			streams:  rapid.IntRange(2, 4).Draw(rt, "streams"),
			steps: rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) step {
				return step{
					do: rapid.SampledFrom([]string{"append", "read", "read", "read", "follow", "tick", "wait"}).Draw(rt, "do"),
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

// A drive is a script for a Log, its source and its cursors.
type drive struct {
	reply, streams int
	ring, prefetch int64
	steps          []step
}

type step struct {
	do   string
	n, m int
}

// A follower is a cursor and what it has read.
type follower struct {
	cursor    *lane.Cursor
	partition int // -1 for all
	start     change.Position
	got       []change.Position
}

// read reads one batch, of which it gives back a part when part is not 0.
func (f *follower) read(t *testing.T, part int) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	b, err := f.cursor.Next(ctx)
	if err != nil {
		return // nothing new
	}
	n := b.Len()
	if part > 0 {
		n = part % (n + 1)
	}
	for i := range n {
		f.got = append(f.got, b.Event(i).Position().Clone())
	}
	if n < b.Len() {
		f.cursor.Return(b, n)
	}
}

func (d drive) run(t *testing.T) error {
	source := &lanetest.Log{ReplyEvents: d.reply}
	source.Tick(1)
	all := source.Append(inserts(20, 0)...)
	l, end := begin(t, lane.Config{RingBytes: d.ring, PrefetchBytes: d.prefetch, MaxStreams: d.streams}, source, change.Position{})
	defer end()
	synctest.Wait()
	var followers []*follower
	for _, s := range d.steps {
		switch s.do {
		case "append":
			all = append(all, source.Append(append(inserts(s.n, int64(s.m)), changetest.Event{Op: "drop", Keyless: true})...)...)
		case "tick":
			source.Tick(uint32(s.n + 1))
		case "wait":
			synctest.Wait()
		case "follow":
			f := &follower{partition: s.m%(partitions+1) - 1, start: all[(s.m*7)%len(all)].Position()}
			if f.partition < 0 {
				f.cursor = l.All(lane.Start{Position: f.start})
			} else {
				f.cursor = l.Lane(change.Partition(f.partition), lane.Start{Position: f.start})
			}
			followers = append(followers, f)
		case "read":
			if len(followers) > 0 {
				followers[s.m%len(followers)].read(t, s.n%7)
			}
		}
	}
	for i, f := range followers {
		want := positions(all)
		if f.partition >= 0 {
			want = byPartition(t, all)[change.Partition(f.partition)]
		}
		for len(want) > 0 && !want[0].After(f.start) {
			want = want[1:]
		}
		for tries := 0; len(f.got) < len(want) && tries < len(want)+100; tries++ {
			f.read(t, 0)
		}
		if err := same(f.got, want); err != nil {
			return fmt.Errorf("follower %d of partition %d from %v: %w (%+v)", i, f.partition, f.start, err, l.Stats())
		}
		if _, most, _ := source.Streams(); most > d.streams {
			return fmt.Errorf("%d streams at a time", most)
		}
		f.cursor.Close()
	}
	return nil
}

func TestAlarmRingsWhenTheTimeIsReachedEvenWhereNothingHappens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &lanetest.Log{}
		source.Tick(1)
		l, end := begin(t, lane.Config{}, source, change.Position{})
		defer end()
		synctest.Wait()
		c := l.Lane(0, lane.Start{})
		c.Alarm(change.Timestamp{T: 1011})
		rung := make(chan change.Position, 1)
		go func() {
			b, err := c.Next(t.Context())
			if err != nil || b.Len() != 0 {
				t.Errorf("%v", err)
			}
			rung <- b.End()
		}()
		synctest.Wait()
		select {
		case p := <-rung:
			t.Fatalf("rang at %v", p)
		default:
		}
		source.Tick(10)
		if p := <-rung; p.Time.Compare(change.Timestamp{T: 1011}) < 0 {
			t.Errorf("rang at %v", p)
		}
		c.Alarm(change.Timestamp{T: 1}) // long past
		if b, err := c.Next(t.Context()); err != nil || b.Len() != 0 {
			t.Errorf("%v", err)
		}
		events := source.Append(inserts(30, 0)...)
		want := byPartition(t, events)[0]
		if err := same(read(t, c, len(want)), want); err != nil {
			t.Error(err)
		}
	})
}
