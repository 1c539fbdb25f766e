package member

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/cluster"
)

// SoloConfig configures a Solo.
type SoloConfig struct {
	Member cluster.Identity
	// Partitions is N: partitions 0 to N-1 are claimed.
	Partitions int
	// TTL is the time after which a claim expires unless renewed. Defaults to 10 s.
	TTL time.Duration
	// TakeOver ends the claim of another process instead of waiting for it.
	TakeOver bool
	// Resume accepts further terms of partitions that were returned ([Member.Return]) and claimed
	// again, like Resume of [Config]. Defaults to a no-op.
	Resume func(ctx context.Context, terms []change.Term) error
	// Clock includes the time during which the machine is suspended; only differences of its
	// readings count. Defaults to SinceBoot.
	Clock func() time.Duration
	// Log defaults to none.
	Log *slog.Logger
}

// A Solo is the Member of a single node: it owns every partition of a registry.
type Solo struct {
	*Member

	first  chan []change.Term // the terms of the first claim
	resume func(ctx context.Context, terms []change.Term) error
	once   sync.Once
}

// NewSolo makes a Solo.
func NewSolo(cfg SoloConfig, registry cluster.Registry) *Solo {
	s := &Solo{first: make(chan []change.Term, 1), resume: cfg.Resume}
	s.Member = New(Config{
		Member: cfg.Member, TTL: cfg.TTL, Alone: true, Resume: s.begin, Clock: cfg.Clock, Log: cfg.Log,
	}, &claims{
		Registry: registry, cfg: cfg, plan: slices.Repeat([]string{cfg.Member.Node}, cfg.Partitions), changed: make(chan struct{}, 1),
	})
	return s
}

// Run claims the partitions, calls serve once with the terms, and keeps the claim alive until serve
// returns; then it releases the claim. As with [Member.Run] the terms outlive ctx, which tells
// serve to stop. When the claim is lost, all terms and the context of serve end with the cause
// change.ErrTermLost.
func (s *Solo) Run(ctx context.Context, serve func(ctx context.Context, terms []change.Term) error) error {
	return s.Member.Run(ctx, func(ctx context.Context) error {
		select {
		case terms := <-s.first:
			return serve(ctx, terms)
		case <-ctx.Done():
			return nil
		}
	})
}

// begin accepts terms that have begun: the first ones go to serve.
func (s *Solo) begin(ctx context.Context, terms []change.Term) error {
	isFirst := false
	s.once.Do(func() {
		isFirst = true
		s.first <- terms
	})
	if isFirst || s.resume == nil {
		return nil
	}
	return s.resume(ctx, terms)
}

// claims makes a registry the store of a single-node cluster, and is its only membership. Joining
// claims all partitions, and the plan assigns them to the node. A view makes no request: it shows
// the registry's last answers.
type claims struct {
	cluster.Registry

	cfg     SoloConfig
	plan    []string
	changed chan struct{}
	first   []change.Epoch // of the first claim

	mu struct {
		sync.Mutex
		owners []cluster.Owner // as far as known; none if a partition was taken, or its term was returned
		made   int             // the number of claims of all partitions
	}
}

var _ cluster.Membership = (*claims)(nil)

// View implements cluster.Store.
func (c *claims) View(context.Context) (cluster.View, error) {
	owners, _ := c.known()
	return cluster.View{Owners: owners, Plan: cluster.Plan{Version: 1, Owners: c.plan}}, nil
}

// Hints implements cluster.Store, but does not close the channel.
func (c *claims) Hints(context.Context) <-chan struct{} { return c.changed }

// known returns the owners, and the number of claims of all partitions.
func (c *claims) known() ([]cluster.Owner, int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.mu.owners), c.mu.made
}

