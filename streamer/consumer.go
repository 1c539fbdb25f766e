package streamer

import (
	"cmp"
	"context"
	"sync/atomic"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/dedup"
	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/gap"
	"github.com/mongostream/streamer/lane"
	"github.com/mongostream/streamer/rescan"
	"github.com/mongostream/streamer/streamer/flight"
	"github.com/mongostream/streamer/streamer/status"
)

// A Consumer takes the events of one partition from the log to the sessions, for one term.
type Consumer struct {
	term       change.Term
	node       *Node
	place      atomic.Pointer[lane.Cursor]
	keeper     *checkpoint.Keeper
	window     *dedup.Window // nil when turned off
	detector   *gap.Detector
	opened     change.Position // where a stream is opened for it
	progress   change.Position // everything up to here has passed
	fresh      []*change.Event // of the chunk at hand, those that are not duplicates
	attempts   int             // recoveries since the last progress
	givenUp    int             // spans that were recovered in vain since then
	generation uint64          // of the mark that it began at
	rewound    bool            // the mark is where an operator has put it
	running    context.Context //nolint:containedctx // of the term, ended by end
	end        context.CancelCauseFunc
	ended      chan struct{} // closed when Run has returned

	condition status.Condition
	intake    rescan.Intake[*delivery.Session]
	flight    flight.Flight
}

// Run moves events until the context or the term ends, or a person must act. What was missed it recovers.
func (c *Consumer) Run(ctx context.Context) error {
	if c.rewound {
		if err := c.announceRewind(ctx); err != nil {
			return err
		}
	}
	span, err := c.ahead(ctx)
	for {
		if span != nil {
			err = c.recover(ctx, *span)
		}
		if err != nil {
			return err
		}
		span, err = c.read(ctx)
	}
}

// read moves events until the context or the term ends, or a span is found that was or may have been missed.
//
// This loop is the whole pipeline of a partition.
func (c *Consumer) read(ctx context.Context) (*gap.Span, error) {
	for {
		batch, err := c.cursor().Next(ctx)
		if err != nil {
			return c.lost(err)
		}
		if span := c.jump(batch); span != nil {
			return span, nil // what reveals a span is not processed
		}
		if batch.Len() == 0 {
			c.progress = change.Later(c.progress, batch.End())
		}
		for done := 0; done < batch.Len(); {
			if wait := c.full(); wait != nil {
				c.cursor().Return(batch, done) // the rest comes again; waiting must not hold the reply
				if err := await(ctx, wait); err != nil {
					return nil, err
				}
				break
			}
			if err := cmp.Or(c.term.Err(), context.Cause(ctx)); err != nil {
				return nil, err // nothing is handed over once the term has ended
			}
			e := batch.Event(done)
			if e.Op() == change.OpSkipped {
				if err := c.skipped(ctx, e); err != nil {
					return nil, err
				}
				done++
				continue
			}
			if e.Op() == change.OpRename {
				c.renamed(e)
			}
			done = c.pass(batch, done)
		}
		if err := c.takePage(ctx); err != nil {
			return nil, err
		}
	}
}

func (c *Consumer) cursor() *lane.Cursor { return c.place.Load() }

// full returns nil when the store of marks and every session can take a chunk, otherwise what to wait for.
func (c *Consumer) full() <-chan struct{} {
	if wait := c.keeper.Room(); wait != nil {
		return wait
	}
	for _, s := range c.node.attached() {
		if wait := s.Ready(); wait != nil {
			return wait
		}
	}
	return nil
}

