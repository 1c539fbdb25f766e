package streamer_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/change/changetest"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/delivery/deliverytest"
	"github.com/mongostream/streamer/gap"
	"github.com/mongostream/streamer/health"
	"github.com/mongostream/streamer/notice"
	"github.com/mongostream/streamer/oplog"
	"github.com/mongostream/streamer/oplog/oplogtest"
	"github.com/mongostream/streamer/streamer"
)

// stored returns the checkpoint of an exclusive subscriber past whatever is in the way.
func (w *world) stored(subscriber string) checkpoint.Checkpoint {
	w.t.Helper()
	all, err := w.store.Memory.Load(w.t.Context(), subscriber)
	if err != nil || len(all) != 1 {
		w.t.Fatalf("%+v, %v", all, err)
	}
	return all[0]
}

// wantNobodyElseHears fails the test if a loss of single subscribers is in the gap log, or on the
// board under one of the kinds.
func (w *world) wantNobodyElseHears(kinds ...string) {
	w.t.Helper()
	if gaps, err := w.store.Gaps(w.t.Context()); err != nil || len(gaps) != 0 {
		w.t.Errorf("the gap log has %+v, %v", gaps, err)
	}
	posted, _ := w.board.Since(0)
	for _, n := range posted {
		for _, kind := range kinds {
			if n.Kind == kind {
				w.t.Errorf("everybody is told %+v", n)
			}
		}
	}
}

// What a subscriber loses because it comes back too late is its own: its checkpoint has it from the
// write on that passes it, however often the store fails before, and nobody else hears of it,
// however many come back too late, and however often.
func TestLossesOfOneSubscriberAreItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{ReplyEvents: 5}
		source.Tick(1)
		w := newWorld(t, source)
		w.board = notice.NewBoard(notice.Config{})
		n := w.start("a", nil)
		synctest.Wait()
		request := streamer.Request{Subscriber: "late", Process: "1", Started: time.Now(), Start: streamer.StartNow}
		e := w.connect(n, request)
		events := source.Append(deliverytest.Inserts(5, 0)...)
		if err := e.Ack(deliverytest.Last(deliverytest.Receive(t, e.Session(), 5)).Seq); err != nil {
			t.Fatal(err)
		}
		e.Close(t.Context(), nil)
		n.stop(t)
		source.Append(deliverytest.Inserts(20, 5)...)
		source.Truncate(5)

		n = w.start("b", nil)
		defer n.stop(t)
		synctest.Wait()
		e = w.connect(n, request)
		batches := deliverytest.Receive(t, e.Session(), 6)
		loss := batches[1].Loss // after the empty one that says where it begins
		if loss == nil || !loss.Own || loss.From.Compare(events[4].Position()) != 0 {
			t.Fatalf("%+v", batches)
		}
		w.store.away.Store(true)
		if err := e.Ack(deliverytest.Last(batches).Seq); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if c := w.stored("late"); len(c.Losses) != 0 || c.Position.After(loss.From) {
			t.Errorf("while the store is away: %+v", c)
		}
		w.store.away.Store(false)
		time.Sleep(time.Minute)
		c := w.stored("late")
		if len(c.Losses) != 1 || c.Losses[0].Reason != string(gap.HistoryLost) || c.Losses[0].From.Time != loss.From.Time || c.Losses[0].To.Time != loss.To.Time {
			t.Errorf("its checkpoint has %+v, not %+v", c.Losses, loss)
		}
		if c.Position.Compare(loss.To) < 0 {
			t.Errorf("it is at %s", c.Position)
		}
		if all := n.Subscribers(); len(all) != 1 || all[0].Lost != 1 {
			t.Errorf("%+v", all)
		}
		families, err := n.metrics.Gather()
		counted := map[string]float64{}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				if f.GetName() == "streamer_subscriber_losses_total" {
					counted[m.GetLabel()[0].GetValue()] = m.GetCounter().GetValue()
				}
			}
		}
		if err != nil || len(counted) != 1 || counted["late"] != 1 {
			t.Errorf("counted %v, %v", counted, err)
		}
		e.Close(t.Context(), nil)

		const many = 20
		for i := range many { // and of each many with positions of their own, which nobody has checked
			name := fmt.Sprintf("many-%d", i%2)
			e := w.connect(n, streamer.Request{Subscriber: name, Process: "1", Started: time.Now(), Known: true, At: delivery.Place{At: change.At(events[i%5].Position().Time)}})
			if err := e.Ack(deliverytest.Last(deliverytest.Receive(t, e.Session(), 6)).Seq); err != nil {
				t.Fatal(err)
			}
			e.Close(t.Context(), nil)
		}
		for _, name := range []string{"many-0", "many-1"} {
			if c := w.stored(name); len(c.Losses) == 0 || len(c.Losses) > checkpoint.MaxLosses {
				t.Errorf("the checkpoint of %s has %+v", name, c.Losses)
			}
		}
		w.wantNobodyElseHears(notice.KindResync, notice.KindSubscriberLoss)
	})
}

