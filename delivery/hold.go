package delivery

import (
	"slices"
	"time"

	"github.com/mongostream/streamer/change"
)

// standStill pauses a live session at a time, which the Hub has not passed.
func (l *loop) standStill(s *stream, at change.Timestamp) *standstill {
	place := change.Later(l.at, s.from)
	hold := &standstill{at: at}
	s.queue(place)
	s.mu.Lock()
	s.mu.hold = hold
	s.mu.Unlock()
	l.leave(s, place)
	return hold
}

// held returns the standstill of a session, nil if it may continue.
func (s *Session) held() *standstill {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.hold
}

// stands reports that the session, which reads with its own loop, has reached the time of its hold:
// it has considered everything up to there. The log must show that no event of that time follows;
// drained says that the log had no further events.
func (s *stream) stands(drained bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.hold == nil {
		return false
	}
	at := s.mu.considered
	c := at.Time.Compare(s.mu.hold.at)
	return c > 0 || c == 0 && drained
}

// takePages takes the available pages of the standstill. It returns false while more will come.
func (s *stream) takePages() (over bool) {
	s.mu.Lock()
	held := s.mu.hold
	if held == nil {
		s.mu.Unlock()
		return true
	}
	takes, last := held.takes, held.last
	held.takes = nil
	s.mu.Unlock()
	place := change.Later(change.At(held.at.Next()), s.position())
	for len(takes) > 0 {
		n := slices.IndexFunc(takes, func(t taking) bool { return t.page != takes[0].page })
		if n < 0 {
			n = len(takes)
		}
		of := takes[0].page.payloads
		s.takePage(place, takes[:n])
		takes = takes[n:]
		s.hub.giveUp(of, int32(n))
	}
	if last {
		s.letGo()
	}
	return last
}

// takePage takes a page for subscriptions. The page counts once all of it is queued.
func (s *stream) takePage(place change.Position, takes []taking) {
	takes = slices.DeleteFunc(takes, func(t taking) bool { return t.reader.Gone.Load() || s.subscriptions[t.reader.Who.ID] != t.reader.Who })
	for _, t := range takes {
		s.takeDocuments(place, t)
	}
	s.queue(place)
	for _, t := range takes {
		s.passed(t)
	}
}

// breakHold ends the hold of a session that moves elsewhere. Pages that it has not taken are read
// again.
func (s *stream) breakHold() {
	if s.held() == nil {
		return
	}
	for _, sub := range s.byKey {
		sub.abandon()
	}
	s.letGo()
	s.standing = false
}

// letGo ends the hold of a session.
func (s *Session) letGo() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.hold = nil
}

// takeDocuments queues the documents of a page for a subscription.
func (s *stream) takeDocuments(place change.Position, t taking) {
	sub := t.reader.Who
	hits := t.page.of[t.reader]
	s.hub.tracePage(sub, t.page)
	e := Event{Ref: place.Ref(), Format: sub.Form.Format, Subscriptions: sub.ids, Snapshot: true}
	for i, hit := range hits {
		d := &t.page.documents[hit.document]
		if !s.has(d.partition, true) || d.out || sub.isAhead(t.page.namespace, d.id) {
			continue
		}
		if sub.known != nil {
			sub.know(t.page.namespace, d.id)
		}
		b := s.openDocuments(place, len(hits)-i, t.page)
		e.Partition = d.partition
		e.paged = true
		e.from = hit.from
		e.to = hit.to
		b.shared += int(hit.to - hit.from)
		b.Events = append(b.Events, e)
		if !b.grows() {
			s.queue(place)
		}
	}
}

// openDocuments opens a batch for n documents of a page. A batch has documents of one page only,
// because it counts the memory of one.
func (s *stream) openDocuments(place change.Position, n int, of *page) *Batch {
	if s.open != nil && s.open.page != nil && s.open.page != of.payloads {
		s.queue(place)
	}
	if s.open == nil {
		s.open = &Batch{Events: s.hub.spares.events.take(min(n, MaxBatchEvents))}
	}
	if s.open.page == nil {
		of.payloads.holders.Add(1)
		s.open.page, s.open.lease = of.payloads, of.lease
	}
	return s.open
}

// passed notes how far a subscription is with a collection.
func (s *stream) passed(t taking) {
	t.reader.Partly = !t.passes
	sub := t.reader.Who
	p := sub.progress()
	if p == nil || !t.passes {
		return
	}
	s.hub.metrics.read.Add(float64(t.read))
	next := p.With(t.left, t.done, t.read)
	if next.Since.IsZero() {
		next.Since = time.Now()
		next.ReadBefore = p.Read
	}
	s.setProgress(sub.ID, &next)
	if t.done {
		sub.readers = slices.DeleteFunc(sub.readers, func(r *reader) bool { return r == t.reader })
	}
}
