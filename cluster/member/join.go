package member

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/internal/retry"
)

const (
	claimGrace = 2 * time.Second // how much longer than the other's claim can last the node waits
	// livesOn is how many renewals of the other's claim prove that its process is running. A
	// restarted store also renews, once, the claims of dead processes.
	livesOn = 3
	// joinLives bounds how long a node waits, in TTLs of a claim.
	joinLives = 6
)

// A rival is another process that has the node's name, or owns everything, while the node waits for
// it.
type rival struct {
	process  string
	ttl      time.Duration // at the last look
	renewals int           // seen
	until    time.Duration // when its claim ends unless it is renewed
	first    time.Duration // the same at the first look
}

// look notes the rival's claim, and reports whether its process is running: the claim was renewed
// often, or has outlived its TTL without an observed renewal.
func (r *rival) look(held *cluster.HeldError, now, life time.Duration) (lives bool) {
	switch {
	case r.process != held.Process:
		*r = rival{process: held.Process, until: now + life, first: now + life}
	case held.TTL > r.ttl:
		r.renewals++
		r.until = now + life
	case now >= r.until:
		return true
	}
	r.ttl = held.TTL
	return r.renewals >= livesOn && now >= r.first
}

// join joins the cluster as soon as no other process has the node's name, or owns everything. A
// killed process has them until its claim expires, which a restart of the store delays. A running
// process keeps renewing its claim; then join returns the fault NodeRunning. join also waits for a
// store that does not answer. All these waits are bounded. Each attempt is shorter than the time
// for which its lease could be trusted.
func (s *Member) join(ctx context.Context) (cluster.Membership, leaseDeadline, error) {
	var other rival
	bound := s.cfg.Clock() + joinLives*(s.cfg.TTL+claimGrace)
	for {
		sent := s.cfg.Clock()
		m, err := within(ctx, trustedFor(s.cfg.TTL), s.tryJoin)
		held, isHeld := errors.AsType[*cluster.HeldError](err)
		now := s.cfg.Clock()
		mayWait := other.process != "" && now < bound
		switch {
		case err == nil:
			return m, granted(sent, s.cfg.TTL), nil
		case isHeld:
			life := max(s.cfg.TTL, held.TTL) + claimGrace
			if other.process != held.Process {
				s.sayWaiting(held, life)
				bound = max(bound, now+joinLives*life)
			}
			if other.look(held, now, life) || now >= bound {
				return nil, leaseDeadline{}, fault.New(fault.NodeRunning, held)
			}
		case mayWait && isAway(err) && ctx.Err() == nil:
			other.ttl = 0 // when the store is back, claims of dead processes may have been renewed
		case s.cfg.Alone:
			return nil, leaseDeadline{}, fmt.Errorf("claim partitions: %w", err)
		default:
			return nil, leaseDeadline{}, fmt.Errorf("join the cluster: %w", err)
		}
		if err := retry.Sleep(ctx, claimRetry); err != nil {
			return nil, leaseDeadline{}, err
		}
	}
}

// isAway reports whether a store did not answer.
func isAway(err error) bool {
	switch fault.Of(err) {
	case "", fault.EtcdUnreachable, fault.MongoUnreachable:
		return true
	default:
		return false
	}
}

// sayWaiting logs that the node waits for another process.
func (s *Member) sayWaiting(held *cluster.HeldError, life time.Duration) {
	log := s.cfg.Log.With("node", held.Node, "process", held.Process, "lease_ends_within", life, "at_most", joinLives*life)
	if s.cfg.Alone {
		log.Info("another process holds the partitions: waiting for its claim to run out")
	} else {
		log.Info("another process has this node's name: waiting for its lease to run out")
	}
}
