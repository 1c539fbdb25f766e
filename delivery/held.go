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

// remembers changes the size of the session's memory of sent documents, in bytes. It returns false,
// and changes nothing, at the session's own bound, or if all sessions together hold so much that
// this memory would leave too little for their events.
func (s *stream) remembers(bytes int) bool {
	steps := func(n int) int { return (n + rememberedStep - 1) / rememberedStep }
	more := steps(s.remembered+bytes) - steps(s.remembered)
	fits := s.remembered+bytes <= maxSentBytes && (more <= 0 || s.hub.memory.Spares())
	if bytes > 0 && !fits {
		return false
	}
	if s.remembered += bytes; more != 0 {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.hold(more * rememberedStep)
	}
	return true
}

// rememberedStep is in what steps the memory of sent documents counts against the budget.
const rememberedStep = 16 << 10

// maxSentBytes bounds a session's memory of sent documents.
const maxSentBytes = 8 << 20
