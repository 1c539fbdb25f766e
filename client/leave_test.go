package client

import (
	"errors"
	"testing"
)

// A session stops before its node can see that it has ended: the next session may begin then, and
// brings again what the one before has not begun to handle.
func TestSessionStopsBeforeItsStreamEnds(t *testing.T) {
	c := &Client{cfg: Config{}.withDefaults(), room: &room{}}
	w := newWork(t.Context(), c, newProgress("a", 1))
	defer w.retire()
	s := newSession(c, "a:1", nil)
	s.work = w
	var cause error
	s.fail = func(err error) {
		cause = err
		if err := w.push(t.Context(), &s.feed, &batch{seq: 1}); !errors.Is(err, errLeft) {
			t.Errorf("a batch of a stream that ends: %v, want %v", err, errLeft)
		}
	}
	s.leave()
	if !errors.Is(cause, errLeft) {
		t.Errorf("the stream ended with %v, want %v", cause, errLeft)
	}
}
