package streamer

import (
	"context"
	"slices"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/rescan"
)

// readAgain queues the rescans of a loss that are not done yet.
func (n *Node) readAgain(c *Consumer, g checkpoint.Gap) {
	for _, collection := range n.cfg.Rescan.Collections {
		name := collection.Namespace.String()
		state := g.Rescan[name]
		if state.Done {
			continue
		}
		n.rescans.Add(rescan.Job{
			Lane: c, Collection: collection, Since: g.From.Time.Time(), After: state.After,
			Save: func(ctx context.Context, after []byte, done bool) error {
				entry := g
				entry.Rescan = map[string]checkpoint.RescanState{name: {After: after, Done: done}}
				return n.marks.AddGap(ctx, entry)
			},
		})
	}
}

// Partition implements rescan.Lane.
func (c *Consumer) Partition() change.Partition { return c.term.Partition }

// Ended implements rescan.Lane.
func (c *Consumer) Ended() <-chan struct{} { return c.term.Context.Done() }

// Open implements rescan.Lane.
func (c *Consumer) Open() { c.intake.Open() }

// Enter implements rescan.Lane.
func (c *Consumer) Enter(at change.Timestamp, docs []change.Event) <-chan struct{} {
	done := c.intake.Put(at, docs)
	c.cursor().Alarm(at)
	return done
}

// takePage delivers the documents of a rescan once the lane has reached the time at which they were read.
func (c *Consumer) takePage(ctx context.Context) error {
	docs, due := c.intake.Take(c.progress.Time)
	if !due {
		return nil
	}
	for chunk := range slices.Chunk(docs, delivery.MaxBatchEvents) {
		for wait := c.full(); wait != nil; wait = c.full() {
			if err := await(ctx, wait); err != nil {
				return err
			}
		}
		c.deliverPage(chunk)
	}
	c.node.metrics.Rescanned.Add(float64(len(docs)))
	c.intake.Taken()
	return nil
}

// deliverPage offers documents of a rescan to every session that wants them.
func (c *Consumer) deliverPage(docs []change.Event) {
	for _, s := range c.node.attached() {
		b := c.batch(c.progress)
		b.Rescan = true
		for i := range docs {
			if s.Wants(&docs[i]) {
				b.Events = append(b.Events, docs[i])
			}
		}
		if len(b.Events) > 0 {
			c.offer(s, b)
		}
	}
}
