package delivery

import (
	"context"
	"fmt"
)

// Mail returns how many functions wait for the session's owner.
func (s *Session) Mail() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.mu.mailbox)
}

// Scans describes the scans, for tests that fail.
func (h *Hub) Scans() (text string) {
	h.do(context.Background(), func(l *loop) {
		text = fmt.Sprintf("%s waiting %d live %d at %s", l.scanner, len(l.waiting), len(l.live), l.at)
	})
	return text
}
