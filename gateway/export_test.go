package gateway

import (
	"strings"
	"time"
)

// ChangeBytes bounds an answer of Changes.
const ChangeBytes = changeBytes

// A FramePool keeps buffers of frames.
type FramePool = framePool

// Frames returns the pool of all frames.
func Frames() *FramePool { return &frames }

// ReadFor bounds how long a request reads.
func (c *Changes) ReadFor(d time.Duration) { c.longest = d }

// Fragments returns how many texts that begin so are compressed.
func (h *Events) Fragments(prefix string) (n int) {
	h.compressor.mu.Lock()
	defer h.compressor.mu.Unlock()
	for text := range h.compressor.mu.recent {
		if strings.HasPrefix(text, prefix) {
			n++
		}
	}
	return n
}

// IsClosed reports whether somebody waits for the ends of streams.
func (h *Events) IsClosed() bool {
	h.detached.mu.Lock()
	defer h.detached.mu.Unlock()
	return h.detached.closed
}
