package delivery

import "github.com/mongostream/streamer/internal/wake"

// do queues a function for the owner, which calls it between two replies. It returns at once.
func (s *Session) do(f func(*stream)) {
	s.mu.Lock()
	s.mu.mailbox = append(s.mu.mailbox, f)
	s.mu.Unlock()
	s.stir()
	s.hub.poke(s)
}

// stir has the session's own loop take another turn. It never blocks. A session that only waits, as
// on the live path, has no goroutine.
func (s *Session) stir() {
	if s.turns.Add(1) == 1 {
		go s.run()
	} else {
		wake.Notify(s.stirred)
	}
}

// await calls a function in the owner and waits for it. It returns false if the session ends first:
// the function may still be called, so its results must not be read.
func (s *Session) await(f func(*stream)) bool {
	did := make(chan struct{})
	s.do(func(s *stream) { f(s); close(did) })
	select {
	case <-did:
		return true
	case <-s.done:
		return false
	}
}

// handle calls the functions in the mailbox while the caller owns the session.
func (s *stream) handle(live bool) {
	for {
		s.mu.Lock()
		if s.mu.live != live || len(s.mu.mailbox) == 0 {
			s.mu.Unlock()
			return
		}
		f := s.mu.mailbox[0]
		s.mu.mailbox = s.mu.mailbox[1:]
		s.mu.Unlock()
		f(s)
	}
}

func (s *Session) hasMail() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.mu.mailbox) > 0
}
