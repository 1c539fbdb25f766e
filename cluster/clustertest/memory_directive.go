package clustertest

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/handoff"
)

// A pin is a directive under its own lease.
type pin struct {
	cluster.Pin

	lease *lease
}

var _ handoff.DirectiveStore = view{}

// Operator returns the store for an operator, which Cut, Kill and Mute affect by that name.
func (m *Memory) Operator(name string) handoff.DirectiveStore { return m.reach(name) }

// wishes returns the current directives.
func (m *Memory) wishes() (w cluster.Directives) {
	if len(m.mu.pins) > 0 {
		w.Pinned = make(map[change.Partition]cluster.Pin, len(m.mu.pins))
		for p, pin := range m.mu.pins {
			w.Pinned[p] = pin.Pin
		}
	}
	if len(m.mu.drains) > 0 {
		w.Drained = maps.Clone(m.mu.drains)
	}
	return w
}

// Pin implements [handoff.DirectiveStore].
func (v view) Pin(ctx context.Context, p change.Partition, wish cluster.Pin, ttl time.Duration) error {
	return v.call(ctx, v.of, func() error {
		if int(p) >= v.partitions {
			return fmt.Errorf("pin partition %d of %d", p, v.partitions)
		}
		stands, pinned := v.mu.pins[p]
		switch {
		case pinned && stands.Same(wish):
			return nil
		case pinned:
			return fmt.Errorf("to node %q, by %q: %w", stands.To, stands.By, cluster.ErrPinned)
		}
		v.mu.pins[p] = pin{wish, v.grant(v.of, v.clock()+ttl)}
		v.wrote()
		return nil
	})
}

// Unpin implements [handoff.DirectiveStore].
func (v view) Unpin(ctx context.Context, p change.Partition, wish cluster.Pin) error {
	return v.call(ctx, v.of, func() error {
		if stands, pinned := v.mu.pins[p]; pinned && stands.Same(wish) {
			v.end(stands.lease)
		}
		return nil
	})
}

// Drain implements [handoff.DirectiveStore].
func (v view) Drain(ctx context.Context, node string, wish cluster.Drain) error {
	return v.call(ctx, v.of, func() error {
		if _, drained := v.mu.drains[node]; !drained {
			v.mu.drains[node] = wish
			v.wrote()
		}
		return nil
	})
}

// Undrain implements [handoff.DirectiveStore].
func (v view) Undrain(ctx context.Context, node string) error {
	return v.call(ctx, v.of, func() error {
		if _, drained := v.mu.drains[node]; drained {
			delete(v.mu.drains, node)
			v.wrote()
		}
		return nil
	})
}
