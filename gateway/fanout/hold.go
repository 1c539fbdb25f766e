package fanout

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/fault"
)

// Settle lets nothing more begin and waits, until the context ends, for what is on its way to be acknowledged. Then it closes the
// sessions. From then on Low stays at their last acknowledgements: our own closing releases nothing.
func (h *Hub) Settle(ctx context.Context) {
	h.locked(func() {
		h.mu.passed, h.mu.settling = h.at(), true
		for s := range h.mu.sessions {
			s.Tell(Notice{Kind: "shutting_down", Text: "The node stops: acknowledge what you have, and connect again.", Code: fault.NodeStopping, At: time.Now()})
		}
	})
	defer h.closeAll()
	for h.unacknowledged() {
		select {
		case <-h.acked:
		case <-ctx.Done():
			return
		}
	}
}

// unacknowledged reports whether something is on its way to a session on the live path.
func (h *Hub) unacknowledged() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.mu.sessions {
		if s.live && s.onItsWay() {
			return true
		}
	}
	return false
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
	h.mu.settling = true
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
		if !s.live {
			continue
		}
		if at := h.at(); low.After(at) {
			low = at
		}
		s.mu.Lock()
		if t := s.mu.trails.Of(p); !t.Away() && !t.Idle() && low.After(t.Held()) {
			low = t.Held()
		}
		s.mu.Unlock()
	}
	return low
}
