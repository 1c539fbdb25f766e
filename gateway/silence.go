package gateway

import (
	"context"
	"sync"
	"time"

	"github.com/mongostream/streamer/fault"
)

// A silence detects clients that send nothing.
type silence struct {
	mu struct {
		sync.Mutex
		last    time.Time
		ignored bool
	}
}

// heard records a message.
func (s *silence) heard() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.last = time.Now()
}

// ignore suspends detection, while the server does not read or for a client that only listens.
func (s *silence) ignore(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.last, s.mu.ignored = time.Now(), on
}

// left returns the time until the client counts as silent.
func (s *silence) left(now time.Time, timeout time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.ignored {
		return timeout
	}
	return timeout - now.Sub(s.mu.last)
}

// run returns an error when the client is silent for the timeout. It has its own goroutine, because request processing may block on a
// client that does not receive.
func (s *silence) run(ctx context.Context, timeout time.Duration) error {
	s.heard()
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			left := s.left(time.Now(), timeout)
			if left <= 0 {
				return fault.Newf(fault.SessionSilent, "client sent nothing for %s, or does not receive the answers", timeout)
			}
			timer.Reset(left)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
