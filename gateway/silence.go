package gateway

import (
	"context"
	"sync"
	"time"

	"github.com/mongostream/streamer/fault"
)

// A silence watches for how long nothing has come of a client.
type silence struct {
	mu struct {
		sync.Mutex
		last    time.Time
		ignored bool
	}
}

// heard notes that something came.
func (s *silence) heard() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.last = time.Now()
}

// ignore says whether silence counts: it does not while it is we who do not listen, or where the client has said that it will only listen.
func (s *silence) ignore(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.last, s.mu.ignored = time.Now(), on
}

// left returns how long the client may still be silent.
func (s *silence) left(now time.Time, timeout time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.ignored {
		return timeout
	}
	return timeout - now.Sub(s.mu.last)
}

// run ends when the client has been silent for the timeout. It is a loop of its own, because whoever deals with requests may be waiting for a
// client that takes no answers.
func (s *silence) run(ctx context.Context, timeout time.Duration) error {
	s.heard()
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			left := s.left(time.Now(), timeout)
			if left <= 0 {
				return fault.Newf(fault.SessionSilent, "nothing came for %s, or nothing that could be answered", timeout)
			}
			timer.Reset(left)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
