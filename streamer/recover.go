package streamer

import (
	"context"
	"errors"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gap"
	"github.com/mongostream/streamer/internal/retry"
	"github.com/mongostream/streamer/lane"
	"github.com/mongostream/streamer/streamer/status"
)

// A LossPolicy says what to do where history is lost.
type LossPolicy string

// The policies.
const (
	Resync LossPolicy = "resync" // tell the subscribers and go on
	Halt   LossPolicy = "halt"   // stop the partition and wait for a person
)

// maxAttempts is how many recoveries in a row a partition makes without getting on before it gives a span up, and how many spans.
const maxAttempts = 3

// ahead compares the position with the server's own time before anything is read from there: one that is younger is of a log that is
// no more, and to read on behind it would leave out everything.
func (c *Consumer) ahead(ctx context.Context) (*gap.Span, error) {
	reach, err := c.node.survey.Recently(ctx)
	if err == nil && reach.Ahead(c.progress) {
		reach, err = c.node.survey.Now(ctx) // the answer may be older than a mark that was saved a moment ago
	}
	if err != nil || !reach.Ahead(c.progress) {
		return nil, err
	}
	return &gap.Span{From: c.progress, Reason: gap.AheadOfServer}, nil
}

// lost makes a span of the cursor's error; another error is returned as it is. Where the span ends is known where the cursor goes on.
func (c *Consumer) lost(err error) (*gap.Span, error) {
	if !errors.Is(err, lane.ErrPositionLost) {
		return nil, err
	}
	span := &gap.Span{From: c.cursor().Position(), Reason: gap.HistoryLost}
	lost, ok := errors.AsType[*lane.LostError](err)
	switch {
	case !ok:
	case !lost.Onward.IsZero():
		span.To = lost.Onward
		if c.givenUp > 0 {
			span.Reason = gap.Refused
		}
	case !lost.Last.IsZero() && !lost.Holds(span.From) && lost.First.Compare(span.From.Time) <= 0:
		span.Reason = gap.AheadOfServer
	}
	return span, nil
}

// jump looks at the progress that a batch makes, and returns a span where it must not be believed.
func (c *Consumer) jump(batch *lane.Batch) *gap.Span {
	to := batch.End()
	if batch.Len() > 0 {
		to = batch.Event(0).Position()
	}
	span, found, jumped := c.detector.Progress(to, !batch.Unproven())
	if jumped {
		c.node.metrics.Jumps.Inc()
	}
	if !found {
		c.detector.Reached(batch.End())
		return nil
	}
	return &gap.Span{From: span.From.Clone(), To: span.To.Clone(), Reason: span.Reason} // a copy: span itself would be on the heap each time
}

// recover deals with a span that was or may have been missed: what the log still has is read again, what it has not is told.
func (c *Consumer) recover(ctx context.Context, span gap.Span) error {
	c.node.metrics.Gaps.Inc()
	c.condition.Recovering(true)
	defer c.condition.Recovering(false)
	if span.Reason != gap.Jump && !span.To.IsZero() {
		return c.tell(ctx, span) // the cursor goes on there
	}
	c.attempts++
	reach, err := c.node.survey.Now(ctx)
	if err != nil {
		return err
	}
	switch {
	case span.Reason == gap.AheadOfServer:
		span.To = change.At(reach.Last.Next())
		if _, err := c.record(ctx, span); err != nil {
			return err
		}
		return fault.Newf(fault.LogAhead, "partition %d is at %s, MongoDB at %s", c.term.Partition, span.From, reach.Last)
	case c.attempts > maxAttempts:
		return c.giveUp(span)
	case !reach.First.IsZero() && span.Readable(reach.First), reach.First.IsZero() && span.Reason == gap.Jump:
		c.again(span)
		return nil
	}
	span.To = change.At(reach.First)
	if reach.First.IsZero() {
		span.To = change.At(reach.Last.Next()) // the log cannot be looked at: what is behind now is there
	}
	if err := c.tell(ctx, span); err != nil {
		return err
	}
	c.move(lane.Start{Position: span.To})
	return nil
}

// giveUp deals with a span that was recovered in vain: reading goes on behind it, as early as the log allows. Where that does not help
// either, again and again, a person must look.
func (c *Consumer) giveUp(span gap.Span) error {
	if c.givenUp++; c.givenUp > maxAttempts {
		return fault.Newf(fault.LogNoProgress, "partition %d at %s: %s", c.term.Partition, span.From, span.Reason)
	}
	c.attempts = 0
	c.move(lane.Start{Position: span.From, Open: change.At(span.From.Time), Onward: true})
	return nil
}

