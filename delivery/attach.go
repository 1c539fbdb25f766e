package delivery

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/oplog"
)

// Attach lets the session deliver partitions, each from where its subscriber is, under the term if
// the session needs one. A partition that is attached already begins again there. If the session is
// later, it leaves the live path and reads on from the earliest of them; what its other partitions
// have had is skipped. A loss, if there is one, comes before anything of these partitions. One to
// which nothing is attached, because it has all partitions, refuses with the fault
// SessionBadRequest; one whose subscriber has not acknowledged many times the partitions that there
// are, with SessionUnacknowledged.
func (s *Session) Attach(places map[change.Partition]Place, terms map[change.Partition]change.Term, loss *Loss) error {
	if !s.cfg.Attached {
		return fault.Newf(fault.SessionBadRequest, "attach: the session has all partitions")
	}
	if len(places) == 0 {
		return nil
	}
	s.mu.Lock()
	attaching := s.mu.attached
	s.mu.Unlock()
	if most := 2*s.hub.cfg.Partitions + maxAttached; attaching+len(places) > most && !s.cfg.Owner {
		return fault.Newf(fault.SessionUnacknowledged, "attach: %d partitions have been attached and not acknowledged, at most %d may be", attaching, most)
	}
	s.await(func(s *stream) {
		if !s.announced.Since.IsZero() { // not before: each reread costs a stream
			s.reread = s.announced
			s.announced = oplog.Reread{}
		}
		at := s.at()
		attached := maps.Clone(*s.attached.Load())
		elsewhere := make(map[change.Partition]Place)
		if s.seen != nil {
			for p := range attached {
				elsewhere[p] = s.seen.where(p, at)
			}
		}
		list := make([]change.Partition, 0, len(places))
		for p, place := range places {
			attached[p], elsewhere[p], list = terms[p], s.movedBack(place), append(list, p)
		}
		if s.cfg.Owner {
			s.owed = slices.Concat(s.owed, s.takenOut(places))
		}
		s.joinSnapshots(list)
		if s.cfg.Owner { // the partitions of the snapshots that it owes, whose losses are in its subscriber's checkpoints
			s.owed = nil
		} else {
			s.compensateAttached(places)
		}
		rest := Place{At: at}
		if at.IsZero() { // the session has not begun
			rest = elsewhere[list[0]]
		}
		s.readAgain(rest, elsewhere, s.generation(), func() {
			s.mu.Lock()
			for p := range places { // before anybody sees that they are attached, and takes them to be where the others are
				s.mu.joined[p] = attachment{at: elsewhere[p].From(), seq: s.mu.last}
				delete(s.mu.cuts, p)
				s.reopen(p)
			}
			s.mu.Unlock()
			s.attached.Store(&attached)
			s.open = &Batch{Attached: list}
			s.queue(s.position())
			s.tellLapse()
			if loss != nil {
				s.loss(loss, s.position())
			}
		})
	})
	return nil
}

// maxAttached bounds the partitions in unacknowledged batches that attach them, besides twice those
// that there are.
const maxAttached = 1024

// Detach removes partitions. Partitions that are not attached are ignored. A session with all
// partitions, and partitions that there are not, are refused with the fault SessionBadRequest.
func (s *Session) Detach(partitions []change.Partition) error {
	if !s.cfg.Attached {
		return fault.Newf(fault.SessionBadRequest, "detach: the session has all partitions")
	}
	if n := s.hub.cfg.Partitions; slices.ContainsFunc(partitions, func(p change.Partition) bool { return int(p) >= n }) {
		return fault.Newf(fault.SessionBadRequest, "detach: there are %d partitions", n)
	}
	s.await(func(s *stream) {
		attached := maps.Clone(*s.attached.Load())
		s.mu.Lock()
		for _, p := range partitions {
			delete(attached, p)
			s.reopen(p)
		}
		s.mu.Unlock()
		s.attached.Store(&attached)
	})
	return nil
}

