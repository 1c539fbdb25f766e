package dedup

import (
	"cmp"
	"fmt"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
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

// A Window remembers the events of the latest cluster time that a reader has read. It must not be
// used concurrently.
//
// As long as their tokens have one form, which is nearly always, nothing can be a duplicate: the
// events are only listed. They move to an LRU when a token of another form comes.
type Window struct {
	size int
	ttl  time.Duration
	now  time.Time // of the latest event

	time  change.Timestamp // of all remembered events
	first []byte           // the token of the first event, while it is the only one
	at    time.Time        // when that was seen
	list  []event          // all, while they are several of one form; at most twice the size
	met   *simplelru.LRU[change.Ref, seen]
}

// An event is a change, and the token under which it was seen.
type event struct {
	change change.Ref
	seen
}

// seen says under which token a change was seen, and when.
type seen struct {
	form  uint16
	token uint64 // a hash
	at    time.Time
}

// NewWindow returns an empty Window.
func NewWindow(cfg Config) *Window {
	w := &Window{size: cmp.Or(cfg.Size, 10000), ttl: cmp.Or(cfg.TTL, 3*time.Minute)}
	var err error
	if w.met, err = simplelru.NewLRU[change.Ref, seen](w.size, nil); err != nil {
		panic(fmt.Sprintf("dedup: make a window of %d events: %v", w.size, err))
	}
	return w
}

// Seen reports whether the change of the event was seen within the TTL before now under a token of
// another form, or since then under the same token, and remembers it. An event of another time than
// the one before forgets all. Time never goes backwards: an earlier now counts as the latest.
func (w *Window) Seen(e *change.Event, now time.Time) bool {
	if now.After(w.now) {
		w.now = now
	}
	if e.Time() != w.time || len(w.first) == 0 {
		w.begin(e)
		return false
	}
	if len(w.list) == 0 && w.met.Len() == 0 {
		w.list = append(w.list, eventAt(change.Position{Token: w.first, Time: w.time}, w.at))
	}
	next := eventAt(e.Position(), w.now)
	if w.met.Len() == 0 && w.list[0].form == next.form {
		w.add(next)
		return false
	}
	for _, e := range w.list[max(0, len(w.list)-w.size):] {
		w.met.Add(e.change, e.seen)
	}
	w.list = w.list[:0]
	before, known := w.met.Get(next.change)
	mayBeSame := before.form != next.form || before.token == next.token // tokens compare within a form
	if known && mayBeSame && w.now.Sub(before.at) < w.ttl {
		return true
	}
	w.met.Add(next.change, next.seen)
	return false
}

// begin forgets all and remembers the first event of a time. Most events are the only ones of
// theirs.
func (w *Window) begin(e *change.Event) {
	if w.met.Len() > 0 {
		w.met.Purge()
	}
	w.time = e.Time()
	w.first = append(w.first[:0], e.Token()...)
	w.at = w.now
	w.list = w.list[:0]
}

// add adds an event to the list.
func (w *Window) add(e event) {
	if len(w.list) == 2*w.size {
		w.list = w.list[:copy(w.list, w.list[w.size:])]
	}
	w.list = append(w.list, e)
}

func eventAt(p change.Position, at time.Time) event {
	return event{p.Ref(), seen{form: p.Form(), token: xxh3.Hash(p.Token), at: at}}
}

// Len returns the number of remembered events, including expired ones.
func (w *Window) Len() int {
	if n := max(min(len(w.list), w.size), w.met.Len()); n > 0 {
		return n
	}
	return min(len(w.first), 1)
}
