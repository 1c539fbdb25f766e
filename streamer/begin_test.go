package streamer_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/change/changetest"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/delivery/deliverytest"
	"github.com/mongostream/streamer/oplog/oplogtest"
	"github.com/mongostream/streamer/snapshot"
	"github.com/mongostream/streamer/streamer"
)

// A shared subscriber that starts with a snapshot has all documents left in every partition before
// anything is served: from now on in a new cluster, and from the cluster's new beginning after an
// adoption or a repartition. Where there is a checkpoint, that counts.
func TestSharedSubscriberBeginsWithAllDocumentsLeft(t *testing.T) {
	for incarnation := range uint64(2) {
		synctest.Test(t, func(t *testing.T) {
			source := &oplogtest.Log{}
			source.Tick(1)
			w := newWorld(t, source)
			w.origin.Incarnation += incarnation
			source.Append(changetest.Event{ID: 1})
			_, want := source.Reach()
			if incarnation > 0 {
				want = w.origin.Start
			}
			begins := func(n *streamer.Node) {
				shared, err := n.Share(t.Context(), "sink", deliverytest.Everything(t))
				if err != nil {
					t.Fatal(err)
				}
				shared.Begin(streamer.StartSnapshot, time.Time{})
			}
			stored := func() []checkpoint.Checkpoint {
				all, err := w.store.Load(t.Context(), "sink")
				if err != nil || len(all) != partitions {
					t.Fatalf("%d checkpoints, %v", len(all), err)
				}
				return all
			}
			n := w.start("n", begins)
			n.ownIn(t, w.origin.Incarnation, 1)
			for _, c := range stored() {
				if c.Position.Time != want || len(c.Snapshots) != 1 || c.Snapshots[0].Done || c.Snapshots[0].Reason != snapshot.Start {
					t.Errorf("incarnation %d: %+v, want a snapshot at %s", w.origin.Incarnation, c, want)
				}
			}
			n.stop(t)

			all := stored()
			for i := range all {
				all[i].Snapshots, all[i].Epoch = nil, change.Epoch{Incarnation: w.origin.Incarnation, Revision: 1} // as ownIn has them
			}
			if err := errors.Join(w.store.Save(t.Context(), all)...); err != nil {
				t.Fatal(err)
			}
			n = w.start("n", begins)
			n.ownIn(t, w.origin.Incarnation, 2)
			n.stop(t)
			for _, c := range stored() {
				if len(c.Snapshots) != 0 {
					t.Errorf("incarnation %d: it begins again: %+v", w.origin.Incarnation, c)
				}
			}
		})
	}
}

// After an adoption a subscriber that begins may be one that has lost its checkpoints: it begins at
// the origin, and what the log has lost since is a loss. The node may have read the origin before.
func TestSubscriberThatBeginsAfterAnAdoptionHasItsLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{}
		source.Append(deliverytest.Inserts(20, 0)...)
		source.Truncate(5)
		w := newWorld(t, source)
		adopted := w.origin
		adopted.Incarnation, adopted.Start = 2, change.Timestamp{T: 1, I: 1}
		var shared *streamer.Shared
		n := w.start("a", sharing(t, &shared)) // its origin is later
		defer n.stop(t)
		if err := w.store.Adopt(t.Context(), w.origin, adopted); err != nil {
			t.Fatal(err)
		}
		n.ownIn(t, 2, 1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		for {
			batches, err := shared.Receive(ctx)
			if err != nil {
				t.Fatal(err)
			}
			for _, b := range batches {
				if b.Loss != nil {
					return
				}
				if len(b.Events) > 0 {
					t.Fatalf("%d changes without a loss before them", len(b.Events))
				}
			}
		}
	})
}