// Pause stops reading. Queued batches can still be received and acknowledged. It waits until
// reading has stopped, or until the context ends: a hub that hangs reads nothing either.
func (s *Session) Pause(ctx context.Context) {
	did := make(chan struct{})
	s.do(func(s *stream) {
		defer close(did)
		s.paused = true
		if s.loop != nil {
			s.loop.leave(s, s.at())
		}
	})
	select {
	case <-did:
	case <-s.done:
	case <-ctx.Done():
	}
}

// generation returns the checkpoint generation in which the session reads.
func (s *Session) generation() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.reading.generation
}

// movedBack returns the place of a subscriber, limited to a rewind that it has not acknowledged
// yet.
func (s *Session) movedBack(p Place) Place {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.mu.unacked) > 0 && s.mu.unacked[0].seq <= s.mu.rewound.seq && p.From().After(s.mu.rewound.at) {
		return Place{At: s.mu.rewound.at}
	}
	return p
}

// Rewind moves the subscriber back in all partitions in which it is later, and raises the
// generation. It sends a loss of kind Rewound before it redelivers. If a session with all
// partitions is not later anywhere, only the generation changes.
func (s *Session) Rewind(to change.Position, generation uint64, namespaces []string) {
	s.do(func(s *stream) {
		at := s.at()
		rest := Place{At: at}
		of := map[change.Partition]Place(nil)
		later := !to.Covers(at)
		switch {
		case later:
			rest = Place{At: to}
		case s.seen != nil: // partitions at earlier places keep them
			if !s.seen.rest.passed {
				rest = s.seen.rest.place
			}
			if rest.From().After(to) {
				rest = Place{At: to}
				later = true
			}
			of = make(map[change.Partition]Place, len(s.seen.of))
			for p := range s.seen.of {
				if of[p] = s.seen.where(p, at); of[p].From().After(to) {
					of[p] = Place{At: to}
					later = true
				}
			}
		}
		if !later && !s.cfg.Attached {
			s.mu.Lock()
			defer s.mu.Unlock()
			next := *s.mu.reading
			next.generation = generation
			s.mu.reading = &next
			return
		}
		s.readAgain(rest, of, generation, func() {
			loss := NewRewind(to, nil)
			loss.Generation = generation
			loss.Namespaces, _ = s.readable(namespaces)
			s.loss(loss, s.position())
			s.mu.Lock()
			defer s.mu.Unlock()
			s.mu.rewound = attachment{at: to, seq: s.mu.last}
		})
	})
}

// NewRewind is the entry that tells a subscriber that an operator has moved it to a position, in
// partitions or, if there are none, in all.
func NewRewind(to change.Position, partitions []change.Partition) *Loss {
	return &Loss{
		Kind: Rewound, Reason: "operator", From: to, To: to, Partitions: partitions, Found: time.Now(),
		Advice: "An operator has moved this subscriber back: what follows may have been delivered before.",
	}
}

// Reread makes the session read the log up to a time anew when it next attaches partitions, from a
// stream that was opened at since or later, instead of taking it from rings. A subscriber that is
// served by several nodes needs this, when it gets partitions, if its filters read documents that
// were looked up: the former owner may have delivered any change up to the end of its term, and a
// change that it has hidden, and that now matches, follows these in the eyes of a consumer that
// drops repeated changes. So its document must not be older than theirs.
func (s *Session) Reread(since time.Time, until change.Timestamp) {
	s.await(func(s *stream) { s.announced = oplog.Reread{Since: since, Until: until} })
}

// readAgain makes the session read from the subscriber's position, off the live path, and calls
// then right before it starts to read. The owner calls it, and does not touch the session
// afterwards.
func (s *stream) readAgain(rest Place, of map[change.Partition]Place, generation uint64, then func()) {
	at := s.at()
	s.queue(at)
	s.breakHold()
	isThere := s.reread.Since.IsZero() && newSeen(rest, of) == nil && rest.From().Covers(at) && generation == s.generation()
	switch live := s.loop != nil; {
	case live && isThere:
		then()
	case live:
		s.loop.takeOff(s, at)
		s.startAt(rest, of, generation)
		then()
		s.handOver()
	default:
		s.startAt(rest, of, generation)
		then()
	}
}
