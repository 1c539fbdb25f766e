package streamer_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/delivery/deliverytest"
	"github.com/mongostream/streamer/oplog/oplogtest"
	"github.com/mongostream/streamer/snapshot"
	"github.com/mongostream/streamer/streamer"
)

// A snapshot that an operator has begun is in the checkpoint when that is answered, although the
// subscriber has acknowledged nothing since.
func TestAcceptedSnapshotIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{}
		source.Tick(1)
		w := newWorld(t, source)
		w.documents = &collection{log: source, n: 5, page: 5}
		n := w.start("a", nil)
		defer n.stop(t)
		e, err := n.Connect(t.Context(), streamer.Request{Subscriber: "orders", Process: "p", Started: time.Now(), Start: streamer.StartNow}, deliverytest.Everything(t))
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		source.Append(deliverytest.Inserts(3, 0)...)
		deliverytest.Receive(t, e.Session(), 3)
		if done, connected := n.OperateSnapshot("orders", delivery.BeginSnapshot, "", change.Namespace{}); done != 1 || !connected {
			t.Fatalf("%d begun, connected: %t", done, connected)
		}
		stored, err := w.store.Load(t.Context(), "orders")
		if err != nil || len(stored) != 1 || len(stored[0].Snapshots) != 1 || stored[0].Snapshots[0].Done || stored[0].Snapshots[0].Reason != snapshot.Operator {
			t.Errorf("%+v, %v", stored, err)
		}
		e.Session().Close(nil)
		synctest.Wait()
		if done, connected := n.OperateSnapshot("orders", delivery.BeginSnapshot, "", change.Namespace{}); done != 0 || connected {
			t.Errorf("%d begun of a session that has ended, connected: %t", done, connected)
		}
	})
}

// A checkpoint that could not be loaded is not one that says nothing: what is left of a snapshot
// stays in it, and no snapshot begins meanwhile. The subscriber comes again when the store answers.
func TestCheckpointThatIsNotLoadedStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{}
		source.Tick(1)
		w := newWorld(t, source)
		n := w.start("a", nil) // which has no source of snapshots: they stay as they are
		defer n.stop(t)
		subscriptions := deliverytest.Everything(t)
		r := streamer.Request{Subscriber: "orders", Process: "p", Started: time.Now(), Start: streamer.StartSnapshot}
		e, err := n.Connect(t.Context(), r, subscriptions)
		if err != nil {
			t.Fatal(err)
		}
		source.Append(deliverytest.Inserts(3, 0)...)
		last := deliverytest.Last(deliverytest.Receive(t, e.Session(), 3))
		if err := e.Ack(last.Seq); err != nil {
			t.Fatal(err)
		}
		e.Close(t.Context(), nil)
		left := func() []snapshot.Progress {
			stored, err := w.store.Memory.Load(t.Context(), "orders")
			if err != nil || len(stored) != 1 {
				t.Fatalf("%+v, %v", stored, err)
			}
			return stored[0].Snapshots
		}
		before := delivery.Stamp(left())
		if before == 0 {
			t.Fatal("nothing is left")
		}
		w.store.unread.Store(true)
		r.Known, r.At = true, delivery.Place{At: last.To}
		if e, err = n.Connect(t.Context(), r, subscriptions); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		source.Append(deliverytest.Inserts(3, 10)...)
		if err := e.Ack(deliverytest.Last(deliverytest.Receive(t, e.Session(), 3)).Seq); err != nil {
			t.Fatal(err)
		}
		if all := e.Session().Snapshots(); len(all) > 0 {
			t.Errorf("%+v has begun", all)
		}
		time.Sleep(20 * time.Second)
		if got := delivery.Stamp(left()); got != before {
			t.Errorf("left is %+v", left())
		}
		w.store.unread.Store(false)
		<-e.Session().Done()
		e.Close(t.Context(), nil)
		if got := delivery.Stamp(left()); got != before {
			t.Errorf("left is %+v in the end", left())
		}
	})
}

