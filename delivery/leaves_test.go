package delivery_test

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

// All entries of one position are in one batch, however full it is: whoever has had the end of a
// batch drops the rest of its position.
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

// Whatever bounds a batch, a queue or the budget, all entries of a position are in one batch, next
// to each other, and each comes once in a session.
func TestPositionsAreNeverSplit(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		steps := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) step {
			return step{
				do: rapid.SampledFrom([]string{"change", "change", "change", "large", "many", "drop", "receive", "receive", "receive", "ack", "ack", "crash"}).Draw(rt, "do"),
				n:  rapid.IntRange(0, 40).Draw(rt, "n"), m: rapid.IntRange(0, 10).Draw(rt, "m"),
			}
		}), 1, 60).Draw(rt, "steps")
		cfg := delivery.Config{
			CreditEvents: rapid.SampledFrom([]int{1, 2, 7, 5000}).Draw(rt, "events"), CreditBytes: rapid.SampledFrom([]int{1, 1000, 1 << 20}).Draw(rt, "bytes"),
			QueueBytes: rapid.SampledFrom([]int{0, 1000, 100_000}).Draw(rt, "budget"),
		}
		reply, fresh := rapid.IntRange(1, 3000).Draw(rt, "reply"), rapid.Bool().Draw(rt, "fresh")
		var failure string
		synctest.Test(t, func(t *testing.T) { failure = split(t, cfg, reply, fresh, steps) })
		if failure != "" {
			rt.Fatal(failure)
		}
	})
}

// split drives one subscriber that gets changes in several forms, and what leaves. It returns what
// was split.
func split(t *testing.T, cfg delivery.Config, reply int, fresh bool, steps []step) (failure string) {
	source := &oplogtest.Log{ReplyEvents: reply}
	source.Tick(1)
	b := begin(t, source, cfg)
	defer b.end()
	subs := append(lefts(t, fresh), lefts(t, false)[1], lefts(t, false)[0])
	subs[2].ID, subs[2].Form = "even as JSON", delivery.Form{Format: delivery.JSON}
	subs[3].ID, subs[3].Form = "one field", delivery.Form{Fields: []string{"v"}}
	u := &units{t: t}
	at := b.log.End()
	open := func() { u.begin(b.open(delivery.SessionConfig{Start: delivery.Place{At: at}, Subscriber: "s"}, subs)) }
	open()
	for _, st := range steps {
		e := changetest.Event{Op: "replace", ID: int64(st.m), Value: int64(1 + st.n%2)}
		switch st.do {
		case "change":
			source.Append(e)
		case "large":
			e.Pad = 300 << 10
			source.Append(e, e)
		case "many": // as many as nearly fill a batch
			for range delivery.MaxBatchEvents/3 - st.n/10 {
				source.Append(e)
			}
		case "drop":
			source.Append(changetest.Event{Op: "drop", Keyless: true})
		case "receive":
			u.receive()
		case "ack":
			u.ack(st.n)
		case "crash":
			at = u.session.State().At
			u.session.Close(nil)
			open()
			subs[1].Fresh = false
		}
	}
	for u.receive() {
		u.ack(1000)
	}
	return u.failure
}

// A units is a session whose positions are looked at.
type units struct {
	t       *testing.T
	session *delivery.Session
	seqs    []uint64
	over    map[change.Ref]bool // positions that have come
	failure string
}

func (u *units) begin(s *delivery.Session) {
	u.session, u.seqs, u.over = s, nil, make(map[change.Ref]bool)
}

func (u *units) receive() bool {
	ctx, cancel := context.WithTimeout(u.t.Context(), 3*time.Second)
	defer cancel()
	batches, _, err := u.session.Receive(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	if err != nil {
		u.failure = err.Error()
		return false
	}
	for _, b := range batches {
		u.look(b)
		u.seqs = append(u.seqs, b.Seq)
	}
	return true
}

// look looks at each position of a batch.
func (u *units) look(b *delivery.Batch) {
	for i := 0; i < len(b.Events); {
		ref, told := b.Events[i].Ref, make(map[string]int)
		if u.over[ref] {
			u.failure = fmt.Sprintf("batch %d goes on with a position, or repeats it", b.Seq)
		}
		u.over[ref] = true
		for ; i < len(b.Events) && b.Events[i].Ref == ref; i++ {
			for _, id := range b.Events[i].Subscriptions {
				told[id]++
			}
		}
		if told["all"] != 1 || told["one field"] != 1 || told["even"] > 1 || told["even as JSON"] > 1 {
			u.failure = fmt.Sprintf("batch %d has %v at a position", b.Seq, told)
		}
	}
}

func (u *units) ack(n int) {
	if n = min(n, len(u.seqs)); n == 0 {
		return
	}
	if _, err := u.session.Ack(u.seqs[n-1]); err != nil {
		u.failure = err.Error()
	}
	u.seqs = u.seqs[n:]
}

// A document that stops matching is told of as left unless it is known that the subscriber does not
// have it.
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

// A change that the operations of a subscription hide, and after which the document matches, is no
// leaving.
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

// The changes of other documents are no leavings from a filter for one.
func TestOtherDocumentsLeaveNoFilterForOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{}
		source.Tick(1)
		b := begin(t, source, delivery.Config{})
		defer b.end()
		ops, err := match.ParseOps([]string{"insert", "delete"})
		if err != nil {
			t.Fatal(err)
		}
		one := match.Filter{Document: string(change.AppendCanonical(nil, idValue(1))), Ops: ops}
		s := b.open(delivery.SessionConfig{Start: delivery.Place{At: b.log.End()}}, []delivery.Subscription{{ID: "one", Program: deliverytest.Compile(t, one), Leaves: true}})
		synctest.Wait()
		source.Append(changetest.Event{Op: "replace", ID: 2, Value: 1}, changetest.Event{ID: 3, Value: 1}, changetest.Event{ID: 1, Value: 1})
		synctest.Wait()
		if got := deliverytest.Refs(deliverytest.Receive(t, s, 1)); len(got) != 1 {
			t.Errorf("%d events, want the insert of the document", len(got))
		}
	})
}

// What sessions remember of the documents that they were sent is in the budget, leaves room for
// what they are sent, and is given back.
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
