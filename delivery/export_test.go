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
		for _, c := range l.scans {
			text += fmt.Sprintf("[%s readers %d page %t again %d takers %d spoiled %t]", c.namespace, len(c.Readers()), c.page != nil, len(c.again), len(c.takers), c.touched.Spoiled())
		}
		parked := 0
		for _, of := range l.parked {
			for _, readers := range of {
				parked += len(readers)
			}
		}
		text += fmt.Sprintf(" waiting %d parked %d live %d at %s", len(l.waiting), parked, len(l.live), l.at)
	})
	return text
}
