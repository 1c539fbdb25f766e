package link

import (
	"context"
	"math/rand/v2"
	"time"
)

// A Backoff says how long to wait between attempts: twice as long after each failure, a random half of it, so that clients that failed
// together do not come back together.
type Backoff struct{ First, Longest time.Duration }

// after returns the wait after so many failures in a row, at least 1.
func (b Backoff) after(failures int) time.Duration {
	longest := min(b.First<<min(max(failures-1, 0), 20), b.Longest)
	return longest/2 + rand.N(longest/2+1)
}

// Wait waits after so many failures in a row. It returns the context's cause when that ends first.
func (b Backoff) Wait(ctx context.Context, failures int) error {
	timer := time.NewTimer(b.after(failures))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