// A sink that comes back too late is an operator's: they are told of it, and its checkpoints have
// the loss. It is nobody else's.
func TestLossOfASharedSubscriberIsItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{ReplyEvents: 5}
		source.Tick(1)
		w := newWorld(t, source)
		w.board = notice.NewBoard(notice.Config{})
		var s *streamer.Shared
		n := w.start("a", sharing(t, &s))
		n.own(t, 1)
		source.Append(deliverytest.Inserts(20, 0)...)
		if err := s.Ack(deliverytest.Last(receiveShared(t, s, 20)).Seq); err != nil {
			t.Fatal(err)
		}
		n.stop(t)
		source.Append(deliverytest.Inserts(20, 20)...)
		source.Tick(300) // so long that the tail does not begin where the sink is
		source.Append(deliverytest.Inserts(5, 40)...)
		source.Truncate(5)

		n = w.start("b", sharing(t, &s))
		n.own(t, 2)
		if err := s.Ack(deliverytest.Last(receiveShared(t, s, 5)).Seq); err != nil {
			t.Fatal(err)
		}
		n.stop(t)
		all, err := w.store.Load(t.Context(), "stdout")
		if err != nil || len(all) != partitions {
			t.Fatalf("%d, %v", len(all), err)
		}
		for _, c := range all {
			if len(c.Losses) != 1 || c.Losses[0].Reason != string(gap.HistoryLost) || c.Position.Time.Compare(c.Losses[0].To.Time) < 0 {
				t.Errorf("partition %d is at %s, with %+v", c.Partition, c.Position, c.Losses)
			}
		}
		w.wantNobodyElseHears(notice.KindResync)
		told := 0
		posted, _ := w.board.Since(0)
		for _, n := range posted {
			if n.Kind == notice.KindSubscriberLoss && n.Fields["subscriber"] == "stdout" {
				told++
			}
		}
		if told != 1 {
			t.Errorf("operators are told %d times: %+v", told, posted)
		}
	})
}

// That a collection was renamed onto another one, as $out does, is no fault of the service, and
// pages nobody.
func TestRenameIsNoFault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{}
		source.Tick(1)
		w := newWorld(t, source)
		w.board = notice.NewBoard(notice.Config{})
		var shared *streamer.Shared
		n := w.start("a", sharing(t, &shared))
		defer n.stop(t)
		n.own(t, 1)
		synctest.Wait()
		before, _ := w.board.Since(0)
		source.Append(changetest.Event{Op: "rename", Coll: "elsewhere", To: "orders", Keyless: true}, changetest.Event{ID: 1})
		got := receiveShared(t, shared, 2)
		if !slices.ContainsFunc(got, func(b *delivery.Batch) bool { return b.Loss != nil && b.Loss.Reason == string(gap.Renamed) }) {
			t.Fatalf("the subscriber hears of no rename: %v", deliverytest.Refs(got))
		}
		for _, s := range n.Subscribers() {
			if s.Losses > 0 {
				t.Errorf("%s has %d losses to acknowledge", s.Name, s.Losses)
			}
		}
		for _, s := range n.Status() {
			if s.State == health.Stale {
				t.Errorf("partition %d is %s", s.Partition, s.State)
			}
		}
		n.Lost(oplog.Loss{Reason: gap.HistoryLost, Namespaces: []string{"shop.orders"}})
		posted, _ := w.board.Since(0)
		posted = posted[len(before):]
		if len(posted) != 2 || posted[0].Level != notice.Info || posted[1].Level != notice.Critical || !strings.Contains(posted[0].Text, "renamed onto shop.orders") {
			t.Errorf("%+v", posted)
		}
	})
}

