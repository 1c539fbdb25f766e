package dedup

import (
	"cmp"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"github.com/zeebo/xxh3"

	"mongostream/change"
)

// Config configures a Window.
type Config struct {
	// Size is the most events remembered. Defaults to 10000.
	Size int
	// TTL is for how long an event is remembered. Defaults to 3 minutes.
	TTL time.Duration
}

// A Window remembers the events that a lane has passed. It belongs to one goroutine.
type Window struct {
	ttl   time.Duration
	begun time.Time
	seen  *simplelru.LRU[key, time.Duration]
}

// A key is an event's identity: its cluster time and a 128-bit hash of its token.
type key struct {
	time change.Timestamp
	hash xxh3.Uint128
}

// NewWindow makes an empty window. It takes memory as it fills.
func NewWindow(cfg Config) *Window {
	seen, err := simplelru.NewLRU[key, time.Duration](cmp.Or(cfg.Size, 10000), nil)
	if err != nil {
		panic("dedup: " + err.Error()) // a negative size
	}
	return &Window{ttl: cmp.Or(cfg.TTL, 3*time.Minute), begun: time.Now(), seen: seen}
}

// Seen reports whether the event has passed within the TTL before now, and remembers it from now on.
func (w *Window) Seen(e *change.Event, now time.Time) bool {
	k := key{time: e.Time(), hash: xxh3.Hash128(e.Token())}
	at := now.Sub(w.begun) // the LRU holds no pointers into the clock
	if before, ok := w.seen.Peek(k); ok && at-before < w.ttl {
		return true
	}
	w.seen.Add(k, at)
	return false
}

// Len returns how many events are remembered, those of outlived entries included.
func (w *Window) Len() int { return w.seen.Len() }

// Clear forgets everything.
func (w *Window) Clear() { w.seen.Purge() }
