package gateway

import (
	"context"
	"sync"
	"time"
)

// A watchdog detects a client that fails for some time to do one expected thing: to send messages,
// or to read them.
type watchdog struct {
	mu struct {
		sync.Mutex
		last    time.Time
		ignored bool
	}
}

// heard records that the client has done it.
func (d *watchdog) heard() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.last = time.Now()
}

// ignore suspends detection while nothing is expected, and starts the time again.
func (d *watchdog) ignore(on bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.last = time.Now()
	d.mu.ignored = on
}

// left returns the time until the client is late.
func (d *watchdog) left(now time.Time, timeout time.Duration) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mu.ignored {
		return timeout
	}
	return timeout - now.Sub(d.mu.last)
}

// run returns the error when the timeout has passed. It has its own goroutine, because request
// processing may block on a client that does not receive.
func (d *watchdog) run(ctx context.Context, timeout time.Duration, late error) error {
	d.heard()
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			left := d.left(time.Now(), timeout)
			if left <= 0 {
				return late
			}
			timer.Reset(left)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
