package streamer_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/change/changetest"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/health"
	"github.com/mongostream/streamer/streamer"
)

// serveAgain ends the terms of a process and gives it new ones, as a node gets that claims its partitions anew.
func (w *world) serveAgain(p *process, between func(terms []change.Term)) {
	w.t.Helper()
	p.end(change.ErrTermLost)
	synctest.Wait()
	terms := w.claim()
	between(terms)
	w.revision++
	terms = w.claim()
	if err := p.node.Serve(w.t.Context(), terms); err != nil {
		w.t.Fatal(err)
	}
	synctest.Wait()
}

// claim returns terms of a new epoch.
func (w *world) claim() (terms []change.Term) {
	w.t.Helper()
	w.revision++
	ctx, cancel := context.WithCancelCause(context.Background())
	w.t.Cleanup(func() { cancel(context.Canceled) })
	for q := range change.Partition(partitions) {
		terms = append(terms, change.Term{Partition: q, Epoch: change.Epoch{Incarnation: 1, Revision: w.revision}, Context: ctx})
	}
	if _, err := w.marks.Claim(w.t.Context(), terms); err != nil {
		w.t.Fatal(err)
	}
	return terms
}

// take receives and acknowledges what is there, and returns the number of events.
func (p *process) take(t *testing.T) (count int) {
	t.Helper()
	events, notices := receive(t, p.session)
	for _, b := range events {
		count += len(b.Events)
		p.session.Ack(b)
	}
	if len(notices) != 0 {
		t.Errorf("%d notices", len(notices))
	}
	return count
}

// Sessions that live through the end of a term go on where they stand in the next one: they get nothing again that a mark could not be
// saved of, and miss nothing where another process has moved the mark on.
func TestSessionsGoOnWhereTheyStandInTheNextTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		p := w.begin(streamer.Config{Policy: checkpoint.Policy{Interval: time.Second}}, delivery.Config{})
		w.marks.Refuse(errors.New("away"))
		w.source.Append(inserts(40, 0)...)
		if n := p.take(t); n != 40 {
			t.Fatalf("%d events", n)
		}
		time.Sleep(10 * time.Second)
		w.marks.Refuse(nil)
		w.serveAgain(p, func([]change.Term) {})
		w.source.Append(inserts(40, 40)...)
		if n := p.take(t); n != 40 {
			t.Errorf("%d events after the mark could not be saved, want the 40 that are new", n)
		}
		time.Sleep(10 * time.Second)
		var more []changetest.Event
		w.serveAgain(p, func(others []change.Term) {
			more = w.source.Append(inserts(40, 80)...)
			end := more[len(more)-1].Position()
			for _, term := range others {
				mark := checkpoint.Mark{Partition: term.Partition, Position: end, Fingerprint: "f", Epoch: term.Epoch, At: time.Now()}
				if err := w.marks.Save(t.Context(), []checkpoint.Mark{mark})[0]; err != nil {
					t.Fatal(err)
				}
			}
		})
		if n := p.take(t); n != 40 {
			t.Errorf("%d events after another process had moved the mark, want the 40 that it had", n)
		}
		p.crash()
	})
}

// What is known of the server's time may be older than a mark that was saved a moment ago: that is no mark of another log.
func TestMarkThatIsYoungerThanTheSurveyIsNotAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		p := w.begin(streamer.Config{Policy: checkpoint.Policy{Interval: time.Second}}, delivery.Config{})
		time.Sleep(6 * time.Second) // the survey has just asked
		w.source.Tick(100)
		w.source.Append(inserts(40, 0)...)
		if n := p.take(t); n != 40 {
			t.Fatalf("%d events", n)
		}
		w.serveAgain(p, func([]change.Term) {})
		for _, s := range p.node.Status() {
			if s.Failure != nil || s.State == health.Failed {
				t.Errorf("partition %d is %s: %v", s.Partition, s.State, s.Failure)
			}
		}
		p.crash()
	})
}

// A term that follows at once, before the consumer of the one before has come to its end, goes on where the sessions stand as well.
func TestSessionsGoOnWhereTheyStandInATermThatFollowsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		p := w.begin(streamer.Config{Policy: checkpoint.Policy{Interval: time.Second}}, delivery.Config{})
		w.marks.Refuse(errors.New("away"))
		w.source.Append(inserts(40, 0)...)
		if n := p.take(t); n != 40 {
			t.Fatalf("%d events", n)
		}
		w.marks.Refuse(nil)
		terms := w.claim()
		p.end(change.ErrTermLost)
		if err := p.node.Serve(t.Context(), terms); err != nil {
			t.Fatal(err)
		}
		if n := p.take(t); n != 0 {
			t.Errorf("%d events that had been acknowledged", n)
		}
		p.crash()
	})
}

// Sessions that live through the end of a term do not go on where they stand if an operator has moved the partition back meanwhile, also where
// another process has gone some of the way again: what it had not come to would come to nobody.
func TestSessionsGoBackWithAPartitionThatWasRewoundMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		if _, err := w.marks.Found(t.Context(), w.origin); err != nil {
			t.Fatal(err)
		}
		p := w.begin(streamer.Config{Policy: checkpoint.Policy{Interval: time.Second}}, delivery.Config{})
		events := w.source.Append(inserts(40, 0)...)
		if n := p.take(t); n != 40 {
			t.Fatalf("%d events", n)
		}
		time.Sleep(10 * time.Second)
		w.serveAgain(p, func([]change.Term) {
			for q := range change.Partition(partitions) {
				if _, err := w.marks.Rewind(t.Context(), q, events[0].Position(), "operator", "test"); err != nil {
					t.Fatal(err)
				}
			}
			for _, term := range w.claim() {
				mark := checkpoint.Mark{Partition: term.Partition, Position: events[19].Position(), Fingerprint: "f", Epoch: term.Epoch, At: time.Now()}
				if err := w.marks.Save(t.Context(), []checkpoint.Mark{mark})[0]; err != nil {
					t.Fatal(err)
				}
			}
		})
		if n := p.take(t); n != 20 {
			t.Errorf("%d events after another process had gone half of the way again, want the 20 behind", n)
		}
		p.crash()
	})
}
