package admin

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/notice"
)

// A History is the cluster's notices.
type History interface {
	Read(ctx context.Context, after int64) (notices []notice.Notice, place int64, err error)
}

// A Cluster is where partitions move.
type Cluster struct {
	Roster     cluster.Store
	Directives cluster.DirectiveStore
	History    History
	// HeartbeatInterval is how often nodes send heartbeats. Defaults to 2 s.
	HeartbeatInterval time.Duration
}

// silenceLimit is how long a member may send no heartbeat before it counts as detached.
func (c Cluster) silenceLimit() time.Duration { return 3 * cmp.Or(c.HeartbeatInterval, 2*time.Second) }

const (
	// pollInterval is how often the cluster is looked at without a hint: heartbeats are none.
	pollInterval = 250 * time.Millisecond
	// withdrawTimeout bounds how long it takes to take a wish back.
	withdrawTimeout = 3 * time.Second
)

// watch looks at the cluster until look says that it is over, has an error, or the context ends.
func (c Cluster) watch(ctx context.Context, look func(cluster.View) (over bool, err error)) error {
	watching, cancel := context.WithCancel(ctx)
	hints := c.Roster.Hints(watching)
	defer func() {
		cancel()
		for range hints { // until it is closed
		}
	}()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		view, err := c.Roster.View(ctx)
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

// seat returns the seat of a node.
func seat(v cluster.View, node string) (cluster.Member, bool) {
	i := slices.IndexFunc(v.Members, func(s cluster.Member) bool { return s.Node == node })
	if i < 0 {
		return cluster.Member{}, false
	}
	return v.Members[i], true
}

// serves reports whether a node owns a partition and says that it serves it.
func serves(v cluster.View, node string, p change.Partition) bool {
	owner := v.Owners[p]
	s, there := seat(v, node)
	return there && owner.Node == node && owner.Process == s.Process && slices.ContainsFunc(s.Held, func(h cluster.HeldPartition) bool {
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
