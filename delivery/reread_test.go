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
		s.Reread(time.Now(), change.Timestamp{T: now.T + 10, I: 1})
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

// A session that reads anew keeps its stream while its subscriber has no credit.
func TestSlowSessionReadsAnewFromOneStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{ReplyEvents: 5}
		b := begin(t, source, delivery.Config{})
		defer b.end()
		source.Tick(1)
		time.Sleep(2 * time.Second)
		from := b.hub.Position()
		source.Append(deliverytest.Inserts(100, 0)...)
		time.Sleep(2 * time.Second)
		s := b.open(delivery.SessionConfig{Attached: true, Owner: true, CreditEvents: 10}, deliverytest.Everything(t))
		_, now := source.Reach()
		s.Reread(time.Now(), now)
		places, terms := make(map[change.Partition]delivery.Place), make(map[change.Partition]change.Term)
		for p := range change.Partition(partitions) {
			places[p], terms[p] = delivery.Place{At: from}, change.Term{Partition: p, Context: t.Context()}
		}
		if err := s.Attach(places, terms, nil); err != nil {
			t.Fatal(err)
		}
		for got := 0; got < 100; {
			synctest.Wait() // it has no credit
			batches, _, err := s.Receive(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, batch := range batches {
				got += len(batch.Events)
			}
			if _, err := s.Ack(batches[len(batches)-1].Seq); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(2 * time.Second)
		if open, _, opened := source.Streams(); open != 1 || opened != 2 {
			t.Errorf("%d of %d streams are open", open, opened)
		}
		if !s.State().Live {
			t.Error("the session is not on the live path")
		}
	})
}
