package fanout

import (
	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway/fanout/trail"
	"github.com/mongostream/streamer/gateway/wire"
)

// Attach lets an Owned session deliver partitions, each from where its subscriber stands: at its place, and behind its whole position
// in stood, where there is one. A partition that is attached already begins again there. If the session is further, it leaves the live path
// and reads on from the earliest of them; what its other partitions have had is skipped. A session that is not Owned is refused with the
// fault SessionBadRequest.
func (s *Session) Attach(have map[change.Partition]wire.Place, stood map[change.Partition]change.Position) error {
	if !s.cfg.Owned {
		return errNotOwned("attach")
	}
	h := s.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.cause != nil || h.mu.closed {
		return nil // it is over
	}
	h.mu.moved = true
	var back change.Position
	for p, place := range have {
		if int(p) >= h.cfg.Partitions {
			return fault.Newf(fault.SessionBadPosition, "partition %d of %d: there is no such partition", p, h.cfg.Partitions)
		}
		known := trail.Known{Place: place, Stood: stood[p]}
		s.mu.trails.Attach(p, known)
		if from := known.From(); back.IsZero() || back.After(from) {
			back = from
		}
	}
	if len(have) > 0 {
		s.readAgain(back)
	}
	s.stir()
	s.signal()
	return nil
}

func errNotOwned(request string) error {
	return fault.Newf(fault.SessionBadRequest, "%s goes with PARTITIONS_OWNED", request)
}

// Detach lets an Owned session no longer deliver partitions. Those that it does not deliver change nothing. A session that is not Owned is
// refused with the fault SessionBadRequest.
func (s *Session) Detach(partitions []change.Partition) error {
	if !s.cfg.Owned {
		return errNotOwned("detach")
	}
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.cause != nil {
		return nil
	}
	s.hub.mu.moved = true
	for _, p := range partitions {
		s.mu.trails.Detach(p)
	}
	s.stir() // it may have credit again
	s.hub.ease()
	return nil
}

// readAgain has the session read what is behind the position, again where it has read it: what its partitions have had of that is skipped.
// A session that has yet to come there stays where it is. Under both mutexes.
func (s *Session) readAgain(from change.Position) {
	stands := s.mu.position
	if s.live {
		stands = change.Later(s.hub.at(), s.from)
	}
	if !stands.IsZero() && !stands.After(from) {
		return
	}
	s.mu.trails.Again()
	s.mu.position, s.live = from.Clone(), false
	s.mu.rewinds++
}
