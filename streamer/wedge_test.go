package streamer_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongostream/streamer/delivery/deliverytest"
	"github.com/mongostream/streamer/oplog/oplogtest"
	"github.com/mongostream/streamer/streamer"
)

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
			if _, err := n.Share(t.Context(), "stdout", deliverytest.Everything(t)); err != nil {
				t.Fatal(err)
			}
		})
		n.own(t, 1)
		synctest.Wait()
		wedged.Store(true)
		source.Append(deliverytest.Inserts(1, 0)...)
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
