package wiring

import (
	"context"
	"slices"
	"sync"

	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/gateway"
)

// A topologist informs gateways about the owners of partitions, from the cluster's views.
type topologist struct {
	mu struct {
		sync.Mutex
		last    gateway.Topology // of version 0 before the first view
		changed chan struct{}    // closed and replaced with each change

		incarnation uint64 // that of the last view with an owner
	}
}

var _ gateway.Topologist = (*topologist)(nil)

func newTopologist() *topologist {
	t := &topologist{}
	t.mu.changed = make(chan struct{})
	t.mu.incarnation = 1
	return t
}

// revisions is more than a store has in one incarnation.
const revisions = 1 << 48

// viewed takes a view. A topology has the revision at which it was first seen; revisions start
// again with an incarnation.
func (t *topologist) viewed(v cluster.View) {
	next := topologyOf(v)
	t.mu.Lock()
	defer t.mu.Unlock()
	incarnation := uint64(0)
	for _, o := range v.Owners {
		incarnation = max(incarnation, o.Epoch.Incarnation)
	}
	if incarnation > 0 {
		t.mu.incarnation = incarnation
	}
	next.Version += (t.mu.incarnation - 1) * revisions
	if next.Version <= t.mu.last.Version || slices.Equal(next.Nodes, t.mu.last.Nodes) && slices.Equal(next.Owners, t.mu.last.Owners) {
		return
	}
	t.mu.last = next
	close(t.mu.changed)
	t.mu.changed = make(chan struct{})
}

// topologyOf returns the owners of partitions. A node that gateways cannot reach has no address,
// and one whose membership has ended owns nothing.
func topologyOf(v cluster.View) gateway.Topology {
	t := gateway.Topology{Version: uint64(v.Revision), Owners: make([]int, len(v.Owners))}
	places := make(map[string]int)
	for _, m := range v.Members {
		if m.Garbled == nil && m.Kind != cluster.KindGateway {
			places[m.Process] = len(t.Nodes)
			t.Nodes = append(t.Nodes, gateway.NodeAddress{Name: m.Node, Address: m.Gateway})
		}
	}
	for p, o := range v.Owners {
		place, there := places[o.Process]
		if !there {
			place = -1
		}
		t.Owners[p] = place
	}
	return t
}

// Follow implements gateway.Topologist.
func (t *topologist) Follow(ctx context.Context, version uint64) (gateway.Topology, error) {
	for {
		t.mu.Lock()
		last, changed := t.mu.last, t.mu.changed
		t.mu.Unlock()
		if last.Version > version {
			return last, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return gateway.Topology{}, context.Cause(ctx)
		}
	}
}
