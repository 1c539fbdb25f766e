package delivery

import "time"

// An oplog that covers less than shortLog is short: then idle sessions receive their position every
// shortBookmark.
const (
	shortLog      = 2 * time.Minute
	shortBookmark = 5 * time.Second
)

// A bookmark says when idle sessions receive their position.
type bookmark struct {
	*time.Ticker

	hub    *Hub
	passed int // ticks since it was due
	every  int // ticks until it is due, unless the oplog is short
}

func (h *Hub) newBookmark() *bookmark {
	tick := min(h.cfg.Bookmark, shortBookmark)
	return &bookmark{Ticker: time.NewTicker(tick), hub: h, every: int(h.cfg.Bookmark / tick)}
}

// due reports, at each tick, whether to send positions.
func (b *bookmark) due() bool {
	if b.passed++; b.passed < b.every && !b.hub.short(time.Now()) {
		return false
	}
	b.passed = 0
	return true
}

// short reports whether the oplog is known to be short.
func (h *Hub) short(now time.Time) bool {
	if h.cfg.Range == nil {
		return false
	}
	reach, ok := h.cfg.Range.Latest(now)
	return ok && !reach.First.IsZero() && reach.Length() < shortLog
}
