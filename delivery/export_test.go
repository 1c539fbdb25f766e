package delivery

import (
	"context"
	"fmt"
)

// Scans describes the scans, for tests that fail.
func (h *Hub) Scans() (text string) {
	h.do(context.Background(), func() {
		for _, c := range h.scans {
			text += fmt.Sprintf("[%s readers %d page %v again %d spoiled %v]", c.namespace, len(c.Readers()), c.page, len(c.again), c.touched.Spoiled())
		}
		text += fmt.Sprintf(" waiting %d live %d at %s", len(h.waiting), len(h.live), h.at)
	})
	return text
}
