package delivery

import (
	"time"

	"github.com/mongostream/streamer/change"
)

// join adds a session that has considered everything up to at to the live path, unless the Hub is
// later.
func (l *loop) join(s *stream, at change.Position) (joined bool) {
	if l.at.IsZero() || !at.Covers(l.at) {
		return false
	}
	if away, admitted := l.costs.Admits(s.account, time.Now(), s.evaluates); !admitted {
		s.expense.LeftLive(away)
		return false
	}
	l.live[s.Session] = s
	s.loop = l
	s.from = change.Position{}
	if !l.at.Covers(at) {
		s.from = at
	}
	s.mu.Lock()
	s.mu.live = true
	s.mu.follows = true
	s.mu.considered = at
	s.mu.Unlock()
	reading := false
	for _, sub := range s.byKey {
		reading = reading || len(sub.readers) > 0
		l.include(sub)
	}
	l.poke(s.Session) // the loop now handles its mail
	l.metrics.joined.Inc()
	if reading {
		l.resume(s.Session)
	}
	return true
}

// include and exclude maintain the index.
func (l *loop) include(sub *Subscription) {
	l.subscriptions[sub.key] = sub
	l.index.Add(sub.key, sub.Program)
	if sub.known != nil {
		l.leavers.add(sub)
	}
	l.advance(sub)
}

func (l *loop) exclude(sub *Subscription) {
	l.index.Remove(sub.key)
	if sub.known != nil {
		l.leavers.remove(sub)
	}
	delete(l.subscriptions, sub.key)
}

// leave removes a session from the live path at a position. Its own loop owns it afterwards.
func (l *loop) leave(s *stream, at change.Position) {
	l.takeOff(s, at)
	s.handOver()
}

// takeOff removes a session from the live path, at a position; the Hub's loop still owns it.
func (l *loop) takeOff(s *stream, at change.Position) {
	delete(l.live, s.Session)
	for _, sub := range s.byKey {
		l.exclude(sub)
	}
	s.loop = nil
	s.from = change.Position{}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.considered = at
	s.mu.follows = false
}

// handOver passes a session that is off the live path to its own loop. The caller must not use it
// afterwards.
func (s *stream) handOver() {
	s.mu.Lock()
	s.mu.live = false
	s.mu.Unlock()
	s.stir()
}

// shed removes a session from the live path before the current event, because its budget is
// exhausted. before is the position of the previous event.
func (l *loop) shed(s *stream, before change.Position) {
	at := change.Later(before, s.position()).Clone()
	delete(l.touched, s)
	s.queue(at)
	l.metrics.left.Inc()
	l.leave(s, at)
}

// isAfter reports whether a live session has not yet considered the position.
func (s *stream) isAfter(at change.Position) bool {
	if s.from.IsZero() {
		return true
	}
	if s.from.Has(at) {
		return false
	}
	s.from = change.Position{} // it has reached the hub
	return true
}

// forgetMatched clears the matches of the current event.
func (s *stream) forgetMatched() {
	clear(s.matched)
	clear(s.without)
	s.matched = s.matched[:0]
	s.without = s.without[:0]
}
