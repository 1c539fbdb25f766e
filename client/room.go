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
		freed chan struct{} // closed when there is more room; nil while nobody waits
	}
}

// A guest is somebody who has something in a room.
type guest struct{ held int } // guarded by the room's mutex

// take waits until there is room for n bytes. A guest that has nothing there gets in however full it is, so that no session waits for another
// that waits for it.
func (r *room) take(ctx context.Context, g *guest, n int) error {
	for {
		r.mu.Lock()
		if g.held == 0 || r.mu.used+n <= r.limit {
			g.held, r.mu.used = g.held+n, r.mu.used+n
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

// give gives n bytes back.
func (r *room) give(g *guest, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	g.held, r.mu.used = g.held-n, r.mu.used-n
	if r.mu.freed != nil {
		close(r.mu.freed)
		r.mu.freed = nil
	}
}

// leave gives back all that a guest has.
func (r *room) leave(g *guest) {
	r.mu.Lock()
	n := g.held
	r.mu.Unlock()
	r.give(g, n)
}

// bytes returns how many bytes wait.
func (r *room) bytes() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.used
}
