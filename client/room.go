package client

import (
	"context"
	"sync"
)

// A room bounds the bytes that wait for handlers.
type room struct {
	limit int

	mu struct {
		sync.Mutex
		used  int
		freed chan struct{} // closed when there is more room; nil while no goroutine waits
	}
}

// A guest is the share of one session.
type guest struct{ held int } // guarded by the room's mutex

// take blocks until n bytes fit. A guest without bytes never waits, so that sessions cannot
// deadlock on each other.
func (r *room) take(ctx context.Context, g *guest, n int) error {
	for {
		r.mu.Lock()
		if g.held == 0 || r.mu.used+n <= r.limit {
			g.held += n
			r.mu.used += n
			r.mu.Unlock()
			return nil
		}
		if r.mu.freed == nil {
			r.mu.freed = make(chan struct{})
		}
		freed := r.mu.freed
		r.mu.Unlock()
		select {
		case <-freed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// give releases n bytes.
func (r *room) give(g *guest, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	g.held -= n
	r.mu.used -= n
	if r.mu.freed != nil {
		close(r.mu.freed)
		r.mu.freed = nil
	}
}

// leave releases all bytes of a guest.
func (r *room) leave(g *guest) {
	r.mu.Lock()
	n := g.held
	r.mu.Unlock()
	r.give(g, n)
}

// bytes returns the bytes in use.
func (r *room) bytes() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.used
}
