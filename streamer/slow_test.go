package streamer_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/health"
	"github.com/mongostream/streamer/notice"
	"github.com/mongostream/streamer/streamer"
)

// Where the tail waits for subscribers that take nothing, MongoDB is not asked: that is nothing that operators are to be told of MongoDB, nor
// is the time until the first answer afterwards.
func TestSlowSubscribersAreNoSilenceOfMongoDB(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.source.Delay = 3 * time.Second
		board := notice.NewBoard(notice.Config{})
		p := w.begin(streamer.Config{Board: board}, delivery.Config{CreditEvents: 30})
		defer p.crash()
		synctest.Wait()
		look := func(when string) {
			t.Helper()
			w.source.Tick(1)
			for _, s := range p.node.Status() {
				if s.State == health.Stuck {
					t.Fatalf("%s: partition %d is %s", when, s.Partition, s.State)
				}
			}
			if posted, _ := board.Since(0); len(posted) != 0 {
				t.Fatalf("%s: operators were told %+v", when, posted)
			}
		}
		w.source.Append(inserts(1000, 0)...)
		for range 120 {
			time.Sleep(time.Second)
			look("while nothing is taken")
		}
		count := 0
		for range 6000 {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			batches, _ := p.session.Receive(ctx)
			cancel()
			for _, b := range batches {
				count += len(b.Events)
				p.session.Ack(b)
			}
			look("while it is taken again")
			time.Sleep(100 * time.Millisecond)
		}
		if count != 1000 {
			t.Errorf("%d events", count)
		}
	})
}
