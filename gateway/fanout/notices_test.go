package fanout_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/change/changetest"
	"github.com/mongostream/streamer/gateway/fanout"
	"github.com/mongostream/streamer/match"
)

// What a session is told in the place of events counts against its credit like an event: a subscriber that takes nothing while collections
// are renamed all the time has the node hold so much and no more, and is told the rest when it goes on.
func TestNoticesThatAreNotAcknowledgedAreBounded(t *testing.T) {
	for _, gets := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			const renames, credit = 500, 20
			w := newWorld(t, fanout.Config{Namespaces: []string{"shop.orders"}, CreditEvents: credit})
			defer w.stop()
			synctest.Wait()
			start := change.At(w.source.Append(changetest.Event{ID: 1000})[0].Time)
			f := match.Filter{DB: "shop", Coll: "orders", Ops: []change.Op{change.OpInsert}}
			if gets {
				f = match.Filter{}
			}
			s, err := w.hub.Open(t.Context(), fanout.SessionConfig{Start: start}, []fanout.Subscription{filter(t, "one", f)})
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			for range renames {
				w.source.Append(changetest.Event{Op: "rename", Coll: "staging", To: "orders", Keyless: true})
				time.Sleep(time.Second)
			}
			losses := 0
			for first := true; losses < renames*partitions; first = false {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				batches, _, err := s.Receive(ctx)
				cancel()
				if err != nil {
					t.Fatalf("%v after %d notices", err, losses)
				}
				if most := 3 * (credit + 2*partitions); first && len(batches) > most {
					t.Fatalf("%d batches were held, at most %d may be", len(batches), most)
				}
				for _, b := range batches {
					if b.Loss != nil {
						losses++
					}
					if err := s.Ack(b.Partition, b.To); err != nil {
						t.Fatal(err)
					}
				}
			}
			s.Close(nil)
		})
	}
}
