package transfer

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/checkpoint/checkpointtest"
	"github.com/mongostream/streamer/handoff"
	"github.com/mongostream/streamer/handoff/ledger"
)

// A toy is a node that has nothing but terms.
type toy struct {
	seat

	term   change.Term
	mark   checkpoint.Mark
	served chan checkpoint.Mark

	mu    sync.Mutex
	words []handoff.Word
}

func (n *toy) Term(change.Partition) (change.Term, bool) { return n.term, n.term.Context != nil }

func (n *toy) Seal(change.Partition, change.Epoch) (checkpoint.Mark, error) { return n.mark, nil }

func (n *toy) Unseal(change.Partition, change.Epoch) {}

func (n *toy) DeliverOn(change.Partition, change.Epoch, time.Duration) {}

func (n *toy) Warm(context.Context, change.Partition, checkpoint.Mark) error { return nil }

func (n *toy) Adopt(p change.Partition, e change.Epoch) (change.Term, error) {
	return change.Term{Partition: p, Epoch: e, Context: context.Background()}, nil
}

func (n *toy) Serve(_ context.Context, _ change.Term, m checkpoint.Mark) error {
	n.served <- m
	return nil
}

func (n *toy) Drop(change.Partition, change.Epoch) {}

func (n *toy) Tell(_ change.Partition, w handoff.Word, _ ledger.Party) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.words = append(n.words, w)
}

// TestDesksMoveAPartition lets two desks meet over etcd alone.
func TestDesksMoveAPartition(t *testing.T) {
	c := newPlace(t)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	reports := make(chan handoff.Report, 2)
	start := func(s seat) *toy {
		n := &toy{seat: s, served: make(chan checkpoint.Mark, 1)}
		began := time.Now()
		desk := handoff.NewDesk(handoff.Config{
			Self: s.party, Overlap: 50 * time.Millisecond, Trusted: func() bool { return true },
			Clock: func() time.Duration { return time.Since(began) }, Ended: func(r handoff.Report) { reports <- r },
		}, s.keeper)
		running.Go(func() { _ = desk.RunDonor(ctx, s.keeper, n, n) })
		running.Go(func() { _ = desk.RunRecipient(ctx, s.keeper, n, s.marks) })
		return n
	}
	a, b := start(c.a), start(c.b)
	a.term, a.mark = change.Term{Partition: p, Epoch: c.epoch, Context: t.Context()}, c.mark(c.epoch, 7)

	if _, err := c.b.keeper.Prepare(t.Context(), c.order()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if r := <-reports; r.Outcome != handoff.Moved || r.Why != nil {
			t.Errorf("%s ended: %s, %v", r.Side, r.Outcome, r.Why)
		}
	}
	if m := <-b.served; m.Position.Compare(checkpointtest.Event(7)) != 0 {
		t.Errorf("served from %s", m.Position)
	}
	if s := c.wantOwner(c.b, 7); s.Record.Revision != 0 {
		t.Errorf("the record is still there: %+v", s.Record)
	}
	if a.mu.Lock(); len(a.words) != 2 || a.words[0] != handoff.SayMoving || a.words[1] != handoff.SayMoved {
		t.Errorf("sessions were told %v", a.words)
	}
	a.mu.Unlock()
}
