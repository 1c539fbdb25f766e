package streamer_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/streamer"
)

// A partition that an operator has moved back and that goes to another node before its subscribers have acknowledged the notice takes nothing
// along that stands in the place of what the operator wrote: the other node tells its own subscribers.
func TestRewindIsToldAfterAHandoffToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		if _, err := w.marks.Found(t.Context(), w.origin); err != nil {
			t.Fatal(err)
		}
		p := w.begin(streamer.Config{}, delivery.Config{})
		first := w.source.Append(inserts(1, 0)...)[0].Position()
		w.source.Append(inserts(100, 1)...)
		p.take(t)
		p.stop()
		<-p.done
		for q := range change.Partition(partitions) {
			if _, err := w.marks.Rewind(t.Context(), q, first, "operator", "test"); err != nil {
				t.Fatal(err)
			}
		}
		p = w.begin(streamer.Config{}, delivery.Config{})
		time.Sleep(time.Second)
		epoch := change.Epoch{Incarnation: 1, Revision: w.revision}
		for q := range change.Partition(partitions) {
			if mark, err := p.node.Seal(q, epoch); err != nil || !mark.Position.IsZero() || mark.Epoch != epoch {
				t.Errorf("a mark at %v of epoch %s is handed over, and the notice of the rewind has not been acknowledged: %v", mark.Position, mark.Epoch, err)
			}
			p.node.Unseal(q, epoch)
		}
		events, notices := receive(t, p.session)
		for _, b := range append(notices, events...) {
			p.session.Ack(b)
		}
		synctest.Wait()
		for q := range change.Partition(partitions) {
			if mark, err := p.node.Seal(q, epoch); err != nil || !mark.Position.After(first) {
				t.Errorf("a mark at %v is handed over, and everything has been acknowledged: %v", mark.Position, err)
			}
		}
		p.crash()
	})
}
