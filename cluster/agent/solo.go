package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/fault"
)

// SoloConfig says what a Solo claims, and for whom.
type SoloConfig struct {
	Member cluster.Identity
	// Partitions is N: partitions 0 to N-1 are claimed.
	Partitions int
	// TTL is how long a claim lives unless it is renewed. Defaults to 10 s.
	TTL time.Duration
	// TakeOver ends the claim of another process instead of waiting for it.
	TakeOver bool
	// Resume takes the further terms of partitions whose terms were given back ([Solo.Ended]) and which were claimed again. It may
	// block on the network until its context ends; the terms live longer. After an error the partitions are claimed once more, a
	// little later. Without Resume they stay without an owner.
	Resume func(ctx context.Context, terms []change.Term) error
	// Clock goes on while the machine is suspended; only differences of its readings count. Defaults to SinceBoot.
	Clock func() time.Duration
	// Log defaults to none.
	Log *slog.Logger
}

// A Solo owns every partition of a cluster of one.
type Solo struct {
	cfg      SoloConfig
	registry cluster.Registry
	held     atomic.Pointer[termSet] // nil before the partitions are claimed
	first    []change.Epoch          // of the partitions as they were claimed first
}

// NewSolo makes a Solo.
func NewSolo(cfg SoloConfig, registry cluster.Registry) *Solo {
	cfg.TTL = cmp.Or(cfg.TTL, defaultTTL)
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	if cfg.Clock == nil {
		cfg.Clock = cluster.SinceBoot
	}
	return &Solo{cfg: cfg, registry: registry}
}

