package stream

import (
	"context"
	"math/rand/v2"
	"time"
)

// backoff waits before the next attempt after so many failures in a row: half a second doubled each time up to the maximum, of
// which a random half, so that nodes do not come back together. It returns the context's cause when that ends first.
func (s *Source) backoff(ctx context.Context, failures int) error {
	longest := min(250*time.Millisecond<<min(failures, 10), s.cfg.MaxBackoff)
	timer := time.NewTimer(longest/2 + rand.N(longest/2+1))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
