package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/cluster"
)

// A renewal is the answer to a request to prolong the claim.
type renewal struct {
	sent  time.Duration
	ttl   time.Duration
	taken []change.Partition // whose terms are over
	anew  bool               // the claim is another one: the one before has run out
	err   error
}

// why says what has ended the terms of the partitions that are taken.
func (r renewal) why() string {
	if r.anew {
		return "the claim had run out unanswered and is made anew"
	}
	return "somebody took partitions out of the claim"
}

// A reclaim is how claiming partitions again went.
type reclaim struct {
	err error
	of  int // how often the claim had been made anew when it began
}

// final reports whether an error of claiming partitions again ends everything: another process has them, or a claim is gone that stands.
// What is in the way of a claim that is being made anew may be this one's own.
func (s *Solo) final(err error, stands bool) bool {
	if held, isHeld := errors.AsType[*cluster.HeldError](err); isHeld {
		return held.Process != s.cfg.Member.Process
	}
	return errors.Is(err, cluster.ErrLost) && stands
}

// renew sends one request to prolong the claim.
func (s *Solo) renew(ctx context.Context, now, ttl time.Duration) renewal {
	ctx, cancel := context.WithTimeout(ctx, renewEvery(ttl))
	defer cancel()
	ttl, taken, err := s.registry.Renew(ctx)
	return renewal{sent: now, ttl: ttl, taken: taken, err: err}
}

// claimAnew makes the claim anew in the place of one that has run out, because nobody answered for as long as it lives. The terms of all
// partitions are over then. ErrLost says that there is nothing to go on with: another process owns the partitions, or what is stored is
// not what was claimed first. While there is no answer the terms go on.
func (s *Solo) claimAnew(ctx context.Context, now, ttl time.Duration) renewal {
	ctx, cancel := context.WithTimeout(ctx, ttl/2) // which leaves time to renew it
	defer cancel()
	epochs, err := s.registry.Claim(ctx, s.cfg.Member, s.cfg.Partitions, s.cfg.TTL, false)
	if _, isHeld := errors.AsType[*cluster.HeldError](err); isHeld {
		return renewal{err: fmt.Errorf("%w while nobody answered: %w", cluster.ErrLost, err)}
	}
	if errors.Is(err, cluster.ErrLost) {
		return renewal{err: err}
	}
	if err != nil {
		return renewal{sent: now, err: fmt.Errorf("claim partitions anew: %w", err)}
	}
	for p, e := range epochs {
		if first := s.first[p]; e.Incarnation != first.Incarnation || e.Compare(first) <= 0 {
			s.release(context.WithoutCancel(ctx))
			return renewal{err: fmt.Errorf("%w: the store is another one than before, or was restored: epoch %s after %s", cluster.ErrLost, e, first)}
		}
	}
	return renewal{sent: now, ttl: s.cfg.TTL, taken: partitionsUpTo(len(epochs)), anew: true}
}

// partitionsUpTo returns partitions 0 to n-1.
func partitionsUpTo(n int) []change.Partition {
	all := make([]change.Partition, n)
	for p := range all {
		all[p] = change.Partition(p)
	}
	return all
}