// Targets know events by the incarnation of their term, also if the node has read the origin before
// an adoption, and after a rewind.
func TestEventsAreOfTheIncarnationOfTheirTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{}
		source.Tick(1)
		w := newWorld(t, source)
		var shared *streamer.Shared
		n := w.start("a", sharing(t, &shared))
		defer n.stop(t)
		n.ownIn(t, 2, 1)
		source.Append(deliverytest.Inserts(20, 0)...)
		want := func(generation int) {
			t.Helper()
			batches := receiveShared(t, shared, 20)
			if err := shared.AwaitPlaces(t.Context()); err != nil { // as a sink does after a rewind
				t.Fatal(err)
			}
			for _, b := range batches {
				for i := range b.Events {
					p := b.Events[i].Partition
					_, incarnation, ok := shared.Lease(p, b.Seq)
					if !ok || !strings.HasPrefix(incarnation, "2-") || !strings.HasSuffix(incarnation, fmt.Sprint("-", generation)) {
						t.Fatalf("partition %d: incarnation %q, %t, want 2 and generation %d", p, incarnation, ok, generation)
					}
				}
			}
		}
		want(0)
		for p := range change.Partition(partitions) {
			if _, err := w.store.Rewind(t.Context(), checkpoint.Key{Subscriber: "stdout", Shared: true, Partition: p}, change.At(w.origin.Start), "operator", "a test"); err != nil {
				t.Fatal(err)
			}
		}
		n.Rewound("stdout")
		want(1)
	})
}

// A partition that comes for the first time is no restart; one that comes again is.
func TestRestartsOfPartitionsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{}
		source.Tick(1)
		n := newWorld(t, source).start("n", nil)
		counts := func(want float64) {
			t.Helper()
			families, err := n.metrics.Gather()
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range families {
				if f.GetName() != "streamer_partition_restarts_total" {
					continue
				}
				if got := f.GetMetric()[0].GetCounter().GetValue(); got != want {
					t.Errorf("%v restarts, want %v", got, want)
				}
				return
			}
			t.Error("there is no such metric")
		}
		first := n.own(t, 1)
		counts(0)
		n.Ended(first)
		n.own(t, 2)
		counts(partitions)
		n.stop(t)
	})
}

// A partition whose checkpoint is lost begins where nothing is missed: at the last entry of its
// history, or where the subscriber began. What it receives then has another incarnation, unless the
// history tells it.
func TestLostCheckpointsMissNothing(t *testing.T) {
	for _, c := range []struct {
		name    string
		history bool
		start   streamer.StartPolicy
	}{
		{"with its history", true, streamer.StartNow},
		{"without its history", false, streamer.StartNow},
		{"from the origin", false, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				source := &oplogtest.Log{}
				source.Tick(1)
				w := newWorld(t, source)
				var s *streamer.Shared
				begins := func(n *streamer.Node) {
					sharing(t, &s)(n)
					if c.start != 0 {
						s.Begin(c.start, time.Time{})
					}
				}
				n := w.start("a", begins)
				n.own(t, 1)
				source.Append(deliverytest.Inserts(40, 0)...)
				if err := s.Ack(deliverytest.Last(receiveShared(t, s, 40)).Seq); err != nil {
					t.Fatal(err)
				}
				n.stop(t)
				stored := func() []checkpoint.Checkpoint {
					all, err := w.store.Load(t.Context(), "stdout")
					if err != nil {
						t.Fatal(err)
					}
					return all
				}
				before := stored()[0]
				w.store.Lose(before.Key, !c.history)
				missed := source.Append(deliverytest.Inserts(40, 100)...)
				n = w.start("b", begins)
				n.own(t, 2)
				got := map[string]bool{}
				for _, ref := range deliverytest.Refs(receiveShared(t, s, len(missed))) {
					got[ref] = true
				}
				time.Sleep(time.Minute)
				for len(got) < len(missed) {
					for _, ref := range deliverytest.Refs(receiveShared(t, s, 1)) {
						got[ref] = true
					}
				}
				for _, ref := range deliverytest.Wanted(missed) {
					if !got[ref] {
						t.Errorf("%s is missing", ref)
					}
				}
				after := stored()[0]
				if after.Key != before.Key || (after.Incarnation(1) == before.Incarnation(1)) != c.history {
					t.Errorf("%s began %+v, then %+v", after.Key, before.Began, after.Began)
				}
				n.stop(t)
			})
		})
	}
}

