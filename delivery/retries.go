package delivery

import (
	"sync"

	"github.com/mongostream/streamer/internal/wake"
)

// retries are the sessions for which it may have changed whether they may get a page, so that each
// change costs what concerns its session, and not all readers that wait.
type retries struct {
	signal chan struct{} // holds one signal: some have changed

	mu struct {
		sync.Mutex
		changed map[*Session]struct{}
		over    bool // readers have left
	}
}

func newRetries() *retries {
	r := &retries{signal: make(chan struct{}, 1)}
	r.mu.changed = make(map[*Session]struct{})
	return r
}

// change notes that a session may have room, or has ended.
func (r *retries) change(s *Session) {
	r.mu.Lock()
	r.mu.changed[s] = struct{}{}
	r.mu.Unlock()
	wake.Notify(r.signal)
}

// leave notes that readers have left.
func (r *retries) leave() {
	r.mu.Lock()
	r.mu.over = true
	r.mu.Unlock()
	wake.Notify(r.signal)
}

// take removes and returns the sessions that have changed, and whether readers have left.
func (r *retries) take() (changed map[*Session]struct{}, over bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	changed, over = r.mu.changed, r.mu.over
	r.mu.changed = make(map[*Session]struct{})
	r.mu.over = false
	return changed, over
}