// A subscriber that began with the log, and that an operator moves back to before it, is told what
// the log does not have any more.
func TestRewindToBeforeTheLogHasItsLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{}
		events := source.Append(deliverytest.Inserts(20, 0)...)
		source.Truncate(15)
		w := newWorld(t, source)
		n := w.start("a", nil)
		defer n.stop(t)
		synctest.Wait()
		e := w.connect(n, streamer.Request{Subscriber: "x", Process: "1", Started: time.Now(), Start: streamer.StartEarliest})
		first := deliverytest.Receive(t, e.Session(), 14)
		lost := func(b *delivery.Batch) bool { return b.Loss != nil && b.Loss.Kind != delivery.Rewound }
		if slices.ContainsFunc(first, lost) {
			t.Error("a loss although it has asked for the beginning of the log")
		}
		if err := e.Ack(deliverytest.Last(first).Seq); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		if _, err := w.store.Rewind(t.Context(), checkpoint.Key{Subscriber: "x"}, events[1].Position(), "operator", "test"); err != nil {
			t.Fatal(err)
		}
		n.Rewound("x")
		if !slices.ContainsFunc(deliverytest.Receive(t, e.Session(), 14), lost) {
			t.Error("changes without the loss before them")
		}
	})
}

// A subscriber that an operator has moved back has lost nothing: no partition is stale, and nobody
// is told of a loss that it must acknowledge.
func TestRewindIsNoLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{}
		source.Tick(1)
		w := newWorld(t, source)
		var shared *streamer.Shared
		n := w.start("a", sharing(t, &shared))
		defer n.stop(t)
		n.own(t, 1)
		synctest.Wait()
		e := w.connect(n, streamer.Request{Subscriber: "x", Process: "1", Started: time.Now(), Start: streamer.StartNow})
		events := source.Append(deliverytest.Inserts(20, 0)...)
		if err := errors.Join(e.Ack(deliverytest.Last(deliverytest.Receive(t, e.Session(), 20)).Seq), shared.Ack(deliverytest.Last(receiveShared(t, shared, 20)).Seq)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute) // until quiet partitions have a checkpoint, too
		saved, err := w.store.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range saved {
			if _, err := w.store.Rewind(t.Context(), c.Key, events[0].Position(), "operator", "test"); err != nil {
				t.Fatal(err)
			}
		}
		n.Rewound("x")
		n.Rewound("stdout")
		again, sunk := deliverytest.Receive(t, e.Session(), 20), receiveShared(t, shared, 19)
		rewound := func(b *delivery.Batch) bool { return b.Loss != nil && b.Loss.Kind == delivery.Rewound }
		if !slices.ContainsFunc(again, rewound) || !slices.ContainsFunc(sunk, rewound) {
			t.Error("they are not told that they were moved back")
		}
		for _, s := range n.Subscribers() {
			if s.Unacknowledged == 0 || s.Losses > 0 {
				t.Errorf("%s has %d entries and %d losses to acknowledge", s.Name, s.Unacknowledged, s.Losses)
			}
		}
		for _, s := range n.Status() {
			if s.State == health.Stale {
				t.Errorf("partition %d is %s", s.Partition, s.State)
			}
		}
	})
}
