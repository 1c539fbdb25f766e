package dedup

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/mongostream/streamer/change"
)

// Config configures a Window.
type Config struct {
	// Size is the maximum number of remembered events. Defaults to 10000.
	Size int
	// TTL is how long an event is remembered. Defaults to 3 minutes.
	TTL time.Duration
}

// A Window remembers the recent events of a reader. It must not be used concurrently.
//
// Remembering an event twice changes nothing, so the least recently used entry is always the oldest: the LRU is a queue. It consists of two
// slices without pointers, because a node has hundreds of thousands of entries that the garbage collector would otherwise scan.
type Window struct {
	size int
	ttl  time.Duration
	seed uint64 // for hashes, so that document keys cannot be chosen to collide
	zero time.Time
	last time.Duration // time of the newest entry, since zero

	ring   []entry // a circular queue that begins at oldest
	oldest int
	count  int
	table  []uint32 // open addressing: 0 is empty, otherwise 1 + index in ring; at most half full
}

// An entry is an event's identity (its cluster time and a 128-bit hash of its token) and when it was remembered.
type entry struct {
	time change.Timestamp
	hash xxh3.Uint128
	at   time.Duration // since the window's zero
}

// firstRing is the initial capacity, which doubles as the window fills.
const firstRing = 16

// NewWindow returns an empty window. It allocates memory as it fills.
func NewWindow(cfg Config) *Window {
	w := &Window{size: cmp.Or(cfg.Size, 10000), ttl: cmp.Or(cfg.TTL, 3*time.Minute), seed: rand.Uint64(), zero: time.Now()}
	if w.size < 0 {
		panic(fmt.Sprintf("dedup: a window of %d events", w.size))
	}
	return w
}

// Seen reports whether the event was seen within the TTL before now, and remembers it. Time never goes backwards: an earlier now counts as
// the latest.
func (w *Window) Seen(e *change.Event, now time.Time) bool {
	w.last = max(w.last, now.Sub(w.zero))
	for w.count > 0 && w.last-w.ring[w.oldest].at >= w.ttl {
		w.forget()
	}
	if w.count == len(w.ring) {
		w.grow()
	}
	seen := entry{time: e.Time(), hash: xxh3.Hash128Seed(e.Token(), w.seed), at: w.last}
	place := w.find(&seen)
	if w.table[place] != 0 {
		return true
	}
	at := w.oldest + w.count
	if at >= len(w.ring) {
		at -= len(w.ring)
	}
	w.ring[at] = seen
	w.count++
	w.table[place] = uint32(at + 1)
	if w.count > w.size {
		w.forget()
	}
	return false
}

// find returns the index in the table of the event, or of the free place for it.
func (w *Window) find(e *entry) int {
	mask := len(w.table) - 1
	for i := w.home(e); ; i = (i + 1) & mask {
		n := w.table[i]
		if n == 0 {
			return i
		}
		if o := &w.ring[n-1]; o.hash == e.hash && o.time == e.time {
			return i
		}
	}
}

// home returns where the search for an event begins.
func (w *Window) home(e *entry) int { return int(e.hash.Lo & uint64(len(w.table)-1)) }

// forget removes the oldest entry. Later entries of the table move up, so that searches do not end too early.
func (w *Window) forget() {
	mask := len(w.table) - 1
	free := w.home(&w.ring[w.oldest])
	for w.table[free] != uint32(w.oldest+1) {
		free = (free + 1) & mask
	}
	for i := (free + 1) & mask; w.table[i] != 0; i = (i + 1) & mask {
		if home := w.home(&w.ring[w.table[i]-1]); (i-home)&mask >= (i-free)&mask {
			w.table[free] = w.table[i]
			free = i
		}
	}
	w.table[free] = 0
	w.count--
	if w.oldest++; w.oldest == len(w.ring) {
		w.oldest = 0
	}
}

// grow increases the capacity.
func (w *Window) grow() {
	ring := make([]entry, min(max(2*len(w.ring), firstRing), w.size+1)) // with one to spare, which is remembered before the oldest is forgotten
	n := copy(ring, w.ring[w.oldest:])
	copy(ring[n:], w.ring[:w.oldest])
	slots := 2 * firstRing
	for slots < 2*len(ring) {
		slots *= 2
	}
	w.ring, w.oldest, w.table = ring, 0, make([]uint32, slots)
	for i := range w.count {
		w.table[w.find(&w.ring[i])] = uint32(i + 1)
	}
}

// Len returns the number of remembered events, including expired ones.
func (w *Window) Len() int { return w.count }