// What was left of a snapshot that an operator asked for is read again in a partition that has lost
// its checkpoint, from the beginning.
func TestLostCheckpointsOweTheirSnapshots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{}
		source.Tick(1)
		w := newWorld(t, source)
		terms := termsOf(t.Context(), 1)
		if _, err := w.store.ClaimTerms(t.Context(), "stdout", terms); err != nil {
			t.Fatal(err)
		}
		owed := snapshot.Progress{Subscription: "a", Reason: snapshot.Operator, Number: 3}
		read := owed
		read.Listed = true
		read.Left = []snapshot.Left{{Namespace: change.Namespace{DB: "shop", Coll: "orders"}}}
		for _, term := range terms {
			if err := w.store.Save(t.Context(), []checkpoint.Checkpoint{{
				Key: checkpoint.Key{Subscriber: "stdout", Shared: true, Partition: term.Partition}, Partitions: partitions, Epoch: term.Epoch, Position: change.At(w.origin.Start),
				Snapshots: []snapshot.Progress{read, {Subscription: "b", Done: true}}, At: time.Now(), Reason: checkpoint.ReasonFinal,
			}})[0]; err != nil {
				t.Fatal(err)
			}
		}
		lost := checkpoint.Key{Subscriber: "stdout", Shared: true, Partition: 1}
		w.store.Lose(lost, false)
		var s *streamer.Shared
		n := w.start("a", sharing(t, &s))
		defer n.stop(t)
		n.own(t, 2)
		all, err := w.store.Load(t.Context(), "stdout")
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range all {
			if c.Key == lost && (len(c.Snapshots) != 1 || !c.Snapshots[0].Same(owed) || c.Snapshots[0].Number != owed.Number) {
				t.Errorf("%+v", c.Snapshots)
			}
		}
	})
}

// What an operator has moved a subscriber back to is missed by no partition without a checkpoint:
// one that was repartitioned since has a history of another life, at a later position, and one that
// is lost begins no later than the others were moved back to.
func TestPartitionsWithoutACheckpointMissNoRewind(t *testing.T) {
	for name, lose := range map[string]func(w *world, all []checkpoint.Checkpoint) uint64{
		"repartitioned twice": func(w *world, all []checkpoint.Checkpoint) uint64 {
			next := w.origin
			next.Incarnation++ // to where it was moved back, before anything
			if err := w.store.Adopt(w.t.Context(), w.origin, next); err != nil {
				w.t.Fatal(err)
			}
			w.origin = next
			for _, c := range all {
				w.store.Lose(c.Key, false)
			}
			return next.Incarnation
		},
		"lost after a rewind to before the beginning": func(w *world, all []checkpoint.Checkpoint) uint64 {
			for _, c := range all {
				if _, err := w.store.Rewind(w.t.Context(), c.Key, change.At(w.origin.Start), "operator", ""); err != nil {
					w.t.Fatal(err)
				}
			}
			w.store.Lose(all[0].Key, true)
			return w.origin.Incarnation
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				source := &oplogtest.Log{}
				source.Tick(1)
				w := newWorld(t, source)
				var s *streamer.Shared
				begins := func(n *streamer.Node) {
					sharing(t, &s)(n)
					s.Begin(streamer.StartNow, time.Time{})
				}
				again := source.Append(deliverytest.Inserts(40, 0)...)
				n := w.start("a", begins)
				n.own(t, 1)
				source.Append(deliverytest.Inserts(40, 100)...)
				if err := s.Ack(deliverytest.Last(receiveShared(t, s, 40)).Seq); err != nil {
					t.Fatal(err)
				}
				n.stop(t)
				all, err := w.store.Load(t.Context(), "stdout")
				if err != nil {
					t.Fatal(err)
				}
				incarnation := lose(w, all)
				n = w.start("b", begins)
				defer n.stop(t)
				n.ownIn(t, incarnation, 2)
				source.Append(deliverytest.Inserts(1, 1000)...)
				got := make(map[string]bool)
				for _, ref := range deliverytest.Refs(receiveShared(t, s, 81)) {
					got[ref] = true
				}
				for _, ref := range deliverytest.Wanted(again) {
					if !got[ref] {
						t.Errorf("%s is missing", ref)
					}
				}
			})
		})
	}
}
