package client

import (
	"context"
	"math/rand/v2"
	"time"
)

// A backoff says how long to wait between attempts: twice as long after each failure, a random half of it, so that clients that failed
// together do not come back together.
type backoff struct{ first, longest time.Duration }

// after returns the wait after so many failures in a row, at least 1.
func (b backoff) after(failures int) time.Duration {
	longest := min(b.first<<min(max(failures-1, 0), 20), b.longest)
	return longest/2 + rand.N(longest/2+1)
}

// wait waits as long as after says. It returns the context's cause when that ends first.
func (b backoff) wait(ctx context.Context, failures int) error {
	timer := time.NewTimer(b.after(failures))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
