package handoff

import (
	"context"
	"slices"
	"time"

	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/fault"
)

// A Drain is an operator's directive to move all partitions away from a node, until Undrain.
type Drain struct {
	Node, By string
	// For is how long Run watches the drain. The directive stays whatever it sees.
	For time.Duration
	// Confirm is called with the number of partitions that the node owns, after the checks and
	// before anything is written; an error ends the drain. nil is yes.
	Confirm func(owned int) error
	// Progress is called with the number of partitions that are left, whenever it changes.
	// Optional.
	Progress func(left int)
}

// A DrainResult is the outcome of a Drain.
type DrainResult struct {
	Node string `json:"node"`
	// Had and Left are how many partitions the node had and has.
	Had  int `json:"had"`
	Left int `json:"left"`
	// Gone says that the node has left the cluster.
	Gone   bool  `json:"gone"`
	TookMS int64 `json:"took_ms"`
}

// Run writes the directive and returns when the node owns nothing and the plan assigns nothing to
// it: then it may be stopped. The directive stays until Undrain, also when the context ends.
func (d Drain) Run(ctx context.Context, c Cluster) (DrainResult, error) {
	done := DrainResult{Node: d.Node, Left: -1}
	begun := time.Now()
	var err error
	if done.Had, err = d.write(ctx, c, begun); err != nil {
		return done, err
	}
	err = c.watch(ctx, func(v cluster.View) (over bool, err error) {
		left := owned(v, d.Node)
		if left != done.Left && d.Progress != nil {
			d.Progress(left)
		}
		done.Left = left
		done.Gone = absent(v, d.Node)
		done.TookMS = time.Since(begun).Milliseconds()
		planned := !done.Gone && slices.Contains(v.Plan.Owners, d.Node) // by a plan from before the directive, or because no other node can take it
		if left == 0 && !planned {
			return true, nil
		}
		if time.Since(begun) > d.For && planned {
			return true, fault.Newf(fault.DrainUnfinished, "node %q has %d partitions after %s, and plan %d assigns some to it", d.Node, left, d.For, v.Plan.Version)
		}
		if time.Since(begun) > d.For {
			return true, fault.Newf(fault.DrainUnfinished, "node %q has %d partitions after %s", d.Node, left, d.For)
		}
		return false, nil
	})
	return done, err
}

// Write writes the directive if the drain is possible, and does not wait for it.
func (d Drain) Write(ctx context.Context, c Cluster) error {
	_, err := d.write(ctx, c, time.Now())
	return err
}

// write writes the directive if the drain is possible, and returns how many partitions the node
// owns.
func (d Drain) write(ctx context.Context, c Cluster, now time.Time) (had int, err error) {
	view, err := c.View.View(ctx)
	if err != nil {
		return 0, err
	}
	if err := d.check(view); err != nil {
		return 0, err
	}
	had = owned(view, d.Node)
	if d.Confirm != nil {
		if err := d.Confirm(had); err != nil {
			return had, err
		}
	}
	return had, c.Directives.Drain(ctx, d.Node, cluster.Drain{By: d.By, At: now.UTC()})
}

// check returns the fault that says why the node cannot be drained: it is not there, or no other
// node could take its partitions.
func (d Drain) check(v cluster.View) error {
	m, there := memberOf(v, d.Node)
	switch {
	case !there && (slices.Contains(v.Plan.Owners, d.Node) || owned(v, d.Node) > 0):
		return fault.Newf(fault.HandoffDead, "node %q is in the plan but not running: there is nothing to drain", d.Node)
	case !there:
		return fault.Newf(fault.HandoffUnknown, "node %q", d.Node)
	case m.Kind == cluster.KindGateway:
		return fault.Newf(fault.HandoffUnknown, "%q is a gateway", d.Node)
	}
	takes := func(s cluster.Member) bool {
		_, drained := v.Directives.Drained[s.Node]
		return s.Node != d.Node && s.Garbled == nil && s.Kind != cluster.KindGateway && s.Status == cluster.StatusHealthy && !drained
	}
	if !slices.ContainsFunc(v.Members, takes) {
		return fault.Newf(fault.DrainNobody, "node %q has %d partitions", d.Node, owned(v, d.Node))
	}
	return nil
}

// Undrain removes the drain of a node, which gets its share again. Without a drain it is the fault
// CommandBadArgument. confirm is called before anything is written; an error ends it. nil is yes.
func Undrain(ctx context.Context, c Cluster, node string, confirm func() error) error {
	view, err := c.View.View(ctx)
	if err != nil {
		return err
	}
	if _, known := view.Directives.Drained[node]; !known {
		return fault.Newf(fault.CommandBadArgument, "node %q is not being drained", node)
	}
	if confirm != nil {
		if err := confirm(); err != nil {
			return err
		}
	}
	return c.Directives.Undrain(ctx, node)
}