// Run claims the partitions, hands the terms to serve, which it calls once, and keeps the claim alive until serve returns;
// then it releases the claim. It returns after everything that it started has ended.
//
// When ctx ends the terms do not: ctx is handed to serve to say that it should come to its end, and serve takes what time
// it needs, for last marks too, before it returns. Only a loss ends terms. When the claim is lost all of them end, and with them
// the context that serve was given, with the cause change.ErrTermLost; serve must return then, and Run returns the fault
// NodeTermLost. When one partition is taken out of the claim, by an operator's rewind, its term alone ends; whoever serves it says
// so with Ended when that is done, and the partition is claimed again and handed to Resume. All of them go that way when the registry
// has been away until the claim ran out, and nobody else has the partitions; while it is away the terms go on.
//
// Where another process holds the partitions, Run waits as long as that one's claim can live unless renewed; a process that
// restarts after a crash so waits for its own former claim. After that it returns the fault NodeRunning. A ctx that ends
// before serve is called is a planned stop. Otherwise Run returns what serve returns.
func (s *Solo) Run(ctx context.Context, serve func(ctx context.Context, terms []change.Term) error) error {
	epochs, deadline, err := s.claim(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	s.cfg.Log.Info("partitions claimed", "partitions", len(epochs), "node", s.cfg.Member.Node, "process", s.cfg.Member.Process)
	s.first = epochs
	lifetime := context.WithoutCancel(ctx)
	owned, end := context.WithCancelCause(lifetime)
	held := newTermSet(owned, s.cfg.Clock, deadline)
	s.held.Store(held)
	terms := held.Begin(partitionsUpTo(len(epochs)), epochs, s.cfg.Clock())
	serving, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var served error
	done := make(chan struct{})
	go func() {
		defer close(done)
		served = serve(serving, terms)
	}()

	lost := s.keep(lifetime, held, deadline, serving.Done(), done)
	if lost != nil {
		end(change.ErrTermLost)
		stop(change.ErrTermLost)
		s.cfg.Log.Warn("terms ended: the partitions are not ours any more", "error", lost)
	}
	<-done
	end(context.Canceled)
	if !errors.Is(lost, cluster.ErrLost) {
		s.release(lifetime)
	}
	switch {
	case lost == nil:
		return served
	case served == nil, errors.Is(served, change.ErrTermLost), errors.Is(served, context.Canceled):
		return fault.New(fault.NodeTermLost, lost)
	}
	return errors.Join(fault.New(fault.NodeTermLost, lost), served)
}

// Ended gives a term back that is over while the claim lives: a store has refused it, or its context has ended, and nothing is done
// under it any more. Its partition is claimed again. It may be called from any goroutine and never blocks.
func (s *Solo) Ended(term change.Term) {
	if held := s.held.Load(); held != nil {
		held.Back(term)
	}
}

// claim claims the partitions as soon as nobody holds them.
func (s *Solo) claim(ctx context.Context) ([]change.Epoch, leaseDeadline, error) {
	return acquire(ctx, acquisition[[]change.Epoch]{
		verb: "claim partitions", ttl: s.cfg.TTL, clock: s.cfg.Clock,
		try: func(ctx context.Context) ([]change.Epoch, error) {
			return s.registry.Claim(ctx, s.cfg.Member, s.cfg.Partitions, s.cfg.TTL, s.cfg.TakeOver)
		},
		waiting: func(by *cluster.HeldError, atMost time.Duration) {
			s.cfg.Log.Info("another process holds the partitions: waiting for its claim to run out",
				"node", by.Node, "process", by.Process, "at_most", atMost)
		},
	})
}

// keep keeps the claim alive until done is closed, and claims the partitions again whose terms have ended, until stopping is closed.
// It returns why the claim is lost as soon as it is, or may be.
func (s *Solo) keep(ctx context.Context, held *termSet, t leaseDeadline, stopping, done <-chan struct{}) error {
	var asking sync.WaitGroup
	defer asking.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answers, claims := make(chan renewal, 1), make(chan reclaim, 1)
	renewing, claiming := false, s.cfg.Resume == nil
	var failure, claimFailure error
	var gone error // the claim has run out while nobody answered
	made := 0      // how often it was made anew
	look := time.NewTimer(0)
	defer look.Stop()
	for {
		now := s.cfg.Clock()
		if t.Over(now) {
			return notRenewed(failure)
		}
		if failure != nil || gone != nil {
			t = t.Unanswered(now)
			held.Rely(t)
		}
		if !renewing && now >= t.Due {
			ask := s.renew
			if gone != nil {
				if stopping == nil {
					return gone
				}
				ask = s.claimAnew
			}
			renewing = true
			ttl := t.TTL // t moves on meanwhile
			asking.Go(func() { answers <- ask(ctx, now, ttl) })
		}
		pause := t.Pause(now, renewing)
		if !claiming {
			partitions, next := held.Due(now, t.Until)
			pause = min(pause, next-now)
			if claiming = len(partitions) > 0; claiming {
				of := made
				asking.Go(func() { claims <- reclaim{s.claimAgain(ctx, held, partitions), of} })
			}
		}
		look.Reset(pause)
		select {
		case <-done:
			return nil
		case <-stopping:
			stopping, claiming = nil, true // what ends from now on stays ended
		case <-held.Ended:
		case <-look.C:
		case claimed := <-claims:
			err := claimed.err
			if s.final(err, claimed.of == made && !t.RanOut(s.cfg.Clock())) {
				return err
			}
			if errors.Is(err, cluster.ErrLost) && gone == nil && claimed.of == made {
				t.Due = s.cfg.Clock() // a renewal finds out whether the claim can be made anew
			}
			claiming = stopping == nil
			if !claiming {
				s.logClaims(claimFailure, err)
				claimFailure = err
			}
		case answer := <-answers:
			renewing = false
			if errors.Is(answer.err, cluster.ErrLost) {
				if gone != nil || !t.RanOut(answer.sent) {
					return answer.err
				}
				gone = answer.err
				t.Due = s.cfg.Clock()
				break
			}
			s.logTurn(failure, answer.err)
			failure = answer.err
			if failure != nil {
				t = t.Failed(s.cfg.Clock())
				break
			}
			t, gone = granted(answer.sent, answer.ttl), nil
			if answer.anew {
				made++
			}
			held.Rely(t)
			if n := held.Take(answer.taken, answer.sent); n > 0 {
				s.cfg.Log.Info("terms ended", "partitions", n, "because", answer.why())
			}
		}
	}
}

// claimAgain claims partitions whose terms have ended, and hands their new terms on.
func (s *Solo) claimAgain(ctx context.Context, held *termSet, partitions []change.Partition) error {
	ctx, cancel := context.WithTimeout(ctx, trustedFor(s.cfg.TTL))
	defer cancel()
	epochs, err := s.registry.Reclaim(ctx, partitions)
	if err != nil {
		held.Postpone(partitions, s.cfg.Clock()+reclaimPause)
		return fmt.Errorf("claim partitions again: %w", err)
	}
	terms := held.Begin(partitions, epochs, s.cfg.Clock())
	if err := s.cfg.Resume(ctx, terms); err != nil {
		for _, term := range terms {
			held.Back(term)
		}
		return fmt.Errorf("resume partitions: %w", err)
	}
	s.cfg.Log.Info("partitions claimed again", "partitions", len(terms))
	return nil
}

// logClaims logs when claiming again begins to fail.
func (s *Solo) logClaims(before, now error) {
	if before == nil && now != nil {
		s.cfg.Log.Warn("partitions whose terms ended cannot be claimed again yet", "error", now)
	}
}

// logTurn logs when renewals begin to fail and when they succeed again.
func (s *Solo) logTurn(before, now error) {
	switch {
	case before == nil && now != nil:
		s.cfg.Log.Warn("the claim on the partitions cannot be renewed", "error", now)
	case before != nil && now == nil:
		s.cfg.Log.Info("the claim on the partitions is renewed again")
	}
}

// release ends the claim, so that a successor need not wait.
func (s *Solo) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, releaseTimeout)
	defer cancel()
	if err := s.registry.Release(ctx); err != nil {
		s.cfg.Log.Warn("the claim on the partitions was not released and runs out by itself", "error", err)
		return
	}
	s.cfg.Log.Info("partitions released")
}