// change changes the owners.
func (c *claims) change(f func(owners []cluster.Owner)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(c.mu.owners)
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// owner returns this node as the owner at an epoch.
func (c *claims) owner(e change.Epoch) cluster.Owner {
	return cluster.Owner{Node: c.cfg.Member.Node, Process: c.cfg.Member.Process, Epoch: e}
}

// Join implements cluster.Store. Joining again replaces an expired claim. It fails with
// cluster.ErrLost if another process owns the partitions, or if the store is not the one of the
// first claim.
func (c *claims) Join(ctx context.Context, _ cluster.Heartbeat, ttl time.Duration) (cluster.Membership, error) {
	_, made := c.known()
	epochs, err := c.Registry.Claim(ctx, c.cfg.Member, c.cfg.Partitions, ttl, c.cfg.TakeOver && made == 0)
	if _, isHeld := errors.AsType[*cluster.HeldError](err); isHeld && made > 0 {
		return nil, fmt.Errorf("%w while nobody answered: %w", cluster.ErrLost, err)
	}
	if err != nil {
		return nil, err
	}
	if made == 0 {
		c.first = epochs
	}
	for p, e := range epochs {
		if first := c.first[p]; e.Incarnation != first.Incarnation || made > 0 && e.Compare(first) <= 0 {
			leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
			defer cancel()
			err := c.Leave(leaving)
			return nil, errors.Join(fmt.Errorf("%w: the store is another one than before, or was restored: epoch %s after %s", cluster.ErrLost, e, first), err)
		}
	}
	c.change(func([]cluster.Owner) {
		c.mu.owners = make([]cluster.Owner, len(epochs))
		for p, e := range epochs {
			c.mu.owners[p] = c.owner(e)
		}
		c.mu.made++
	})
	return c, nil
}

// Renew implements cluster.Membership. A partition that was claimed again while the request was
// under way has not been taken.
func (c *claims) Renew(ctx context.Context) (time.Duration, error) {
	asked, _ := c.known()
	ttl, taken, err := c.Registry.Renew(ctx)
	if len(taken) > 0 {
		c.change(func(owners []cluster.Owner) {
			for _, p := range taken {
				if owners[p] == asked[p] {
					owners[p] = cluster.Owner{}
				}
			}
		})
	}
	return ttl, err
}

// Beat implements cluster.Membership: there are no other members to inform.
func (c *claims) Beat(context.Context, cluster.Heartbeat) error { return nil }

// Claim implements cluster.Membership, but returns a *cluster.HeldError if another process owns a
// partition. An error about this process's own earlier claim does not end the one that replaced it.
func (c *claims) Claim(ctx context.Context, partitions []change.Partition) ([]cluster.Owner, error) {
	owners, made := c.known()
	free := slices.DeleteFunc(slices.Clone(partitions), func(p change.Partition) bool { return owners[p] != cluster.Owner{} })
	if len(free) > 0 {
		epochs, err := c.Reclaim(ctx, free)
		_, now := c.known()
		held, isHeld := errors.AsType[*cluster.HeldError](err)
		isOwn := isHeld && held.Process == c.cfg.Member.Process
		isRenewed := errors.Is(err, cluster.ErrLost) && now != made
		if isOwn || isRenewed {
			err = errors.New(err.Error()) // it does not concern the current claim
		}
		if err != nil {
			return nil, fmt.Errorf("claim partitions again: %w", err)
		}
		c.change(func(owners []cluster.Owner) {
			for i, p := range free {
				if epochs[i].Compare(owners[p].Epoch) > 0 {
					owners[p] = c.owner(epochs[i])
				}
			}
		})
	}
	owners, _ = c.known()
	claimed := make([]cluster.Owner, len(partitions))
	for i, p := range partitions {
		claimed[i] = owners[p]
	}
	return claimed, nil
}

// Transfer implements cluster.Membership: there is no other member.
func (c *claims) Transfer(context.Context, cluster.Member, []change.Partition, []change.Epoch) ([]cluster.Owner, error) {
	return nil, cluster.ErrAbsent
}

// Return implements cluster.Membership. The registry keeps others out of returned partitions; the
// node claims them again with new epochs.
func (c *claims) Return(_ context.Context, partitions []change.Partition, epochs []change.Epoch) error {
	c.change(func(owners []cluster.Owner) {
		for i, p := range partitions {
			if owners[p].Epoch == epochs[i] {
				owners[p] = cluster.Owner{}
			}
		}
	})
	return nil
}

// Leave implements cluster.Membership.
func (c *claims) Leave(ctx context.Context) error { return c.Release(ctx) }
