package streamer_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/streamer"
)

// An operator moves a partition back: subscribers are told in its place, before what comes again, and again after a crash, until they
// have acknowledged it.
func TestRewindIsToldBeforeWhatComesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		if _, err := w.marks.Found(t.Context(), w.origin); err != nil {
			t.Fatal(err)
		}
		p := w.begin(streamer.Config{}, delivery.Config{})
		first := w.source.Append(inserts(1, 0)...)[0].Position()
		w.source.Append(inserts(100, 1)...)
		go func() {
			for {
				batches, err := p.session.Receive(t.Context())
				if err != nil {
					return
				}
				for _, b := range batches {
					p.session.Ack(b)
				}
			}
		}()
		synctest.Wait()
		p.stop()
		<-p.done
		for q := range change.Partition(partitions) {
			if _, err := w.marks.Rewind(t.Context(), q, first, "operator", "test"); err != nil {
				t.Fatal(err)
			}
		}
		for _, last := range []bool{false, true} {
			p = w.begin(streamer.Config{}, delivery.Config{})
			time.Sleep(2 * time.Minute) // in which a mark that nobody holds would be saved
			events, notices := receive(t, p.session)
			told := map[change.Partition]bool{}
			for _, b := range notices {
				told[b.Partition] = true
				if b.Notice.Kind != delivery.Rewound || b.To.Compare(first) != 0 || b.From.After(b.To) {
					t.Errorf("%+v from %v to %v, rewound to %v", b.Notice, b.From, b.To, first)
				}
			}
			n := 0
			for _, b := range events {
				n += len(b.Events)
				if first.After(b.From) {
					t.Errorf("events from %v, rewound to %v", b.From, first)
				}
			}
			if len(told) != partitions || len(notices) != partitions || n != 100 {
				t.Errorf("%d notices of %d partitions, %d events", len(notices), len(told), n)
			}
			for _, m := range mustList(t, w) {
				if m.Reason != checkpoint.ReasonRewind {
					t.Errorf("the mark of partition %d has moved on before its notice was acknowledged", m.Partition)
				}
			}
			if last {
				for _, b := range slices.Concat(notices, events) {
					p.session.Ack(b)
				}
				p.stop()
				<-p.done
				break
			}
			p.crash()
		}
		p = w.begin(streamer.Config{}, delivery.Config{})
		time.Sleep(time.Minute)
		if n := p.session.Outstanding(); n != 0 {
			t.Errorf("%d events come again", n)
		}
		p.crash()
	})
}
