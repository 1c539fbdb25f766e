package line

import (
	"context"
	"sync"
	"time"

	"github.com/mongostream/streamer/fault"
)

// A Hearing is when something was last heard of a client.
type Hearing struct {
	mu struct {
		sync.Mutex
		last time.Time
		deaf bool
	}
}

// Heard notes that something came.
func (h *Hearing) Heard() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.last = time.Now()
}

// Deafen says whether a silence counts: it does not while it is we who do not listen, or where the client has said that it will only listen.
func (h *Hearing) Deafen(deaf bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.last, h.mu.deaf = time.Now(), deaf
}

// left returns how long the client may still be silent.
func (h *Hearing) left(now time.Time, timeout time.Duration) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mu.deaf {
		return timeout
	}
	return timeout - now.Sub(h.mu.last)
}

// Run ends when the client has been silent for the timeout. It is a loop of its own, because who deals with requests may be waiting for a
// client that takes no answers.
func (h *Hearing) Run(ctx context.Context, timeout time.Duration) error {
	h.Heard()
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			left := h.left(time.Now(), timeout)
			if left <= 0 {
				return fault.Newf(fault.SessionSilent, "nothing came for %s, or nothing that could be answered", timeout)
			}
			timer.Reset(left)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
