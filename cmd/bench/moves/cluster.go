package moves

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/cluster/roster"
	"github.com/mongostream/streamer/cmd/bench/contender"
	"github.com/mongostream/streamer/internal/etcd"
	"github.com/mongostream/streamer/internal/etcd/council"
)

// settle is how long a cluster that begins waits for its nodes.
const settle = 500 * time.Millisecond

// A cluster is some nodes, and a look at what they agree on.
type cluster struct {
	nodes  []*node
	client *etcd.Client
	roster *council.Store
}

// open starts a cluster of so many nodes, and returns when they share the partitions.
func open(ctx context.Context, r *contender.Round, nodes int) (*cluster, error) {
	client, err := etcd.Dial(ctx, etcd.Config{Endpoints: []string{r.Etcd}, Prefix: "/streamer", Cluster: r.Name})
	if err != nil {
		return nil, err
	}
	c := &cluster{client: client, roster: council.New(client, council.Config{Partitions: r.Partitions})}
	for i := range nodes {
		n, err := newNode(r, i)
		if err == nil {
			c.nodes = append(c.nodes, n)
			err = n.start(ctx, settle)
		}
		if err != nil {
			return nil, errors.Join(err, c.close())
		}
	}
	err = c.until(ctx, "the nodes share the partitions", func(v roster.View) bool {
		count := make(map[string]int)
		for p, owner := range v.Owners {
			if owner.Node != v.Plan.Owners[p] || !serves(v, change.Partition(p)) {
				return false
			}
			count[owner.Node]++
		}
		return len(count) == nodes
	})
	if err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

func (c *cluster) close() error {
	var errs []error
	for _, n := range c.nodes {
		errs = append(errs, n.end())
	}
	return errors.Join(append(errs, c.client.Close())...)
}

// addresses are where gateways reach the nodes.
func (c *cluster) addresses() (all []string) {
	for _, n := range c.nodes {
		all = append(all, n.address)
	}
	return all
}

// look is how often the cluster is looked at.
const look = 10 * time.Millisecond

// until waits until a view is as wanted.
func (c *cluster) until(ctx context.Context, what string, wanted func(roster.View) bool) error {
	tick := time.NewTicker(look)
	defer tick.Stop()
	for {
		if view, err := c.roster.View(ctx); err == nil && len(view.Owners) > 0 && len(view.Plan.Owners) == len(view.Owners) && wanted(view) {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("in vain: %s: %w", what, context.Cause(ctx))
		}
	}
}

// serves reports whether a partition's owner says that it serves it.
func serves(v roster.View, p change.Partition) bool {
	owner := v.Owners[p]
	return owner.Process != "" && slices.ContainsFunc(v.Members, func(s roster.Seat) bool {
		return s.Process == owner.Process && slices.ContainsFunc(s.Held, func(h roster.Held) bool {
			return h.Partition == p && h.Epoch == owner.Epoch && h.State != string(roster.Starting)
		})
	})
}

// owned returns the partitions of a node.
func (c *cluster) owned(ctx context.Context, n *node) (map[change.Partition]bool, error) {
	view, err := c.roster.View(ctx)
	if err != nil {
		return nil, err
	}
	partitions := make(map[change.Partition]bool)
	for p, owner := range view.Owners {
		if owner.Process == n.process {
			partitions[change.Partition(p)] = true
		}
	}
	return partitions, nil
}

// drain has the first node give up what it has, and waits until the others serve it.
func (c *cluster) drain(ctx context.Context) error {
	from := c.nodes[0]
	if err := c.roster.Drain(ctx, from.id, roster.Drain{By: "bench", At: time.Now()}); err != nil {
		return err
	}
	return c.until(ctx, from.id+" has given up what it had", func(v roster.View) bool {
		for p, owner := range v.Owners {
			if owner.Process == from.process || !serves(v, change.Partition(p)) {
				return false
			}
		}
		return true
	})
}

// restart stops the first node, starts it again, and waits until it serves everything. It waits for no further nodes this time.
func (c *cluster) restart(ctx context.Context) error {
	n := c.nodes[0]
	if err := n.end(); err != nil {
		return err
	}
	if err := n.start(ctx, 0); err != nil {
		return err
	}
	return c.until(ctx, n.id+" serves again", func(v roster.View) bool {
		for p, owner := range v.Owners {
			if owner.Process != n.process || !serves(v, change.Partition(p)) {
				return false
			}
		}
		return true
	})
}
