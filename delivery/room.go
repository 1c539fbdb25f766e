package delivery

import (
	"maps"
	"slices"
	"sync"
)

// rooms are the readers that wait until their sessions may get a page, and the sessions for which
// that may have changed, so that each change costs what concerns its session, and not all that
// wait.
type rooms struct {
	signal  chan struct{}          // holds one signal: some have changed
	waiting map[*Session][]*reader // belongs to the Hub's loop

	mu struct {
		sync.Mutex
		changed map[*Session]struct{}
	}
}

func newRooms() *rooms {
	r := &rooms{signal: make(chan struct{}, 1), waiting: make(map[*Session][]*reader)}
	r.mu.changed = make(map[*Session]struct{})
	return r
}

// wait has a reader wait. The Hub's loop calls it.
func (r *rooms) wait(of *reader) {
	s := of.Who.session
	r.waiting[s] = append(r.waiting[s], of)
}

// change notes that a session may have room, or has ended.
func (r *rooms) change(s *Session) {
	r.mu.Lock()
	r.mu.changed[s] = struct{}{}
	r.mu.Unlock()
	notify(r.signal)
}

// take removes and returns the sessions that have changed.
func (r *rooms) take() map[*Session]struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	changed := r.mu.changed
	r.mu.changed = make(map[*Session]struct{})
	return changed
}

// roomy resumes the scans, and offers them the readers of sessions that have changed.
func (h *Hub) roomy() {
	h.wakeScans()
	for s := range h.rooms.take() {
		h.offerAgain(s)
	}
}

// resume resumes the scans, and offers them a session's readers that wait.
func (h *Hub) resume(s *Session) {
	h.wakeScans()
	h.offerAgain(s)
}

// offerAgain offers the readers of a session that waited.
func (h *Hub) offerAgain(s *Session) {
	waiting := h.rooms.waiting[s]
	delete(h.rooms.waiting, s)
	for _, r := range waiting {
		h.offer(r)
	}
}

// resumeAll does so for all sessions.
func (h *Hub) resumeAll() {
	h.wakeScans()
	for _, s := range slices.Collect(maps.Keys(h.rooms.waiting)) {
		h.offerAgain(s)
	}
}

func (h *Hub) wakeScans() {
	for _, c := range h.scans {
		notify(c.woken)
	}
}
