package streamer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/dedup"
	"github.com/mongostream/streamer/gap"
	"github.com/mongostream/streamer/lane"
	"github.com/mongostream/streamer/streamer/status"
)

// Serve begins consumers for terms: it claims their marks and reads on behind them. Consumers of terms given before Run decide
// where the tail is opened.
func (n *Node) Serve(ctx context.Context, terms []change.Term) error {
	marks, err := n.marks.Claim(ctx, terms)
	if err != nil {
		return fmt.Errorf("claim marks: %w", err)
	}
	return n.ServeFrom(ctx, terms, marks)
}

// ServeFrom does what Serve does, with marks that have been claimed.
func (n *Node) ServeFrom(ctx context.Context, terms []change.Term, marks []checkpoint.Mark) error {
	unfinished, err := n.unfinished(ctx)
	if err != nil {
		return err
	}
	for i, term := range terms {
		c, err := n.begin(term, marks[i]) //nolint:contextcheck // a consumer lives as long as its term
		if err != nil {
			return err
		}
		for _, g := range unfinished[term.Partition] {
			n.readAgain(c, g)
		}
	}
	return nil
}

// unfinished returns the losses whose documents have not all been read again, by partition.
func (n *Node) unfinished(ctx context.Context) (map[change.Partition][]checkpoint.Gap, error) {
	if len(n.cfg.Rescan.Collections) == 0 {
		return nil, nil
	}
	gaps, err := n.marks.Gaps(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the gap log: %w", err)
	}
	byPartition := make(map[change.Partition][]checkpoint.Gap)
	for _, g := range gaps {
		if g.Of == 0 && (g.Reason == string(gap.HistoryLost) || g.Reason == string(gap.Refused)) {
			byPartition[g.Partition] = append(byPartition[g.Partition], g)
		}
	}
	return byPartition, nil
}

// begin starts the consumer of one term behind its mark, unless it has one: a claim and a handoff may both bring a term.
func (n *Node) begin(term change.Term, mark checkpoint.Mark) (*Consumer, error) {
	n.beginning.Lock()
	defer n.beginning.Unlock()
	switch c := n.consumer(term.Partition); {
	case c == nil:
	case c.term.Context.Err() != nil:
		<-c.ended // only then it is known where its sessions stand
	case c.term.Epoch == term.Epoch && c.term.Err() == nil:
		return c, nil
	}
	start := n.start(term.Partition, mark)
	c := &Consumer{
		term: term, node: n, opened: start.Open, progress: start.Position, detector: gap.NewDetector(n.cfg.MaxGap, start.Position),
		generation: mark.Generation, rewound: rewound(mark), ended: make(chan struct{}),
	}
	if n.cfg.Dedup != nil {
		c.window = dedup.NewWindow(*n.cfg.Dedup)
	}
	c.place.Store(n.log.Lane(term.Partition, start))
	c.running, c.end = context.WithCancelCause(term.Context)
	from := mark.Position
	if from.After(start.Position) { // what stands between is saved already, and saved once more it stays
		from = start.Position
	}
	// Not under the mutex: the manager asks the readers how far a mark may go, and they ask the node for epochs.
	c.keeper = n.manager.Begin(term, from, c.markable, c.end)
	if !n.enter(c) {
		c.keeper.End()
		c.cursor().Close()
		c.end(ErrStopping)
		return nil, ErrStopping
	}
	return c, nil
}

// enter lets a consumer run, unless the node is stopping.
func (n *Node) enter(c *Consumer) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.mu.stopping {
		return false
	}
	n.mu.consumers[c.term.Partition] = c
	n.metrics.Restarts.Inc()
	stop := context.AfterFunc(n.lifetime, func() { c.end(context.Cause(n.lifetime)) })
	n.running.Go(func() {
		defer close(c.ended)
		defer stop()
		n.finish(c, c.Run(c.running))
	})
	return true
}

// rewound reports whether an operator has put the mark where it is.
func rewound(mark checkpoint.Mark) bool {
	return mark.Reason == checkpoint.ReasonRewind || mark.Reason == checkpoint.ReasonImport
}

// start says where a lane begins: behind its mark, or at the origin where it has none. The token of a mark that was made with
// another filter cannot be opened; the log is opened at its time then, and the lane skips what it has seen. Sessions that lived through
// the end of an earlier term go on where they stand: the mark is behind them where it could not be saved, and ahead of them where another
// process has moved it. Where an operator has moved it back meanwhile they follow it.
func (n *Node) start(p change.Partition, mark checkpoint.Mark) lane.Start {
	if left := n.left.Take(p, mark.Generation); !left.IsZero() && !rewound(mark) && len(n.attached()) > 0 {
		return lane.Start{Position: left, Open: left}
	}
	start := lane.Start{Position: mark.Position, Open: mark.Position}
	if mark.Position.IsZero() {
		start.Position, start.Open = change.At(n.cfg.Origin.Start), change.At(n.cfg.Origin.Start)
	}
	if mark.Fingerprint != n.cfg.Fingerprint && !mark.Position.IsProgress() {
		start.Open = change.At(mark.Position.Time)
	}
	return start
}

// finish looks at how a consumer ended. A planned stop leaves it in its place, for its last mark; a lost term takes it out; what a
// person must act upon leaves it there to be seen, and does not touch its mark.
func (n *Node) finish(c *Consumer, err error) {
	switch {
	case c.term.Err() != nil, errors.Is(err, checkpoint.ErrFenced):
		n.left.Leave(c.term.Partition, c.LowWater(), c.generation) // before the next term can begin
		n.remove(c)
		level := slog.LevelWarn
		if errors.Is(err, change.ErrTermLost) {
			level = slog.LevelDebug // whoever ended it says so, once for all that ended
		}
		n.logger.Log(context.Background(), level, "term ended", "partition", c.term.Partition, "epoch", c.term.Epoch.String(), "error", err)
	case n.lifetime.Err() != nil, errors.Is(err, errReleased):
	default:
		c.keeper.End()
		c.condition.Fail(err)
		n.cfg.Board.Post(status.Failed(c.term.Partition, err))
	}
}
