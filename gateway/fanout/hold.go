package fanout

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/fault"
)

// Drain opens no more sessions, because the node is about to stop, and tells those of all partitions to go elsewhere. They are served until they
// have: Settle ends the wait. Sessions that attach to partitions follow the owners, and are told when these have changed.
func (h *Hub) Drain() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.draining = true
	for s := range h.mu.sessions {
		if !s.cfg.Owned {
			s.tellStop()
		}
	}
}

// tellStop tells a session, once, that the node stops. Under the hub's mutex.
func (s *Session) tellStop() {
	if s.told {
		return
	}
	s.told = true
	s.Tell(Notice{Kind: "shutting_down", Text: "The node stops: acknowledge what you have, and connect again.", Code: fault.NodeStopping, At: time.Now()})
}

// Settle tells all sessions that the node stops and closes them, when what was on its way has been acknowledged and either they have left by
// themselves or the overlap is over; at the latest when the context ends. Until then they get what happens: one that acknowledges nothing
// keeps nobody from anything. From then on Low stays at their last acknowledgements: our own closing releases nothing.
func (h *Hub) Settle(ctx context.Context) {
	defer h.closeAll()
	h.locked(func() {
		h.mu.draining, h.mu.settling = true, true
		for s := range h.mu.sessions {
			s.tellStop()
			if s.live {
				s.mu.Lock()
				s.mu.trails.Settle()
				s.mu.Unlock()
			}
		}
	})
	overlap := time.NewTimer(h.cfg.Overlap)
	defer overlap.Stop()
	for over := h.cfg.Overlap <= 0; h.waits(over); {
		select {
		case <-h.eased:
		case <-overlap.C:
			over = true
		case <-ctx.Done():
			return
		}
	}
}

// waits reports whether a stop has anything to wait for: sessions that have yet to go elsewhere, or, when the time for that is over, those
// that have yet to acknowledge what is due.
func (h *Hub) waits(over bool) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.mu.sessions {
		if s.due() || !over && s.delivers() {
			return true
		}
	}
	return false
}

// ease lets a stop look again whether it has anything to wait for. It never blocks.
func (h *Hub) ease() {
	select {
	case h.eased <- struct{}{}:
	default:
	}
}

// Err returns why nothing may be handed to anybody now, nil where it may: the fault NodeDetached. Ask before each dispatch.
func (h *Hub) Err() error {
	if h.cfg.Trusted != nil && !h.cfg.Trusted() {
		return fault.Newf(fault.NodeDetached, "the node is not a member of its cluster")
	}
	return nil
}

// Detach closes the sessions, because the node may not serve them now: they find another one. Until Trusted, none is opened.
func (h *Hub) Detach(cause error) {
	h.mu.Lock()
	sessions := slices.Collect(maps.Keys(h.mu.sessions))
	h.mu.Unlock()
	for _, s := range sessions {
		s.Tell(Notice{Kind: "detached", Text: "The node is cut off from its cluster: connect to another one.", Code: fault.NodeDetached, At: time.Now()})
		s.Close(fault.New(fault.NodeDetached, cause))
	}
}

func (h *Hub) closeAll() {
	h.mu.Lock()
	h.mu.passed, h.mu.draining, h.mu.closed = h.at().Clone(), true, true
	sessions := slices.Collect(maps.Keys(h.mu.sessions))
	h.mu.Unlock()
	for _, s := range sessions {
		s.Close(fault.Newf(fault.NodeStopping, "the node stops"))
	}
}

// considered returns the position up to which everything has been considered for the session.
func (h *Hub) considered(s *Session) change.Position {
	h.mu.Lock()
	live, from := s.live, s.from
	var at change.Position
	if live {
		at = change.Later(h.at(), from)
	}
	h.mu.Unlock()
	if live {
		return at
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.position
}

// Expect names gateways that were there before the node began: marks wait for them, within Hold. It is called before Run.
func (h *Hub) Expect(gateways []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, g := range gateways {
		h.mu.expected[g] = struct{}{}
	}
}

// Low returns how far the mark of a partition may go whose lane has come to progress: not beyond what the hub has read while there
// are sessions on the live path, and not beyond what one of them has yet to acknowledge. It is zero, and the mark stays where it is,
// while gateways are expected.
func (h *Hub) Low(p change.Partition, progress change.Position) change.Position {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mu.cursor == nil || len(h.mu.expected) > 0 && time.Now().Before(h.mu.holdUntil) {
		return change.Position{}
	}
	low := progress
	for s := range h.mu.sessions {
		at := h.at()
		if !s.live && !s.due() {
			continue
		}
		s.mu.Lock()
		if !s.live { // it has run out of credit while a stop waited for it
			at = s.mu.position
		}
		if low.After(at) {
			low = at
		}
		if t := s.mu.trails.Of(p); !t.Away() && !t.Idle() && low.After(t.Held()) {
			low = t.Held()
		}
		s.mu.Unlock()
	}
	return low
}
