package handoff

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/notice"
)

// A View reads the shared state of a cluster's nodes. [cluster.Store] is one.
type View interface {
	View(ctx context.Context) (cluster.View, error)
	Hints(ctx context.Context) <-chan struct{}
}

// A DirectiveStore keeps the operators' directives. All methods may block on the network until the
// context ends.
type DirectiveStore interface {
	// Pin adds a pin, which expires after ttl unless Unpin removes it before. [cluster.ErrPinned]
	// says that the partition has another pin. It is idempotent.
	Pin(ctx context.Context, p change.Partition, pin cluster.Pin, ttl time.Duration) error
	// Unpin removes a pin, and no other one of the partition. It is idempotent.
	Unpin(ctx context.Context, p change.Partition, pin cluster.Pin) error
	// Drain adds a drain of a node, whether or not the node is there. Of several drains of a node
	// the first counts.
	Drain(ctx context.Context, node string, drain cluster.Drain) error
	// Undrain removes the drain of a node. It is idempotent.
	Undrain(ctx context.Context, node string) error
}

// Notices are the notices of the cluster, which report completed handoffs.
type Notices interface {
	Read(ctx context.Context, after int64) (notices []notice.Notice, place int64, err error)
}

// A Cluster is where partitions move, as operators see it.
type Cluster struct {
	View       View
	Directives DirectiveStore // nil where one node owns all partitions
	Notices    Notices
	// HeartbeatInterval is how often nodes send heartbeats. Defaults to 2 s.
	HeartbeatInterval time.Duration
}

// silenceLimit is how long a member may send no heartbeat before it counts as detached.
func (c Cluster) silenceLimit() time.Duration { return 3 * cmp.Or(c.HeartbeatInterval, 2*time.Second) }

const (
	// pollInterval is how often the cluster is read without a hint: heartbeats give none.
	pollInterval = 250 * time.Millisecond
	// withdrawTimeout bounds how long it takes to withdraw a directive.
	withdrawTimeout = 3 * time.Second
)

// watch reads the cluster until look says that it is over or has an error, or the context ends.
func (c Cluster) watch(ctx context.Context, look func(cluster.View) (over bool, err error)) error {
	watching, cancel := context.WithCancel(ctx)
	hints := c.View.Hints(watching)
	defer func() {
		cancel()
		for range hints { // until it is closed
		}
	}()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		view, err := c.View.View(ctx)
		if err == nil {
			var over bool
			if over, err = look(view); over {
				return err
			}
		}
		if err != nil {
			return err
		}
		select {
		case <-hints:
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// memberOf returns the member that is a node.
func memberOf(v cluster.View, node string) (cluster.Member, bool) {
	i := slices.IndexFunc(v.Members, func(m cluster.Member) bool { return m.Node == node })
	if i < 0 {
		return cluster.Member{}, false
	}
	return v.Members[i], true
}

// serves reports whether a node owns a partition and says that it serves it.
func serves(v cluster.View, node string, p change.Partition) bool {
	owner := v.Owners[p]
	m, there := memberOf(v, node)
	return there && owner.Node == node && owner.Process == m.Process && slices.ContainsFunc(m.Held, func(h cluster.HeldPartition) bool {
		return h.Partition == p && h.Epoch == owner.Epoch
	})
}

// owned counts the partitions that a node owns.
func owned(v cluster.View, node string) (n int) {
	for _, o := range v.Owners {
		if o.Node == node {
			n++
		}
	}
	return n
}
