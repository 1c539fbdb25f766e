package delivery_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/change/changetest"
	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/delivery/deliverytest"
	"github.com/mongostream/streamer/oplog/oplogtest"
)

// A session that is to read anew leaves the live path when it attaches a partition, also one whose
// place is its own, and comes back when it has read everything up to the time, not before.
func TestSessionReadsAnewBeforeItIsLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{}
		b := begin(t, source, delivery.Config{})
		defer b.end()
		s := b.open(delivery.SessionConfig{Attached: true, Owner: true}, deliverytest.Everything(t))
		attach := func(p change.Partition) {
			places := map[change.Partition]delivery.Place{p: {At: b.hub.Position()}}
			if err := s.Attach(places, map[change.Partition]change.Term{p: {Partition: p, Context: t.Context()}}, nil); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		source.Tick(1)
		time.Sleep(2 * time.Second)
		attach(0)
		is := func(when string, live bool, streams int) {
			t.Helper()
			if st, open, opened := s.State(), 0, 0; st.Live != live {
				t.Errorf("%s: on the live path: %t", when, st.Live)
			} else if open, _, opened = source.Streams(); opened != streams || open > 1 == live {
				t.Errorf("%s: %d of %d streams are open", when, open, opened)
			}
		}
		is("at first", true, 1)
		attach(1)
		is("in place", true, 1)
		_, now := source.Reach()
		time.Sleep(time.Second)
		s.Reread(change.Timestamp{T: now.T + 10, I: 1})
		attach(2)
		is("anew", false, 2)
		source.Append(changetest.Event{})
		time.Sleep(2 * time.Second)
		is("before the time", false, 2)
		source.Tick(10)
		time.Sleep(2 * time.Second)
		is("at the time", true, 2)
		source.Append(changetest.Event{})
		time.Sleep(2 * time.Second)
		is("after it", true, 2)
	})
}
