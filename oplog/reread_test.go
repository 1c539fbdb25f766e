package oplog_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/change/changetest"
	"github.com/mongostream/streamer/oplog"
	"github.com/mongostream/streamer/oplog/oplogtest"
)

// A cursor that reads anew gets nothing, up to where it asks, that was read before it asked, whether
// the tail has it or a catch-up; after that it is at the tail. It waits for no other catch-up, also
// when there is no room for another stream.
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
			"anew":                 {oplog.Start{Position: from, Reread: asks}, []int64{2, 2, 2, 2, 2}},
			"anew, from the end":   {oplog.Start{Position: change.At(change.Timestamp{T: last.T, I: 2}), Reread: asks}, []int64{2, 2}},
			"from the end":         {oplog.Start{Position: change.At(change.Timestamp{T: last.T, I: 2})}, []int64{1, 1}},
			"anew, what is behind": {oplog.Start{Position: change.At(change.Timestamp{T: last.T, I: 2}), Reread: oplog.Reread{Since: time.Now(), Until: change.Timestamp{T: last.T, I: 1}}}, []int64{1, 1}},
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
