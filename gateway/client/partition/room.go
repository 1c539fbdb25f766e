package partition

import (
	"context"
	"sync"
)

// A Room bounds the bytes that wait for handlers.
type Room struct {
	limit int
	freed chan struct{} // holds one signal

	mu struct {
		sync.Mutex
		used int
	}
}

// NewRoom makes a Room for so many bytes.
func NewRoom(limit int) *Room { return &Room{limit: limit, freed: make(chan struct{}, 1)} }

// take waits until there is room. Something that alone is larger than all of it gets in when nothing else is there.
func (r *Room) take(ctx context.Context, n int) error {
	for {
		r.mu.Lock()
		fits := r.mu.used == 0 || r.mu.used+n <= r.limit
		if fits {
			r.mu.used += n
		}
		r.mu.Unlock()
		if fits {
			r.signal() // there may be room for another who waits
			return nil
		}
		select {
		case <-r.freed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (r *Room) give(n int) {
	r.mu.Lock()
	r.mu.used -= n
	r.mu.Unlock()
	r.signal()
}

func (r *Room) signal() {
	select {
	case r.freed <- struct{}{}:
	default:
	}
}

// Used returns how many bytes wait.
func (r *Room) Used() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.used
}
