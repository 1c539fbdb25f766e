package oplog_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/change/changetest"
	"github.com/mongostream/streamer/oplog"
	"github.com/mongostream/streamer/oplog/oplogtest"
)

// A cursor that reads anew gets nothing, up to where it asks, that was read before it asked,
// whether the tail has it or a catch-up; after that it is at the tail. It waits for no other
// catch-up, also when there is no room for another stream.
func TestCursorsReadAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		looked := int64(1)
		source := &oplogtest.Log{LookUp: func(e changetest.Event) changetest.Event {
			e.Base = looked
			return e
		}}
		source.Tick(1)
		from := change.At(change.Timestamp{T: 1000, I: 1})
		for range 3 {
			source.Append(changetest.Event{Op: "update", Whole: true})
		}
		source.Tick(3600)
		l, end := beginLog(t, oplog.Config{MaxStreams: 2}, source, change.Position{})
		defer end()
		synctest.Wait()
		source.Append(changetest.Event{Op: "update", Whole: true}, changetest.Event{Op: "update", Whole: true})
		elsewhere := l.Cursor(oplog.Start{Position: from}) // and keeps its catch-up: it does not read on
		if _, err := elsewhere.Next(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		time.Sleep(time.Millisecond)
		looked = 2
		_, last := source.Reach()
		asks := oplog.Reread{Since: time.Now(), Until: last}
		for name, start := range map[string]struct {
			oplog.Start
			want []int64
		}{
			"anew":                              {oplog.Start{Position: from, Reread: asks}, []int64{2, 2, 2, 2, 2}},
			"anew, from the end":                {oplog.Start{Position: change.At(change.Timestamp{T: last.T, I: 2}), Reread: asks}, []int64{2, 2}},
			"from the end":                      {oplog.Start{Position: change.At(change.Timestamp{T: last.T, I: 2})}, []int64{1, 1}},
			"anew, what is before its position": {oplog.Start{Position: change.At(change.Timestamp{T: last.T, I: 2}), Reread: oplog.Reread{Since: time.Now(), Until: change.Timestamp{T: last.T, I: 1}}}, []int64{1, 1}},
		} {
			c, begun := l.Cursor(start.Start), time.Now()
			var got []int64
			for len(got) < len(start.want) {
				b, err := c.Next(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				for i := range b.Len() {
					n, _ := b.Event(i).Lookup("fullDocument").Lookup("b").Int64()
					got = append(got, n)
				}
			}
			if took := time.Since(begun); !slices.Equal(got, start.want) || took > time.Second {
				t.Errorf("%s: documents %v after %s, want %v", name, got, took, start.want)
			}
			c.Close()
		}
		elsewhere.Close()
		c := l.Cursor(oplog.Start{Position: from, Reread: asks})
		read(t, c, 5)
		for range 3 { // whoever has read all of it is at the tail
			time.Sleep(2 * time.Second)
			if _, err := c.Poll(); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second) // its stream is closed
		if s := l.Stats(); s.TailCursors != 1 || s.Streams != 1 {
			t.Errorf("%+v", s)
		}
		if _, most, _ := source.Streams(); most > 2 {
			t.Errorf("%d streams at a time", most)
		}
	})
}

// What MongoDB's oplog no longer has comes from memory also for cursors that read anew, whether
// they have begun or not: nothing is lost, and no loss is counted.
func TestMemoryServesWhatCannotBeReadAnew(t *testing.T) {
	for name, anew := range map[string]int{"nothing is read anew": 0, "the rest is not": 3} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				source := &oplogtest.Log{ReplyEvents: 1}
				figures := prometheus.NewRegistry()
				source.Tick(1)
				l, end := beginLog(t, oplog.Config{PrefetchBytes: 1, Registerer: figures}, source, change.Position{})
				defer end()
				synctest.Wait()
				from := l.End()
				events := source.Append(inserts(6, 0)...)
				synctest.Wait()
				time.Sleep(time.Millisecond)
				_, last := source.Reach()
				start := oplog.Start{Position: from, Reread: oplog.Reread{Since: time.Now(), Until: last}}
				if anew == 0 {
					source.Truncate(1)
				}
				c := l.Cursor(start)
				got := read(t, c, anew)
				source.Truncate(1)
				for end := events[len(events)-1].Position(); len(got) == 0 || end.After(got[len(got)-1].at); {
					got = append(got, next(t, c)...)
				}
				if err := same(got, positions(events)); err != nil {
					t.Error(err)
				}
				families, err := figures.Gather()
				if err != nil {
					t.Fatal(err)
				}
				for _, f := range families {
					if n := f.GetMetric()[0].GetCounter().GetValue(); f.GetName() == "streamer_gaps_detected_total" && n != 0 {
						t.Errorf("%g gaps are counted", n)
					}
				}
			})
		})
	}
}

