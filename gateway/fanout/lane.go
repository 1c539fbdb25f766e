package fanout

import (
	"mongostream/change"
	"mongostream/gateway/wire"
)

// lane returns what the session knows of a partition. Under the mutex.
func (s *Session) lane(p change.Partition) *lane {
	l := s.mu.lanes[p]
	if l == nil {
		l = &lane{at: wire.PlaceOf(s.cfg.Start), acked: s.cfg.Start}
		if have, ok := s.cfg.Have[p]; ok {
			l.have, l.at = &wire.Known{Place: have, Stood: s.cfg.Stood[p]}, have
			l.acked = change.Later(change.At(have.Time()), s.cfg.Stood[p])
		}
		s.mu.lanes[p] = l
	}
	return l
}

// settle ends the last batch where it stands. Its position is its own from then on, and the reply is let go of. Under the mutex.
func (l *lane) settle() {
	if l.open != nil {
		last := &l.sent[len(l.sent)-1]
		last.End = last.End.Clone()
		l.open.End, l.open = last.End, nil
	}
}

// give hands out what is queued. Only that can be acknowledged: a place that a gateway knows from elsewhere says nothing of what has yet to
// reach it. Under the mutex.
func (l *lane) give() {
	l.settle()
	l.given = len(l.sent)
}
