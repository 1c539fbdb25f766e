package partition

import (
	"sync"
	"sync/atomic"
)

// maxWatched bounds the changes that some partitions have yet to pass.
const maxWatched = 1024

// A Watch waits for the moments when every partition has passed a change that all of them have: a collection's, which is of no document. Its
// zero value is ready.
type Watch[T any] struct {
	some atomic.Bool // there is something to watch for

	mu struct {
		sync.Mutex
		watched []*watched[T]
	}
}

// A watched is a change that some partitions have yet to pass.
type watched[T any] struct {
	value    T
	position Position
	left     map[uint32]struct{}
}

// Add watches for a change that a partition has passed, and returns what all have passed now. Of more than 1024 the oldest is dropped.
// What was added already changes nothing.
func (w *Watch[T]) Add(s *Set, partition uint32, position Position, value T) (passed []T, dropped bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.mu.watched {
		if c.position.Equal(position) {
			return nil, false
		}
	}
	// Before it is known how far the others are: one that moves meanwhile sees this, and comes to Passed.
	w.some.Store(true)
	c := &watched[T]{value: value, position: position, left: make(map[uint32]struct{})}
	for other := range s.count {
		if other != partition && !s.Has(other, position) {
			c.left[other] = struct{}{}
		}
	}
	w.mu.watched = append(w.mu.watched, c)
	if len(w.mu.watched) > maxWatched {
		w.mu.watched, dropped = w.mu.watched[1:], true
	}
	return w.take(), dropped
}

// Passed notes how far a partition is, and returns what all have passed now.
func (w *Watch[T]) Passed(partition uint32, at Position) []T {
	if !w.some.Load() {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.mu.watched {
		if at.Saw(c.position) {
			delete(c.left, partition)
		}
	}
	return w.take()
}

// take removes what all have passed. Under the mutex.
func (w *Watch[T]) take() (passed []T) {
	rest := w.mu.watched[:0]
	for _, c := range w.mu.watched {
		if len(c.left) > 0 {
			rest = append(rest, c)
		} else {
			passed = append(passed, c.value)
		}
	}
	clear(w.mu.watched[len(rest):])
	w.mu.watched = rest
	w.some.Store(len(rest) > 0)
	return passed
}

// Forget stops watching.
func (w *Watch[T]) Forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.watched = nil
	w.some.Store(false)
}