// Where there is one stream for all that are late, a cursor that reads anew has it before one that
// is hours late.
func TestCursorsThatReadAnewWaitForNoOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := slow{&oplogtest.Log{ReplyEvents: 1, Delay: time.Second}, make(chan struct{})}
		source.Tick(1)
		from := change.At(change.Timestamp{T: 1000, I: 1})
		events := source.Append(inserts(60, 0)...)
		source.Tick(3600)
		events = append(events, source.Append(inserts(2, 100)...)...)
		_, last := source.Reach()
		l, end := begin(t, oplog.Config{MaxStreams: 2}, source, source.Reach, change.Position{})
		defer end()
		late := l.Cursor(oplog.Start{Position: from})
		c := l.Cursor(oplog.Start{
			Position: change.At(change.Timestamp{T: last.T, I: 2}), Reread: oplog.Reread{Since: time.Now(), Until: last},
		})
		close(source.until)
		begun := time.Now()
		got := read(t, c, 2)
		if took := time.Since(begun); took > 10*time.Second {
			t.Errorf("read after %s", took)
		}
		if err := same(got, positions(events[60:])); err != nil {
			t.Error(err)
		}
		c.Close()
		if err := same(read(t, late, len(events)), positions(events)); err != nil {
			t.Errorf("late: %v", err)
		}
	})
}

// A cursor that replaces another one continues with its stream, if that has what it needs.
func TestCursorContinuesWithTheStreamOfAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{ReplyEvents: 2}
		source.Tick(1)
		from := change.At(change.Timestamp{T: 1000, I: 1})
		events := source.Append(inserts(10, 0)...)
		source.Tick(3600)
		_, last := source.Reach()
		l, end := beginLog(t, oplog.Config{PrefetchBytes: 1}, source, change.Position{})
		defer end()
		synctest.Wait()
		time.Sleep(time.Millisecond)
		start := oplog.Start{Position: from, Reread: oplog.Reread{Since: time.Now(), Until: last}}
		c := l.Cursor(start)
		got := read(t, c, 2)
		for len(got) < len(events) {
			start.Position, start.Instead = got[len(got)-1].at, c
			c = l.Cursor(start)
			got = append(got, next(t, c)...)
		}
		if err := same(got, positions(events)); err != nil {
			t.Error(err)
		}
		if _, _, opened := source.Streams(); opened != 2 {
			t.Errorf("%d streams were opened", opened)
		}
		if _, err := start.Instead.Poll(); err == nil {
			t.Error("the cursor that was replaced is open")
		}
		time.Sleep(time.Millisecond)
		start.Reread.Since, start.Position, start.Instead = time.Now(), from, c // its stream is too early
		if err := same(read(t, l.Cursor(start), len(events)), positions(events)); err != nil {
			t.Error(err)
		}
		if _, _, opened := source.Streams(); opened != 3 {
			t.Errorf("%d streams were opened", opened)
		}
	})
}

// A change that MongoDB cannot deliver makes nobody read the rest from memory: the tail did not get
// it either.
func TestChangeThatIsTooLargeEndsNoReread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		looked := int64(1)
		source := &oplogtest.Log{LookUp: func(e changetest.Event) changetest.Event {
			e.Base = looked
			return e
		}}
		source.Tick(1)
		l, end := beginLog(t, oplog.Config{}, source, change.Position{})
		defer end()
		synctest.Wait()
		from := l.End()
		source.Append(changetest.Event{Op: "update", Whole: true}, changetest.Event{Op: change.SkippedName, Keyless: true}, changetest.Event{Op: "update", Whole: true})
		synctest.Wait()
		time.Sleep(time.Millisecond)
		looked = 2
		_, last := source.Reach()
		c := l.Cursor(oplog.Start{Position: from, Reread: oplog.Reread{Since: time.Now(), Until: last}})
		var documents []int64
		for losses := 0; len(documents) < 2 || losses < 1; {
			b, err := c.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if b.Loss() != nil {
				losses++
			}
			for i := range b.Len() {
				if n, whole := b.Event(i).Lookup("fullDocument").Lookup("b").Int64(); whole {
					documents = append(documents, n)
				}
			}
		}
		if !slices.Equal(documents, []int64{2, 2}) {
			t.Errorf("documents %v", documents)
		}
	})
}

// What memory has lost too before a cursor comes to it is a loss, and is counted then.
func TestLossThatMemoryHasForgottenIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{}
		figures := prometheus.NewRegistry()
		source.Tick(1)
		l, end := beginLog(t, oplog.Config{RingBytes: 20_000, PrefetchBytes: 1000, Registerer: figures}, source, change.Position{})
		defer end()
		synctest.Wait()
		from := l.End()
		source.Append(inserts(6, 0)...)
		synctest.Wait()
		time.Sleep(time.Millisecond)
		_, last := source.Reach()
		source.Truncate(1)
		c := l.Cursor(oplog.Start{Position: from, Reread: oplog.Reread{Since: time.Now(), Until: last}})
		synctest.Wait() // its reader has found the loss, and the tail has the stretch
		counted := func() (n float64) {
			families, err := figures.Gather()
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range families {
				if f.GetName() == "streamer_gaps_detected_total" {
					n = f.GetMetric()[0].GetCounter().GetValue()
				}
			}
			return n
		}
		if n := counted(); n != 0 {
			t.Errorf("%g gaps are counted while memory has everything", n)
		}
		source.Append(inserts(1000, 100)...) // the tail overwrites the stretch
		synctest.Wait()
		for {
			b, err := c.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if b.Loss() != nil {
				break
			}
		}
		if n := counted(); n != 1 {
			t.Errorf("%g gaps are counted, one is a loss", n)
		}
	})
}
