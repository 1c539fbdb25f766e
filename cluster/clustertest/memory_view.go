package clustertest

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/fault"
)

// A view is the store as seen by one node.
type view struct {
	*Memory

	of *caller
}

var _ cluster.Store = view{}

// View implements [cluster.Store].
func (v view) View(ctx context.Context) (now cluster.View, err error) {
	err = v.call(ctx, v.of, func() error {
		if why := v.mu.blind[v.of.node]; why != nil {
			return why
		}
		now.Revision = v.mu.revision
		for _, s := range v.mu.seats {
			told := s.Member
			told.Heartbeat = cloned(told.Heartbeat)
			now.Members = append(now.Members, told)
		}
		slices.SortFunc(now.Members, func(a, b cluster.Member) int { return strings.Compare(a.Node, b.Node) })
		now.Owners = make([]cluster.Owner, len(v.mu.owners))
		for p, o := range v.mu.owners {
			now.Owners[p] = o.Owner
		}
		now.Plan = clonedPlan(v.mu.plan)
		if len(v.mu.queue) > 0 {
			now.Leader = v.mu.queue[0].candidate
		}
		now.Directives = v.wishes()
		return nil
	})
	return now, err
}

// hints are the signals of one caller.
type hints struct {
	of      *caller
	signals chan struct{}
}

func (h *hints) signal() {
	select {
	case h.signals <- struct{}{}:
	default:
	}
}

// Hints implements [cluster.Store].
func (v view) Hints(ctx context.Context) <-chan struct{} {
	v.mu.Lock()
	defer v.mu.Unlock()
	h := &hints{of: v.of, signals: make(chan struct{}, 1)}
	v.mu.hints[h] = struct{}{}
	context.AfterFunc(ctx, func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		delete(v.mu.hints, h)
		close(h.signals)
	})
	v.tell(h)
	return h.signals
}

// Join implements [cluster.Store].
func (v view) Join(ctx context.Context, first cluster.Heartbeat, ttl time.Duration) (joined cluster.Membership, err error) {
	err = v.call(ctx, v.of, func() error {
		if first.Count != 0 && first.Count != v.partitions {
			return fault.Newf(fault.CheckpointPartitions, "the cluster has %d partitions, the node %d", v.partitions, first.Count)
		}
		if s, held := v.seat(first.Node); held {
			if s.Process != first.Process {
				return &cluster.HeldError{Node: s.Node, Process: s.Process, TTL: s.lease.until - v.clock()}
			}
			v.end(s.lease)
		}
		l := v.grant(v.of, v.clock()+ttl)
		revision := v.wrote()
		v.mu.seats[first.Node] = &member{cluster.Member{Heartbeat: cloned(first), Joined: revision, Beat: revision}, l}
		joined = &membership{view: v, member: first.Node, process: first.Process, lease: l, ttl: ttl}
		return nil
	})
	return joined, err
}

// Campaign implements [cluster.Store]. A node that is cut off keeps waiting; if that lasts too
// long, Campaign fails.
func (v view) Campaign(ctx context.Context, node string) (cluster.Leadership, error) {
	l := &leadership{view: v, candidate: node, elected: make(chan struct{}), lost: make(chan struct{})}
	err := v.call(ctx, v.of, func() error {
		l.lease = v.grant(v.of, never)
		v.mu.queue = append(v.mu.queue, l)
		v.wrote()
		v.elect()
		return nil
	})
	if err != nil {
		return nil, err
	}
	select {
	case <-l.elected:
		return l, nil
	case <-l.lost:
		return nil, ErrCut
	case <-ctx.Done():
		_ = l.Resign(context.WithoutCancel(ctx))
		return nil, context.Cause(ctx)
	}
}

func cloned(h cluster.Heartbeat) cluster.Heartbeat {
	h.Checks = maps.Clone(h.Checks)
	h.Held = slices.Clone(h.Held)
	if h.Load.Lag != nil {
		h.Load.Lag = new(*h.Load.Lag)
	}
	return h
}

func clonedPlan(p cluster.Plan) cluster.Plan {
	p.Owners, p.Why, p.Reasons = slices.Clone(p.Owners), slices.Clone(p.Why), slices.Clone(p.Reasons)
	return p
}
