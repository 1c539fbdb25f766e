package streamer_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/delivery/deliverytest"
	"github.com/mongostream/streamer/gap"
	"github.com/mongostream/streamer/oplog/oplogtest"
	"github.com/mongostream/streamer/snapshot"
	"github.com/mongostream/streamer/streamer"
)

// attached connects a subscriber that has its partitions attached.
func attached(t *testing.T, n *node, recovers bool) *streamer.Exclusive {
	t.Helper()
	subscriptions := deliverytest.Everything(t)
	subscriptions[0].Recover = recovers
	e, err := n.Connect(t.Context(), streamer.Request{
		Subscriber: "orders", Process: "p", Started: time.Now(), Start: streamer.StartNow, Attached: true,
	}, subscriptions)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// attach attaches the partitions of which only() is true, at the end of the log, or where the
// checkpoint is.
func (w *world) attach(e *streamer.Exclusive, only func(change.Partition) bool) {
	w.t.Helper()
	_, end := w.source.Reach()
	if stored, err := w.store.Memory.Load(w.t.Context(), "orders"); err == nil && len(stored) == 1 {
		end = change.Later(change.At(end), stored[0].Earliest()).Time
	}
	places := make(map[change.Partition]delivery.Place)
	for p := range change.Partition(partitions) {
		if only(p) {
			places[p] = delivery.Place{At: change.At(end)}
		}
	}
	if err := e.Attach(w.t.Context(), places); err != nil {
		w.t.Fatal(err)
	}
}

// documentsUntil receives and acknowledges so many documents, or all until the snapshot is done if
// most is 0.
func documentsUntil(t *testing.T, e *streamer.Exclusive, most int) (documents int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	for {
		batches, _, err := e.Session().Receive(ctx)
		if err != nil {
			t.Fatalf("after %d documents: %v", documents, err)
		}
		for _, b := range batches {
			for i := range b.Events {
				if b.Events[i].Snapshot {
					documents++
				}
			}
			if err := e.Ack(b.Seq); err != nil {
				t.Fatal(err)
			}
			if b.Snapshot != nil && b.Snapshot.State == delivery.SnapshotDone {
				return documents
			}
		}
		if most > 0 && documents >= most {
			return documents
		}
	}
}

func every(change.Partition) bool { return true }

// What a session had begun to read goes on at a node that has started since, exactly where it was
// in the partitions that come from it.
func TestAttachedPartitionsGoOnWithASnapshotAtAnotherNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{}
		source.Tick(1)
		w := newWorld(t, source)
		docs := &collection{log: source, n: 40, page: 10, pages: make(chan struct{})}
		w.documents = docs
		first := w.start("a", nil)
		e := attached(t, first, false)
		w.attach(e, every)
		synctest.Wait()
		if done, _ := first.OperateSnapshot("orders", delivery.BeginSnapshot, "", change.Namespace{}); done != 1 {
			t.Fatalf("%d begun", done)
		}
		documentsUntil(t, e, docs.page)
		time.Sleep(time.Minute) // it is saved
		e.Session().Close(nil)
		first.stop(t)
		second := w.start("b", nil)
		defer second.stop(t)
		e = attached(t, second, false)
		w.attach(e, every)
		close(docs.pages)
		if n := documentsUntil(t, e, 0); n != docs.n-docs.page {
			t.Errorf("%d documents, %d were left", n, docs.n-docs.page)
		}
		e.Close(t.Context(), nil)
	})
}

// A checkpoint that cannot be loaded when partitions are attached is not one of which nothing is
// left: changes come meanwhile, what is left comes when it can be loaded, and nothing is saved
// before.
func TestWhatIsLeftOfAttachedPartitionsIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{}
		source.Tick(1)
		w := newWorld(t, source)
		w.documents = &collection{log: source, n: 20, page: 10}
		n := w.start("a", nil)
		defer n.stop(t)
		e := attached(t, n, false)
		w.attach(e, func(p change.Partition) bool { return p > 0 })
		synctest.Wait()
		if done, _ := n.OperateSnapshot("orders", delivery.BeginSnapshot, "", change.Namespace{}); done != 1 {
			t.Fatalf("%d begun", done)
		}
		documentsUntil(t, e, 0)
		time.Sleep(time.Minute)
		stored, err := w.store.Load(t.Context(), "orders")
		if err != nil || len(stored) != 1 {
			t.Fatalf("%+v, %v", stored, err)
		}
		other := stored[0] // a session with another node has begun one in partition 0
		other.Position, other.Positions = change.Position{}, map[change.Partition]change.Position{0: stored[0].Earliest()}
		other.Snapshots = []snapshot.Progress{{Subscription: deliverytest.Everything(t)[0].ID, Filter: delivery.FilterHash(deliverytest.Everything(t)[0].Program), Reason: snapshot.Loss}}
		if err := w.store.Save(t.Context(), []checkpoint.Checkpoint{other})[0]; err != nil {
			t.Fatal(err)
		}
		w.store.unread.Store(true)
		w.attach(e, func(p change.Partition) bool { return p == 0 })
		synctest.Wait()
		source.Append(deliverytest.Inserts(100, 100)...)
		last := deliverytest.Last(deliverytest.Receive(t, e.Session(), 100))
		if err := e.Ack(last.Seq); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		stored, err = w.store.Memory.Load(t.Context(), "orders")
		if left := snapshot.In(stored[0].Snapshots, []change.Partition{0}); err != nil || len(left) != 1 || left[0].Done {
			t.Errorf("left while the checkpoint cannot be loaded: %+v, %v", stored, err)
		}
		w.store.unread.Store(false)
		if n := documentsUntil(t, e, 0); n != 20 {
			t.Errorf("%d documents of 20", n)
		}
		e.Close(t.Context(), nil)
	})
}

// A node that has started after a loss knows of it by the gap log: the subscriber may have had the
// loss from another node, without the documents that compensate for it.
func TestAttachedPartitionsGetWhatALossBeforeTheNodeOwes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{}
		source.Append(deliverytest.Inserts(5, 0)...)
		source.Tick(1)
		w := newWorld(t, source)
		w.documents = &collection{log: source, n: 20, page: 10}
		first, last := source.Reach()
		if err := w.store.AddGap(t.Context(), checkpoint.Gap{From: change.At(first), To: change.At(last), Reason: string(gap.HistoryLost), Found: time.Now(), By: "b"}); err != nil {
			t.Fatal(err)
		}
		source.Tick(5)
		n := w.start("a", nil)
		defer n.stop(t)
		synctest.Wait()
		e := attached(t, n, true)
		w.attach(e, every)
		if n := documentsUntil(t, e, 0); n != 20 {
			t.Errorf("%d documents of 20", n)
		}
		e.Close(t.Context(), nil)
	})
}
