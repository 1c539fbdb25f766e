package streamer_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/streamer"
)

// A term that is given twice, by a claim and by the handoff that has made it, is served once.
func TestTermThatIsGivenTwiceIsServedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		p := w.begin(streamer.Config{}, delivery.Config{})
		p.end(change.ErrTermLost)
		synctest.Wait()
		terms := w.claim()
		for range 2 {
			if err := p.node.Serve(t.Context(), terms); err != nil {
				t.Fatal(err)
			}
		}
		w.source.Append(inserts(40, 0)...)
		if n := p.take(t); n != 40 {
			t.Errorf("%d events, 40 were written", n)
		}
		p.crash()
	})
}

// A lane that begins far behind its mark, because a session of the process stands there, comes to the mark however far that is: what stands
// before the mark is not unsaved.
func TestLaneBehindItsMarkIsNotHeldBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		policy := checkpoint.Policy{Interval: time.Second, MinGap: time.Second, MaxUnsaved: 100}
		p := w.begin(streamer.Config{Policy: policy}, delivery.Config{})
		w.serveAgain(p, func(others []change.Term) {
			more := w.source.Append(inserts(1000, 0)...)
			end := more[len(more)-1].Position()
			for _, term := range others {
				mark := checkpoint.Mark{Partition: term.Partition, Position: end, Fingerprint: "f", Epoch: term.Epoch, At: time.Now()}
				if err := w.marks.Save(t.Context(), []checkpoint.Mark{mark})[0]; err != nil {
					t.Fatal(err)
				}
			}
		})
		count := 0
		for range 30 {
			count += p.take(t)
			time.Sleep(time.Second)
		}
		if count != 1000 {
			t.Errorf("%d events, 1000 were written", count)
		}
		p.crash()
	})
}
