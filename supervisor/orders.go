package supervisor

import (
	"context"
	"time"

	"github.com/mongostream/streamer/internal/retry"
)

// runOrders executes the orders for this process.
func (s *Supervisor) runOrders(ctx context.Context) {
	backoff := retry.Backoff{First: 200 * time.Millisecond, Longest: 5 * time.Second}
	done := make(map[Order]bool) // whose removal is not certain
	for failures := 0; ctx.Err() == nil; {
		orders, err := s.store.Next(ctx, s.cfg.Member.Node)
		if err != nil {
			failures++
			_ = backoff.Wait(ctx, failures)
			continue
		}
		for _, o := range orders {
			if err = s.store.Done(ctx, o); err == nil {
				failures = 0
			}
			key := o
			key.At = time.Time{}
			if !done[key] {
				done[key] = true
				s.obey(o)
			}
			if err == nil {
				delete(done, key)
			}
		}
		if err != nil {
			failures++
			_ = backoff.Wait(ctx, failures)
		}
	}
}

// obey executes an order if it is for this process.
func (s *Supervisor) obey(o Order) {
	logger := s.logger.With("slug", o.Slug, "restart", string(o.Level), "cause", string(o.Cause), "by", o.By, "sweep", o.Sweep)
	switch {
	case o.Process != s.cfg.Member.Process:
		logger.Info("restart ignored: it was for another process", "process", o.Process)
	case o.Level == Node:
		logger.Warn("restart of this node ordered: it drains and exits")
		s.cfg.Leave(o)
	default:
		logger.Warn("restart ordered")
		if err := s.cfg.Restart(o.What); err != nil {
			logger.Warn("restart failed", "error", err)
		}
	}
}
