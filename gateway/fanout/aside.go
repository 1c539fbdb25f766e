package fanout

import (
	"slices"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/match"
)

// aside queues what is to be said of an event besides the event itself, for the sessions on the live path. Under the mutex.
func (h *Hub) aside(e *change.Event) {
	h.matched = h.index.Match(e, h.matched[:0], func(match.ID, error) {}) // who is not sure of it gets it, and hears of that then
	for s := range h.mu.sessions {
		if !s.live || !e.Position().After(s.from) {
			continue
		}
		gets := slices.ContainsFunc(h.matched, func(id match.ID) bool {
			sub := h.mu.subscriptions[id]
			return sub != nil && sub.session == s
		})
		s.mu.Lock()
		if _, known := h.touched[s]; s.aside(e, gets) && !known {
			h.touched[s] = nil // it is to be woken
		}
		s.mu.Unlock()
	}
}

// aside queues what is to be said of an event besides the event itself, which gets says to follow, and reports whether there was
// something. Under the mutex.
func (s *Session) aside(e *change.Event, gets bool) bool {
	if e.Op() == change.OpSkipped {
		s.mu.trails.Lose(delivery.Poison(s.hub.cfg.Namespaces), e.Position().Clone())
		return true
	}
	n := delivery.Renamed(e, s.hub.cfg.Namespaces)
	if n == nil || !s.follows(e.ToDB(), e.ToColl()) {
		return false
	}
	if gets {
		s.mu.trails.Note(n, e.Position())
	} else {
		s.mu.trails.Lose(n, e.Position().Clone())
	}
	return true
}

// follows reports whether a subscription is about the namespace, as far as its selector tells. Under the mutex.
func (s *Session) follows(db, coll []byte) bool {
	for _, sub := range s.mu.byKey {
		f := sub.Program.Filter()
		if (f.DB == "" || f.DB == string(db)) && (f.Coll == "" || f.Coll == string(coll)) {
			return true
		}
	}
	return false
}
