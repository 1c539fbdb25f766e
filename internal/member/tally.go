package member

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/mongostream/streamer/handoff"
	"github.com/mongostream/streamer/handoff/ledger"
	"github.com/mongostream/streamer/notice"
)

const (
	// tellAfter is how long what has become of handoffs is gathered before it is told.
	tellAfter = 2 * time.Second
	// tellMost is how many handoffs one notice tells of; the cluster's history keeps no large ones.
	tellMost = 250
)

// A tally gathers what becomes of this node's handoffs, so that a storm of them is a few notices.
type tally struct {
	board *notice.Board
	wake  chan struct{} // holds a signal when there is something to tell

	mu struct {
		sync.Mutex

		ended []ledger.Ended // of at most so many as there are partitions in the time until it is told
	}
}

func newTally(board *notice.Board) *tally { return &tally{board: board, wake: make(chan struct{}, 1)} }

// note takes what became of a handoff. It never blocks.
func (t *tally) note(r handoff.Report) {
	e := ledger.Ended{Record: r.Record, Outcome: string(r.Outcome)}
	if r.Why != nil {
		e.Why = r.Why.Error()
	}
	for _, spent := range r.Spent {
		e.Took += spent
	}
	t.mu.Lock()
	t.mu.ended = append(t.mu.ended, e)
	t.mu.Unlock()
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// run tells until the context ends, and then what there is yet.
func (t *tally) run(ctx context.Context) {
	defer t.tell()
	gather := time.NewTimer(0)
	defer gather.Stop()
	for {
		select {
		case <-t.wake:
		case <-ctx.Done():
			return
		}
		gather.Reset(tellAfter)
		select {
		case <-gather.C:
		case <-ctx.Done():
			return
		}
		t.tell()
	}
}

// tell posts what was gathered.
func (t *tally) tell() {
	t.mu.Lock()
	ended := t.mu.ended
	t.mu.ended = nil
	t.mu.Unlock()
	for len(ended) > 0 {
		n := min(len(ended), tellMost)
		t.board.Post(handedOver(ended[:n]))
		ended = ended[n:]
	}
}

// handedOver is the notice of what became of handoffs.
func handedOver(ended []ledger.Ended) notice.Notice {
	counts := make(map[string]int)
	for _, e := range ended {
		counts[e.Outcome]++
	}
	moved, stayed, lost := counts[string(handoff.Moved)], counts[string(handoff.Stayed)], counts[string(handoff.Lost)]
	n := notice.Notice{
		Channel: notice.Health, Kind: notice.KindHandedOver, Level: notice.Info,
		Text:   fmt.Sprintf("%d of %d partitions were handed over.", moved, len(ended)),
		Fields: map[string]any{"moved": moved, "stayed": stayed, "lost": lost, "handoffs": ledger.Digests(ended)},
	}
	if moved < len(ended) {
		n.Level = notice.Warning
		n.Text = fmt.Sprintf("%d of %d partitions were handed over; %d stayed, %d go to whoever claims them.", moved, len(ended), stayed, lost)
	}
	return n
}