// again sends the lane back to where the span begins, to read it from a new stream.
func (c *Consumer) again(span gap.Span) {
	c.node.metrics.Rescans.Inc()
	c.node.logger.Info("reading again what may have been missed", "partition", c.term.Partition, "from", span.From.String(), "reason", string(span.Reason))
	c.move(lane.Start{Position: span.From, Open: change.At(span.From.Time), Anew: span.To})
}

// move lets the lane go on from another place in the log. What it has passed may come again there and is no duplicate then.
func (c *Consumer) move(start lane.Start) {
	old := c.place.Swap(c.node.log.Lane(c.term.Partition, start))
	old.Close()
	c.cursor().Alarm(c.intake.Due())
	if c.window != nil {
		c.window.Clear()
	}
}

// tell records a loss, durably, and tells the operators and the subscribers. The lane is to go on behind it.
func (c *Consumer) tell(ctx context.Context, span gap.Span) error {
	entry, err := c.record(ctx, span)
	if err != nil {
		return err
	}
	if c.node.cfg.OnHistoryLost == Halt {
		return fault.Newf(fault.LogHistoryLost, "partition %d: lost from %s to %s", c.term.Partition, span.From, span.To)
	}
	if err := c.announce(ctx, delivery.Notice{
		Kind: delivery.Resync, Reason: string(span.Reason), Namespaces: c.node.cfg.Namespaces, Found: time.Now(),
		Advice: "Changes between lost_from and lost_to may have been missed: read the documents of the namespaces again.",
	}, span.To); err != nil {
		return err
	}
	c.detector.Reset(span.To)
	if c.window != nil {
		c.window.Clear()
	}
	c.node.readAgain(c, entry)
	return nil
}

// skipped deals with the place of an event that MongoDB could not deliver: it is recorded and told like a loss.
func (c *Consumer) skipped(ctx context.Context, e *change.Event) error {
	at := e.Position().Clone()
	if _, err := c.record(ctx, gap.Span{From: at, To: at, Reason: gap.Poison}); err != nil {
		return err
	}
	return c.announce(ctx, *delivery.Poison(c.node.cfg.Namespaces), at)
}

// renamed tells of a watched collection in whose place another one is put, right before the event of that. For a session that gets the
// event the notice has no length: it comes again with the event until that is acknowledged.
func (c *Consumer) renamed(e *change.Event) {
	notice := delivery.Renamed(e, c.node.cfg.Namespaces)
	if notice == nil {
		return
	}
	c.node.logger.Info("a collection was renamed to a watched one", "partition", c.term.Partition, "namespace", notice.Namespaces[0])
	for _, s := range c.node.attached() {
		b := c.batch(c.progress)
		if !s.Wants(e) {
			b.To = e.Position().Clone()
		}
		b.Notice = notice
		c.offer(s, b)
	}
}

// record writes the span into the gap log, and goes on trying until it is there: no mark may pass a loss that is not recorded.
func (c *Consumer) record(ctx context.Context, span gap.Span) (checkpoint.Gap, error) {
	g := checkpoint.Gap{
		Partition: c.term.Partition, From: span.From, To: span.To, Reason: string(span.Reason), Namespaces: c.node.cfg.Namespaces,
		Fingerprint: c.node.cfg.Fingerprint, Epoch: c.term.Epoch, Found: time.Now(), By: c.node.cfg.By,
	}
	err := retry.Until(ctx, func() error { return c.node.marks.AddGap(ctx, g) }, func(err error) {
		c.node.logger.Warn("the gap log cannot be written; the partition waits", "partition", c.term.Partition, "error", err)
	})
	if err != nil {
		return g, err
	}
	c.node.metrics.Lost.Inc()
	c.node.cfg.Board.Post(status.Lost(g))
	return g, nil
}

// announceRewind tells the subscribers that an operator has moved the partition: they may have had what follows. Until the mark has
// moved on, every term that begins there says so.
func (c *Consumer) announceRewind(ctx context.Context) error {
	at := c.progress
	if readers := c.node.cfg.Readers; readers != nil {
		readers.Rewound(c.term.Partition, at)
	}
	c.node.cfg.Board.Post(status.Rewound(c.term, at))
	c.progress = change.At(at.Time.Prev()) // the notice stands at the mark, and holds it until it is acknowledged
	return c.announce(ctx, *delivery.RewoundByOperator(c.node.cfg.Namespaces), at)
}

// announce puts a notice into the lane, between the lane's progress and the position, for every session.
func (c *Consumer) announce(ctx context.Context, n delivery.Notice, to change.Position) error {
	for wait := c.full(); wait != nil; wait = c.full() {
		if err := await(ctx, wait); err != nil {
			return err
		}
	}
	for _, s := range c.node.attached() {
		b := c.batch(to)
		b.Notice = &n
		c.offer(s, b)
	}
	c.progress = to
	c.condition.Told(to)
	return nil
}
