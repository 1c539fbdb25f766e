package streamer_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/delivery/deliverytest"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/match"
	"github.com/mongostream/streamer/oplog/oplogtest"
	"github.com/mongostream/streamer/streamer"
)

// wide returns n subscriptions with ids that are as long as they may be.
func wide(t *testing.T, first, n int) (all []delivery.Subscription) {
	t.Helper()
	program := deliverytest.Compile(t, match.Filter{})
	for i := range n {
		all = append(all, delivery.Subscription{ID: strings.Repeat("<", 236) + fmt.Sprintf("%04d", first+i), Program: program})
	}
	return all
}

// A session is admitted if its checkpoint can be saved whatever is left of its snapshots, and its
// long ids come back from there; otherwise it is refused at once, also for subscriptions that come
// later.
func TestCheckpointOfAnAdmittedSessionCanBeSaved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{}
		source.Tick(1)
		w := newWorld(t, source)
		n := w.start("a", nil) // which has no source of snapshots: they stay as they are
		defer n.stop(t)
		connect := func(name, process string, subscriptions []delivery.Subscription) (*streamer.Exclusive, error) {
			return n.Connect(t.Context(), streamer.Request{Subscriber: name, Process: process, Started: time.Now(), Start: streamer.StartSnapshot}, subscriptions)
		}
		e, err := connect("wide", "1", wide(t, 0, 120))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		stored, err := w.store.Load(t.Context(), "wide")
		if err != nil || len(stored) != 1 || len(stored[0].Snapshots) != 120 {
			t.Fatalf("%d snapshots are kept, %v", len(stored[0].Snapshots), err)
		}
		if text, err := checkpoint.Encode(stored[0], checkpoint.Trail{}); err != nil || len(text) > 512<<10 {
			t.Errorf("%d bytes, %v", len(text), err)
		}
		if n.Failing() {
			t.Error("the node fails")
		}
		if _, err := e.Subscribe(wide(t, 2000, 2500)); fault.Of(err) != fault.SessionTooWide {
			t.Errorf("more subscriptions: %v", err)
		}
		e.Unsubscribe(idsOf(wide(t, 0, 50)))
		if _, err := e.Subscribe(wide(t, 2000, 50)); err != nil {
			t.Errorf("in the place of others: %v", err)
		}
		e.Close(t.Context(), nil)
		if e, err = connect("wide", "2", wide(t, 100, 5)); err != nil {
			t.Fatal(err)
		}
		back := e.Session().Snapshots()
		if len(back) != 5 {
			t.Errorf("%d snapshots have come back", len(back))
		}
		for _, p := range back {
			if p.Done || len(p.Subscription) != 240 {
				t.Errorf("%+v has come back", p)
			}
		}
		e.Close(t.Context(), nil)
		if _, err := connect("wider", "1", wide(t, 0, 2500)); fault.Of(err) != fault.SessionTooWide {
			t.Errorf("2,500 subscriptions: %v", err)
		}
		if stored, err := w.store.Load(t.Context(), "wider"); err != nil || len(stored) > 0 {
			t.Errorf("a refused session has left %+v, %v", stored, err)
		}
	})
}

func idsOf(all []delivery.Subscription) (ids []string) {
	for _, sub := range all {
		ids = append(ids, sub.ID)
	}
	return ids
}

// A checkpoint that is corrupt or cannot be saved is told to its subscriber; nobody else and no
// node has to do with it.
func TestUnsavableCheckpointIsItsSubscribers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{}
		source.Tick(1)
		w := newWorld(t, source)
		n := w.start("a", nil)
		defer n.stop(t)
		var all []*streamer.Exclusive
		for _, name := range []string{"bad", "good"} {
			e, err := n.Connect(t.Context(), streamer.Request{Subscriber: name, Process: "p", Started: time.Now(), Start: streamer.StartNow}, deliverytest.Everything(t))
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, e)
		}
		synctest.Wait()
		w.store.corrupt.Store("bad")
		source.Append(deliverytest.Inserts(3, 0)...)
		for _, e := range all {
			if err := e.Ack(deliverytest.Last(deliverytest.Receive(t, e.Session(), 3)).Seq); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(20 * time.Second)
		if code := fault.Of(all[0].Session().Cause()); code != fault.CheckpointCorrupt {
			t.Errorf("it is told %q", code)
		}
		if cause := all[1].Session().Cause(); cause != nil || n.Failing() {
			t.Errorf("the other is told %v, the node fails: %t", cause, n.Failing())
		}
		_, last := source.Reach()
		if stored, err := w.store.Memory.Load(t.Context(), "good"); err != nil || stored[0].Position.Time.Compare(last) < 0 {
			t.Errorf("the other is at %+v, %v", stored, err)
		}
		for _, e := range all {
			e.Close(t.Context(), nil)
		}
	})
}
