package agent

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
	claimRetry = 200 * time.Millisecond // between two attempts to get what another process holds
	claimGrace = 2 * time.Second        // how much longer than the other's claim can live it is waited for
)

// An acquisition gets what another process may hold: a name, or all partitions.
type acquisition[T any] struct {
	verb    string // for errors
	ttl     time.Duration
	clock   func() time.Duration
	try     func(context.Context) (T, error)
	waiting func(by *cluster.HeldError, atMost time.Duration) // hears once that another process holds it
}

// acquire tries until no other process is in the way, for as long as that one's claim can live unless it is renewed; then it is the fault
// NodeRunning. An attempt takes no longer than its claim could be relied on.
func acquire[T any](ctx context.Context, a acquisition[T]) (got T, d leaseDeadline, err error) {
	var none T
	var waitUntil time.Duration // 0 before the first refusal
	for {
		sent := a.clock()
		got, err := within(ctx, trustedFor(a.ttl), a.try)
		held, isHeld := errors.AsType[*cluster.HeldError](err)
		switch {
		case err == nil:
			return got, granted(sent, a.ttl), nil
		case !isHeld:
			return none, d, fmt.Errorf("%s: %w", a.verb, err)
		case waitUntil == 0:
			life := max(a.ttl, held.TTL) + claimGrace
			waitUntil = a.clock() + life
			a.waiting(held, life)
		case a.clock() >= waitUntil:
			return none, d, fault.New(fault.NodeRunning, held)
		}
		if err := retry.Sleep(ctx, claimRetry); err != nil {
			return none, d, err
		}
	}
}

// within calls f with a timeout.
func within[T any](ctx context.Context, timeout time.Duration, f func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return f(ctx)
}
