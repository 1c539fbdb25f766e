package delivery

import "github.com/mongostream/streamer/delivery/fair"

// lend counts a lease for a batch of the session. The caller holds the mutex.
func (s *Session) lend(l *fair.Lease) {
	if !s.mu.released {
		s.part.Take(l)
	}
}

// memory returns the bytes that a batch takes.
func (b *Batch) memory() int {
	return fair.BatchBytes + cap(b.payloads) + cap(b.Events)*fair.EventBytes + 4*len(b.Attached)
}

// hold changes the bytes that the session holds. The caller holds the session's mutex.
func (s *Session) hold(bytes int) {
	if s.mu.released {
		return
	}
	s.mu.held += bytes
	s.part.Add(bytes)
}

// release frees the bytes of an ended session.
func (s *Session) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hold(-s.mu.held)
	for i := range s.mu.unacked {
		s.part.GiveBack(s.mu.unacked[i].lease)
		s.mu.unacked[i].lease = nil
	}
	s.mu.released = true
	s.part.Exit()
}

// opened returns the bytes of the open batch, which are not counted yet.
func (s *stream) opened() int {
	if s.open == nil {
		return 0
	}
	return s.open.memory() - s.open.charged
}

// affords reports whether the budget allows the session more than it holds and the open batch.
func (s *stream) affords() bool {
	opened := s.opened()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.released || s.part.Continues(s.mu.held+opened)
}