// A snapshot that an operator has begun for a subscriber that resumes at an earlier position than
// its checkpoint, as clients of event streams do, comes when it connects again.
func TestSnapshotAcceptedBeforeTheCheckpointIsOwed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{}
		source.Tick(1)
		w := newWorld(t, source)
		w.documents = &collection{log: source, n: 5, page: 5}
		n := w.start("a", nil)
		defer n.stop(t)
		r := streamer.Request{Subscriber: "orders", Process: "p", Started: time.Now(), Start: streamer.StartNow}
		connect := func() *streamer.Exclusive {
			e, err := n.Connect(t.Context(), r, deliverytest.Everything(t))
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			return e
		}
		e := connect()
		source.Append(deliverytest.Inserts(3, 0)...)
		batches := deliverytest.Receive(t, e.Session(), 3)
		if err := e.Ack(deliverytest.Last(batches).Seq); err != nil {
			t.Fatal(err)
		}
		e.Close(t.Context(), nil)
		source.Stall(true) // so that the session stays where it is
		r.Known, r.Stamped, r.At = true, true, delivery.Place{Ref: deliverytest.Last(batches).Events[0].Ref}
		e = connect()
		if done, connected := n.OperateSnapshot("orders", delivery.BeginSnapshot, "", change.Namespace{}); done != 1 || !connected {
			t.Fatalf("%d begun, connected: %t", done, connected)
		}
		e.Close(t.Context(), nil)
		source.Stall(false)
		e = connect()
		documents := 0
		for documents < 5 {
			for _, b := range deliverytest.Receive(t, e.Session(), 1) {
				for _, event := range b.Events {
					if event.Snapshot {
						documents++
					}
				}
				if err := e.Ack(b.Seq); err != nil {
					t.Fatal(err)
				}
			}
		}
		e.Close(t.Context(), nil)
	})
}

// What an operator begins while a subscriber of the same process connects again is known to the new
// session, or was not accepted.
func TestSnapshotAcceptedWhileTheSubscriberConnectsIsOwed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{}
		source.Tick(1)
		w := newWorld(t, source)
		n := w.start("a", nil) // which has no source of snapshots: they stay as they are
		defer n.stop(t)
		m := w.start("b", nil)
		defer m.stop(t)
		r := streamer.Request{Subscriber: "orders", Process: "p", Started: time.Now(), Start: streamer.StartNow}
		first, err := n.Connect(t.Context(), r, deliverytest.Everything(t))
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		begun := 0
		begin := func() {
			w.store.loaded = nil
			done, _ := n.OperateSnapshot("orders", delivery.BeginSnapshot, "", change.Namespace{})
			begun += done
		}
		w.store.loaded = begin
		second, err := m.Connect(t.Context(), r, deliverytest.Everything(t))
		if err != nil {
			t.Fatal(err)
		}
		if all := second.Session().Snapshots(); begun != 1 || len(all) != 1 || all[0].Done || all[0].Reason != snapshot.Operator {
			t.Errorf("%d begun, the session has %+v", begun, all)
		}
		begin() // at the first session, which nobody has closed yet
		if begun != 1 {
			t.Errorf("a session that has been replaced has accepted a snapshot")
		}
		first.Close(t.Context(), nil)
		second.Close(t.Context(), nil)
	})
}

// A snapshot that an operator begins at the moment at which its subscriber connects is kept, or was
// not accepted.
func TestSnapshotAcceptedFromAConnectingSessionIsKept(t *testing.T) {
	source := &oplogtest.Log{}
	source.Tick(1)
	w := newWorld(t, source)
	n := w.start("a", nil)
	defer n.stop(t)
	for i := range 20 {
		name, accepted := fmt.Sprint("orders", i), make(chan int)
		go func() {
			for {
				if done, connected := n.OperateSnapshot(name, delivery.BeginSnapshot, "", change.Namespace{}); connected {
					accepted <- done
					return
				}
			}
		}()
		e, err := n.Connect(t.Context(), streamer.Request{Subscriber: name, Process: "p", Started: time.Now(), Start: streamer.StartNow}, deliverytest.Everything(t))
		if err != nil {
			t.Fatal(err)
		}
		done := <-accepted
		stored, err := w.store.Load(t.Context(), name)
		if err != nil || done != 1 || len(stored) != 1 || len(stored[0].Snapshots) != 1 || stored[0].Snapshots[0].Done {
			t.Errorf("%d begun, the store has %+v, %v", done, stored, err)
		}
		e.Close(t.Context(), nil)
	}
}
