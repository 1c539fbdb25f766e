package client

import (
	"context"

	"github.com/mongostream/streamer/gateway/client/event"
	"github.com/mongostream/streamer/gateway/client/link"
	"github.com/mongostream/streamer/gateway/client/notice"
	"github.com/mongostream/streamer/gateway/client/partition"
	"github.com/mongostream/streamer/gateway/streampb"
)

// work is what the client does with the batches of its partitions.
type work struct{ *Client }

var _ partition.Worker = work{}

// Deliver implements partition.Worker. What is subscribed to no longer is nobody's.
func (c work) Deliver(ctx context.Context, p uint32, e *streampb.Event) error {
	for _, id := range e.GetSubscriptions() {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		handler := c.handler(id)
		if handler == nil {
			continue
		}
		c.stats.changes.Add(1)
		change := changeOf(p, id, e)
		if err := c.attempt(ctx, Poison{Change: &change, Partition: p}, func() error { return handler(ctx, change) }); err != nil {
			return err
		}
	}
	return nil
}

// Lose implements partition.Worker.
func (c work) Lose(ctx context.Context, b *streampb.Batch) error {
	c.stats.losses.Add(1)
	n := notice.OfLoss(b)
	return c.attempt(ctx, Poison{Notice: n, Partition: b.GetPartition()}, func() error { return c.cfg.OnNotice(ctx, n) })
}

// Passed implements partition.Worker.
func (c work) Passed(p uint32, e *streampb.Event, at Position) {
	if c.fleet != nil {
		c.fleet.Progress()
	}
	if c.cfg.OnCollection == nil {
		return
	}
	if e != nil {
		change := changeOf(p, "", e)
		if op := change.Op(); event.OfCollection(op) {
			passed, dropped := c.watch.Add(c.partitions(), p, change.Position, change)
			if dropped {
				c.stats.noticesDropped.Add(1)
			}
			c.report(passed)
		}
	}
	c.report(c.watch.Passed(p, at))
}

// report tells of events of collections that every partition has passed.
func (c work) report(passed []Change) {
	for i := range passed {
		c.offer(told{change: &passed[i]})
	}
}

// attempt calls f until it succeeds, the context ends, or OnPoison stops, which ends the client. Between attempts other partitions are
// handled in its place.
func (c work) attempt(ctx context.Context, p Poison, f func() error) error {
	wait := link.Backoff{First: c.cfg.RetryWait, Longest: c.cfg.MaxRetryWait}
	for p.Attempts = 1; ; p.Attempts++ {
		select {
		case c.slots <- struct{}{}:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		p.Err = f()
		<-c.slots
		switch {
		case p.Err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx) // it was interrupted, and comes again
		}
		c.stats.failures.Add(1)
		if p.Attempts >= c.cfg.Attempts {
			if c.cfg.OnPoison(ctx, p) == Skip {
				c.stats.skipped.Add(1)
				c.cfg.Logger.Warn("skipped what could not be handled", "partition", p.Partition, "attempts", p.Attempts, "error", p.Err)
				return nil
			}
			err := &HandlerError{p}
			c.end(err)
			return err
		}
		if err := wait.Wait(ctx, p.Attempts); err != nil {
			return err
		}
	}
}
