package clustertest

import (
	"context"
	"fmt"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/cluster"
)

// A leadership is a candidacy or a leadership in a Memory.
type leadership struct {
	view

	candidate string
	lease     *lease
	told      bool
	resigned  bool          // or wanted to
	elected   chan struct{} // closed when told
	lost      chan struct{} // closed when the lease has ended
}

var _ cluster.Leadership = (*leadership)(nil)

// do runs a call while the node is elected.
func (l *leadership) do(ctx context.Context, what func() error) error {
	return l.call(ctx, l.of, func() error {
		if l.lease.over {
			return cluster.ErrDeposed
		}
		return what()
	})
}

// Lost implements [cluster.Leadership].
func (l *leadership) Lost() <-chan struct{} { return l.lost }

// Publish implements [cluster.Leadership].
func (l *leadership) Publish(ctx context.Context, p cluster.Plan) error {
	return l.do(ctx, func() error {
		if stands := l.mu.plan.Version; p.Version != stands+1 {
			return fmt.Errorf("publish plan %d: plan %d stands", p.Version, stands)
		}
		l.mu.plan = clonedPlan(p)
		l.wrote()
		return nil
	})
}

// Evict implements [cluster.Leadership].
func (l *leadership) Evict(ctx context.Context, p change.Partition, epoch change.Epoch) error {
	return l.do(ctx, func() error {
		if int(p) < l.partitions && l.owned(p) && l.mu.owners[p].Epoch == epoch {
			l.mu.owners[p] = owner{}
			l.wrote()
		}
		return nil
	})
}

// Resign implements [cluster.Leadership].
func (l *leadership) Resign(ctx context.Context) error {
	l.mu.Lock()
	l.resigned = true
	l.mu.Unlock()
	return l.call(ctx, l.of, func() error {
		l.end(l.lease)
		return nil
	})
}
