package fanout

import (
	"mongostream/change"
	"mongostream/fault"
	"mongostream/gateway/fanout/trail"
	"mongostream/gateway/wire"
)

// Attach lets an Owned session deliver partitions, each from where its subscriber stands: at its place, and behind its whole position
// in stood, where there is one. A partition that is attached already begins again there. If the session is further, it leaves the live path
// and reads on from the rearmost of them; what its other partitions have had is skipped.
func (s *Session) Attach(have map[change.Partition]wire.Place, stood map[change.Partition]change.Position) error {
	h := s.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.cause != nil || h.mu.settling {
		return nil // it is over
	}
	considered := s.mu.position
	if s.live {
		considered = change.Later(h.at(), s.from)
	}
	back := considered
	for p, place := range have {
		if int(p) >= h.cfg.Partitions {
			return fault.Newf(fault.SessionBadPosition, "partition %d of %d: there is no such partition", p, h.cfg.Partitions)
		}
		known := trail.Known{Place: place, Stood: stood[p]}
		if s.mu.trails.Attach(p, known) {
			h.mu.attached[p]++
		}
		if from := known.From(); back.IsZero() || back.After(from) {
			back = from
		}
	}
	if back.Compare(considered) != 0 {
		s.mu.trails.Again()
		s.readAgain(back)
		s.live = false
	}
	s.stir()
	s.signal()
	return nil
}

// Detach lets an Owned session no longer deliver partitions. Those that it does not deliver change nothing.
func (s *Session) Detach(partitions []change.Partition) {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.cause != nil {
		return
	}
	for _, p := range partitions {
		if s.mu.trails.Detach(p) {
			s.hub.mu.attached[p]--
		}
	}
	s.stir() // it may have credit again
}

// readAgain moves the session back. Under the mutex.
func (s *Session) readAgain(from change.Position) {
	s.mu.position = from.Clone()
	s.mu.rewinds++
}
