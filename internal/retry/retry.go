package retry

import (
	"context"
	"math/rand/v2"
	"time"
)

// A Backoff says how long to wait: First after the first failure, twice as long after each further
// one, at most Longest.
type Backoff struct{ First, Longest time.Duration }

// After returns the wait after a number of failures in a row, at least 1: a random time in the
// upper half of the backoff.
func (b Backoff) After(failures int) time.Duration {
	longest := min(b.First<<min(max(failures-1, 0), 20), b.Longest)
	return longest/2 + rand.N(longest/2+1)
}

// Wait waits as long as After says. It returns the context's cause when that ends first.
func (b Backoff) Wait(ctx context.Context, failures int) error {
	return Sleep(ctx, b.After(failures))
}

// Sleep waits. It returns the context's cause when that ends first, also where there is nothing to
// wait for.
func Sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return context.Cause(ctx)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Until repeats f until it succeeds or the context ends, whose cause it returns then; between
// attempts it waits a tenth of a second at first, five seconds at most. complain, if there is one,
// hears of the first failure.
func Until(ctx context.Context, f func() error, complain func(error)) error {
	b := Backoff{First: 100 * time.Millisecond, Longest: 5 * time.Second}
	for failures := 1; ; failures++ {
		err := f()
		if err == nil {
			return nil
		}
		if complain != nil {
			complain(err)
			complain = nil
		}
		if err := b.Wait(ctx, failures); err != nil {
			return err
		}
	}
}
