package delivery_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/delivery/deliverytest"
	"github.com/mongostream/streamer/match"
	"github.com/mongostream/streamer/oplog/oplogtest"
)

func TestSessionSaysWhichFiltersItHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stalled := make(chan struct{})
		source := &oplogtest.Log{}
		source.Tick(1)
		b := begin(t, source, delivery.Config{Stall: func(ctx context.Context) {
			select {
			case <-stalled:
				<-ctx.Done()
			default:
			}
		}})
		var subscriptions []delivery.Subscription
		for i := range 7 {
			program, err := match.Compile(match.Filter{Source: fmt.Sprintf("key._id == %d", i)})
			if err != nil {
				t.Fatal(err)
			}
			subscriptions = append(subscriptions, delivery.Subscription{ID: fmt.Sprint(i), Program: program})
		}
		s := b.open(delivery.SessionConfig{CreditEvents: 10, CreditBytes: 1000}, subscriptions)
		s.Unsubscribe([]string{"1"})
		filters, total, ok := s.Filters(t.Context(), 3)
		if !ok || total != 6 || len(filters) != 3 || filters[1].ID != "2" || filters[1].Program.Filter().Source != "key._id == 2" {
			t.Errorf("%v of %d, %v", filters, total, ok)
		}
		// An owner that stands still keeps nobody waiting, and what is asked of it does not pile
		// up.
		synctest.Wait() // until it is on the live path
		close(stalled)
		source.Append(deliverytest.Inserts(1, 0)...)
		synctest.Wait()
		for range 3 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if _, _, ok := s.Filters(ctx, 3); ok {
				t.Error("a hub that stands still has answered")
			}
			cancel()
		}
		if n := s.Mail(); n != 1 {
			t.Errorf("%d requests wait for the owner, want 1", n)
		}
		s.Close(nil)
		b.end()
		if _, _, ok := s.Filters(t.Context(), 3); ok {
			t.Error("a session that has ended has answered")
		}
	})
}

// A session that asks for no credit of its own has that of the hub's configuration.
func TestSessionsHaveTheConfiguredCredit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{}
		source.Tick(1)
		b := begin(t, source, delivery.Config{CreditEvents: 7, CreditBytes: 4096})
		defer b.end()
		s := b.open(delivery.SessionConfig{}, deliverytest.Everything(t))
		synctest.Wait()
		if events, bytes := s.Credit(); events != 7 || bytes != 4096 {
			t.Errorf("it has credit for %d events and %d bytes", events, bytes)
		}
		source.Append(deliverytest.Inserts(20, 0)...)
		synctest.Wait()
		if events, bytes := s.Credit(); events != 0 || bytes <= 0 || bytes >= 4096 {
			t.Errorf("after 20 events it has credit for %d events and %d bytes", events, bytes)
		}
	})
}
