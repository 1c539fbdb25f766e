package delivery_test

import (
	"testing"
	"testing/synctest"

	"github.com/mongostream/streamer/change/changetest"
	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/delivery/deliverytest"
	"github.com/mongostream/streamer/match"
	"github.com/mongostream/streamer/oplog/oplogtest"
)

// lefts subscribes to everything, and to the even documents with what leaves them.
func lefts(t *testing.T, fresh bool) []delivery.Subscription {
	return append(deliverytest.Everything(t), delivery.Subscription{
		ID: "even", Program: deliverytest.Compile(t, match.Filter{Source: "doc.v % 2 == 0"}), Leaves: true, Fresh: fresh,
	})
}

// All entries of one position are in one batch, however full it is: whoever has had the end of a batch drops the rest of its position.
func TestEntriesOfAPositionAreOneUnit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{ReplyEvents: 2000}
		source.Tick(1)
		b := begin(t, source, delivery.Config{})
		defer b.end()
		s := b.open(delivery.SessionConfig{Start: delivery.Place{At: b.log.End()}}, lefts(t, true))
		deliverytest.Receive(t, s, 0)
		events := deliverytest.Inserts(delivery.MaxBatchEvents/2, 1)
		for i := range events {
			events[i].Value = 2
		}
		source.Append(append(events, changetest.Event{Op: "replace", ID: 1, Value: 3})...)
		var all []*delivery.Batch
		for n := 0; n < delivery.MaxBatchEvents/2+2; {
			for _, batch := range deliverytest.Receive(t, s, 1) {
				n += len(batch.Events)
				all = append(all, batch)
			}
		}
		for i, batch := range all[1:] {
			if len(batch.Events) > 0 && len(all[i].Events) > 0 && batch.Events[0].Ref == all[i].Events[len(all[i].Events)-1].Ref {
				t.Errorf("batch %d begins at the position at which the one before it ends", batch.Seq)
			}
		}
	})
}

// A document that stops matching is told of as left unless it is known that the subscriber does not have it.
func TestLeftIsToldUnlessKnownBetter(t *testing.T) {
	for name, c := range map[string]struct {
		fresh bool
		cfg   delivery.SessionConfig
		want  int
	}{
		"never sent to a fresh subscription": {true, delivery.SessionConfig{}, 0},
		"unknown what was sent before":       {false, delivery.SessionConfig{}, 1},
		"subscribed for a snapshot":          {false, delivery.SessionConfig{Snapshot: true}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				source := &oplogtest.Log{}
				source.Tick(1)
				b := begin(t, source, delivery.Config{})
				defer b.end()
				c.cfg.Start = delivery.Place{At: b.log.End()}
				s := b.open(c.cfg, lefts(t, c.fresh)[1:])
				synctest.Wait()
				source.Append(changetest.Event{Op: "replace", ID: 1, Value: 3}, changetest.Event{Op: "replace", ID: 2, Value: 4})
				got := 0
				for _, batch := range deliverytest.Receive(t, s, 1+c.want) {
					got += len(batch.Events)
				}
				if got != 1+c.want {
					t.Errorf("%d events, want %d", got, 1+c.want)
				}
			})
		})
	}
}

// A change that the operations of a subscription hide, and after which the document matches, is no leaving.
func TestHiddenChangeIsNoLeaving(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{}
		source.Tick(1)
		b := begin(t, source, delivery.Config{})
		defer b.end()
		ops, err := match.ParseOps([]string{"insert", "delete"})
		if err != nil {
			t.Fatal(err)
		}
		s := b.open(delivery.SessionConfig{Start: delivery.Place{At: b.log.End()}}, []delivery.Subscription{{
			ID: "even", Program: deliverytest.Compile(t, match.Filter{Source: "doc.v % 2 == 0", Ops: ops}), Leaves: true,
		}})
		synctest.Wait()
		source.Append(
			changetest.Event{ID: 1, Value: 2}, changetest.Event{Op: "replace", ID: 1, Value: 4}, changetest.Event{Op: "replace", ID: 1, Value: 5},
			changetest.Event{ID: 2, Value: 2},
		)
		if got := deliverytest.Refs(deliverytest.Receive(t, s, 3)); len(got) != 3 {
			t.Errorf("%d events, want the inserts and the leaving", len(got))
		}
	})
}

// What sessions remember of the documents that they were sent is in the budget, leaves room for what they are sent, and is given back.
func TestRememberedDocumentsAreInTheBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const budget = 2 << 20
		source := &oplogtest.Log{ReplyEvents: 200}
		source.Tick(1)
		b := begin(t, source, delivery.Config{QueueBytes: budget})
		defer b.end()
		var sessions []*delivery.Session
		for range 10 {
			sessions = append(sessions, b.open(delivery.SessionConfig{Start: delivery.Place{At: b.log.End()}}, lefts(t, true)[1:]))
		}
		synctest.Wait()
		const n = 3000
		for id := 0; id < n; id += 100 {
			events := deliverytest.Inserts(100, int64(id))
			for i := range events {
				events[i].Value = 2
			}
			source.Append(events...)
			synctest.Wait()
			for _, s := range sessions {
				if _, err := s.Ack(deliverytest.Last(deliverytest.Receive(t, s, 100)).Seq); err != nil {
					t.Fatal(err)
				}
			}
		}
		held := b.hub.Load().Held
		if held < budget/8 || held > budget/2 {
			t.Errorf("%d bytes are held of %d, want what some remember", held, budget)
		}
		source.Append(changetest.Event{Op: "replace", ID: n - 1, Value: 3}) // which nobody remembers any more
		for _, s := range sessions {
			deliverytest.Receive(t, s, 1)
			s.Close(nil)
		}
		synctest.Wait()
		if held := b.hub.Load().Held; held != 0 {
			t.Errorf("%d bytes are held by nobody", held)
		}
	})
}
