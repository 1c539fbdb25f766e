package delivery_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/delivery/deliverytest"
	"github.com/mongostream/streamer/oplog/oplogtest"
)

// A hub whose loop stands still is seen to do so, and its restart costs no session anything: each
// gets everything once, in order.
func TestRestartedHubLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{}
		source.Append(deliverytest.Inserts(30, 0)...)
		var wedged atomic.Bool
		b := begin(t, source, delivery.Config{Stall: func(ctx context.Context) {
			if wedged.Load() {
				<-ctx.Done()
			}
		}})
		defer b.end()
		one, two := b.open(delivery.SessionConfig{}, deliverytest.Everything(t)), b.open(delivery.SessionConfig{}, deliverytest.Everything(t))
		synctest.Wait()
		first := source.Append(deliverytest.Inserts(20, 100)...)
		deliverytest.Equal(t, "one", deliverytest.Refs(deliverytest.Receive(t, one, 20)), deliverytest.Wanted(first))
		time.Sleep(time.Minute)
		if age := b.hub.Age(); age > 0 {
			t.Errorf("a hub that has nothing to do is late by %s", age)
		}
		wedged.Store(true)
		second := source.Append(deliverytest.Inserts(20, 200)...)
		time.Sleep(time.Minute)
		if age := b.hub.Age(); age < 50*time.Second {
			t.Errorf("a hub that stands still is late by %s", age)
		}
		wedged.Store(false)
		b.hub.Restart()
		synctest.Wait()
		third := source.Append(deliverytest.Inserts(20, 300)...)
		deliverytest.Equal(t, "one", deliverytest.Refs(deliverytest.Receive(t, one, 40)), deliverytest.Wanted(append(second, third...)))
		deliverytest.Equal(t, "two", deliverytest.Refs(deliverytest.Receive(t, two, 60)), deliverytest.Wanted(append(append(first, second...), third...)))
		synctest.Wait()
		if age := b.hub.Age(); age > 0 {
			t.Errorf("late by %s after the restart", age)
		}
	})
}

// When the log has failed, sessions end although a page of a snapshot is being read.
func TestFailedLogEndsSnapshots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		docs := &shelf{collections: []string{"orders"}, documents: 1000, page: 10, takes: time.Second}
		b := onShelf(t, docs, delivery.Config{})
		s := b.open(delivery.SessionConfig{}, collection(t, "orders"))
		for len(docs.asked()) == 0 {
			time.Sleep(time.Millisecond)
		}
		b.source.FailNext(errors.New("the right to read is gone"))
		for err := error(nil); err == nil; {
			_, _, err = s.Receive(t.Context())
		}
	})
}