func await(ctx context.Context, wait <-chan struct{}) error {
	select {
	case <-wait:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// pass takes one chunk of the batch, from the event first on, through dedup and delivery, and returns where the next one begins.
func (c *Consumer) pass(batch *lane.Batch, first int) (next int) {
	c.fresh = c.fresh[:0]
	size, last := 0, c.progress
	for next = first; next < batch.Len() && len(c.fresh) < delivery.MaxBatchEvents && size < delivery.MaxBatchBytes; next++ {
		e := batch.Event(next)
		if e.Op() == change.OpSkipped || e.Op() == change.OpRename && next > first {
			break // something is said before it
		}
		last = e.Position()
		if c.window != nil && c.window.Seen(e, batch.At()) {
			c.node.metrics.Duplicates.Inc()
			continue
		}
		c.fresh = append(c.fresh, e)
		size += len(e.Raw())
	}
	to := batch.End()
	if next < batch.Len() {
		to = last.Clone()
	}
	for _, s := range c.node.attached() {
		c.deliver(s, to)
	}
	c.progress, c.attempts, c.givenUp = to, 0, 0
	c.intake.Note(c.fresh)
	remembered := 0
	if c.window != nil {
		remembered = c.window.Len()
	}
	c.condition.Passed(len(c.fresh), batch.At(), remembered)
	c.keeper.Passed(len(c.fresh))
	clear(c.fresh) // which would hold the reply until as many events have come again
	return next
}

// deliver offers a session what it wants of the chunk, as a batch that spans from the lane's progress to the position.
func (c *Consumer) deliver(s *delivery.Session, to change.Position) {
	wanted, size := 0, 0
	for _, e := range c.fresh {
		if s.Wants(e) {
			wanted++
			size += len(e.Raw())
		}
	}
	if wanted == 0 {
		return
	}
	b := c.batchOf(wanted, to)
	copied := make([]byte, 0, size)
	for _, e := range c.fresh {
		if s.Wants(e) {
			at := len(copied)
			copied = append(copied, e.Raw()...)
			b.Events = append(b.Events, e.Over(copied[at:len(copied):len(copied)]))
		}
	}
	c.offer(s, b)
}

// batch makes an empty batch that spans from the lane's progress to the position.
func (c *Consumer) batch(to change.Position) *delivery.Batch {
	return &delivery.Batch{Partition: c.term.Partition, Epoch: c.term.Epoch, From: c.progress, To: to}
}

// batchOf makes a batch with room for so many events. At the log's end most are of one event, which lies beside its batch then.
func (c *Consumer) batchOf(events int, to change.Position) *delivery.Batch {
	if events == 1 {
		single := &struct {
			delivery.Batch
			event [1]change.Event
		}{Batch: *c.batch(to)}
		single.Events = single.event[:0]
		return &single.Batch
	}
	b := c.batch(to)
	b.Events = make([]change.Event, 0, events)
	return b
}

// offer notes a batch as in flight and hands it to the session, unless that has left.
func (c *Consumer) offer(s *delivery.Session, b *delivery.Batch) {
	if c.flight.Sent(s, b, func() { c.intake.Sent(s) }) {
		s.Offer(b, c)
	}
}

// Acked implements delivery.Lane.
func (c *Consumer) Acked(s *delivery.Session, b *delivery.Batch) {
	if b.Rescan {
		c.intake.Acked(s)
		return
	}
	if err := c.flight.Acked(s, b.To); err != nil {
		c.node.logger.Warn("acknowledgement refused", "partition", c.term.Partition, "error", err)
	}
	c.node.acked()
}

// Over implements delivery.Lane.
func (c *Consumer) Over() bool { return c.term.Err() != nil }

// detach forgets a session that has left by itself: what it did not acknowledge no longer holds the mark.
func (c *Consumer) detach(s *delivery.Session) {
	c.flight.Left(s, func() { c.intake.Left(s) })
}

// LowWater returns the position up to which the partition has been acknowledged.
func (c *Consumer) LowWater() change.Position {
	// The cursor first: whatever it counts as read has been noted as sent before.
	progress := c.cursor().Position()
	return c.flight.LowWater(progress)
}

// markable returns how far the mark may go.
func (c *Consumer) markable() change.Position {
	if readers := c.node.cfg.Readers; readers != nil {
		return readers.Low(c.term.Partition, c.LowWater())
	}
	return c.LowWater()
}

// inFlight reports whether some session has yet to acknowledge.
func (c *Consumer) inFlight() bool {
	return !c.flight.Empty()
}
