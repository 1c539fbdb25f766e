package admin

import (
	"context"
	"slices"
	"time"

	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/fault"
)

// A Drain is an operator's wish that a node be emptied, and stay so until Undrain.
type Drain struct {
	Node, By string
	// For is how long it is watched at most. The wish stands whatever that sees.
	For time.Duration
	// Confirm is asked, with how many partitions the node owns, when nothing stands against the drain and before anything is written; an error
	// ends it. nil is yes.
	Confirm func(owned int) error
	// Progress is told how many partitions are left, whenever that changes; nil for nobody.
	Progress func(left int)
}

// A DrainResult is what became of a Drain.
type DrainResult struct {
	Node string `json:"node"`
	// Had and Left are how many partitions the node had, and has.
	Had  int `json:"had"`
	Left int `json:"left"`
	// Gone says that the node is no member any more.
	Gone   bool  `json:"gone"`
	TookMS int64 `json:"took_ms"`
}

// Run asks for the drain and returns when the node has nothing, and nothing is on its way from it or to it: then it may be stopped. The wish stands
// until it is taken back, also when the context ends.
func (d Drain) Run(ctx context.Context, c Cluster) (DrainResult, error) {
	done, begun := DrainResult{Node: d.Node, Left: -1}, time.Now()
	var err error
	if done.Had, err = d.request(ctx, c, begun); err != nil {
		return done, err
	}
	err = c.watch(ctx, func(v cluster.View) (over bool, err error) {
		left := owned(v, d.Node)
		if left != done.Left && d.Progress != nil {
			d.Progress(left)
		}
		done.Left, done.Gone, done.TookMS = left, absent(v, d.Node), time.Since(begun).Milliseconds()
		given := !done.Gone && slices.Contains(v.Plan.Owners, d.Node) // by a plan from before the wish, or where nobody else can take it
		if left == 0 && !given {
			return true, nil
		}
		if time.Since(begun) > d.For && given {
			return true, fault.Newf(fault.DrainUnfinished, "node %q has %d partitions after %s, and plan %d assigns some to it", d.Node, left, d.For, v.Plan.Version)
		}
		if time.Since(begun) > d.For {
			return true, fault.Newf(fault.DrainUnfinished, "node %q has %d partitions after %s", d.Node, left, d.For)
		}
		return false, nil
	})
	return done, err
}

// request writes the directive if nothing stands against it, and returns how many partitions the node owns.
func (d Drain) request(ctx context.Context, c Cluster, now time.Time) (had int, err error) {
	view, err := c.Roster.View(ctx)
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

// check refuses to drain who is not there, and where nobody could take what it has.
func (d Drain) check(v cluster.View) error {
	s, there := seat(v, d.Node)
	switch {
	case !there && (slices.Contains(v.Plan.Owners, d.Node) || owned(v, d.Node) > 0):
		return fault.Newf(fault.HandoffDead, "node %q is in the plan but not running: there is nothing to drain", d.Node)
	case !there:
		return fault.Newf(fault.HandoffUnknown, "node %q", d.Node)
	case s.Kind == cluster.KindGateway:
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

// Undrain takes a drain back: the node gets its share again. Where there was none it is the fault CommandBadArgument. ask is asked before
// anything is written; an error ends it. nil is yes.
func Undrain(ctx context.Context, c Cluster, node string, ask func() error) error {
	view, err := c.Roster.View(ctx)
	if err != nil {
		return err
	}
	if _, known := view.Directives.Drained[node]; !known {
		return fault.Newf(fault.CommandBadArgument, "node %q is not being drained", node)
	}
	if ask != nil {
		if err := ask(); err != nil {
			return err
		}
	}
	return c.Directives.Undrain(ctx, node)
}
