package streamer_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongostream/streamer/oplog/oplogtest"
	"github.com/mongostream/streamer/streamer"
)

// A hub whose loop stands still is seen to do so, and its restart costs no session anything: each gets everything once, in order.
func TestRestartedHubLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{}
		source.Append(inserts(30, 0)...)
		var wedged atomic.Bool
		b := begin(t, source, streamer.Config{Stall: func(ctx context.Context) {
			if wedged.Load() {
				<-ctx.Done()
			}
		}})
		defer b.end()
		one, two := b.open(streamer.SessionConfig{}, everything(t)), b.open(streamer.SessionConfig{}, everything(t))
		synctest.Wait()
		first := source.Append(inserts(20, 100)...)
		equal(t, "one", refs(receive(t, one, 20)), wanted(first))
		time.Sleep(time.Minute)
		if age := b.hub.Age(); age > 0 {
			t.Errorf("a hub that has nothing to do is late by %s", age)
		}
		wedged.Store(true)
		second := source.Append(inserts(20, 200)...)
		time.Sleep(time.Minute)
		if age := b.hub.Age(); age < 50*time.Second {
			t.Errorf("a hub that stands still is late by %s", age)
		}
		wedged.Store(false)
		b.hub.Restart()
		synctest.Wait()
		third := source.Append(inserts(20, 300)...)
		equal(t, "one", refs(receive(t, one, 40)), wanted(append(second, third...)))
		equal(t, "two", refs(receive(t, two, 60)), wanted(append(append(first, second...), third...)))
		synctest.Wait()
		if age := b.hub.Age(); age > 0 {
			t.Errorf("late by %s after the restart", age)
		}
	})
}

// A node whose hub stands still stops as planned, in the time that the flush may take.
func TestNodeWithAWedgedHubStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{}
		source.Tick(1)
		w := newWorld(t, source)
		var wedged atomic.Bool
		w.stall = func(ctx context.Context) {
			if wedged.Load() {
				<-ctx.Done()
			}
		}
		n := w.start("a", func(n *streamer.Node) {
			if _, err := n.Share(t.Context(), "stdout", everything(t)); err != nil {
				t.Fatal(err)
			}
		})
		n.own(t, 1)
		synctest.Wait()
		wedged.Store(true)
		source.Append(inserts(1, 0)...)
		time.Sleep(time.Second)
		if n.Hub().Age() == 0 {
			t.Fatal("the hub does not stand still")
		}
		n.cancel()
		limit := time.NewTimer(20 * time.Second)
		defer limit.Stop()
		select {
		case err := <-n.ended:
			if err != nil {
				t.Error(err)
			}
		case <-limit.C:
			t.Error("the node does not stop")
			n.Hub().Restart()
			<-n.ended
		}
		n.kill(nil)
	})
}
