package streamer

import (
	"context"
	"time"

	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/fault"
)

// payWithin is how long a subscriber that connects waits for what its identity's checkpoints have
// cost the store. Beyond it, it is refused.
const payWithin = 5 * time.Second

// pay waits until the identity has paid for its large checkpoints, and then for this one: claiming
// the name writes it.
func (n *Node) pay(ctx context.Context, stored checkpoint.Checkpoint, by string) error {
	stored.Claim.By = by
	return n.awaitPaid(ctx, stored, payWithin)
}

// Pay waits until the identity has paid for its large checkpoints, and then for this one, which
// Keep saves. It returns the context's cause if that ends before.
func (e *Exclusive) Pay(ctx context.Context) error {
	for _, p := range e.Progress() {
		if err := e.node.awaitPaid(ctx, p.Checkpoint, 0); err != nil {
			return err
		}
	}
	return nil
}

// awaitPaid waits until a checkpoint is paid for, however long that takes if within is 0.
func (n *Node) awaitPaid(ctx context.Context, c checkpoint.Checkpoint, within time.Duration) error {
	begun := time.Now()
	for wait := n.writer.Pay(c); wait > 0; wait = n.writer.Pay(c) {
		if within > 0 && time.Since(begun)+wait > within {
			return fault.Newf(fault.AccessLimit, "large checkpoints of the identity cost the store more than reliability.checkpoint.identity_rate allows: wait %s", wait.Round(time.Second))
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		}
	}
	return nil
}
