package delivery

import (
	"maps"
	"slices"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/snapshot"
)

// maxUntaken bounds the pages that wait for a session which has not come to their time.
const maxUntaken = 2

var _ snapshot.Sessions[*Subscription] = (*loop)(nil)

// Ready implements snapshot.Sessions: a session is ready that is with the Hub, and has credit.
func (l *loop) Ready(r *reader) bool {
	s := l.live[r.Who.session]
	if s == nil {
		return false
	}
	if past := l.place().Past(); pastOf(s.from).Compare(past) > 0 || s.documentsFrom.Compare(past) > 0 {
		l.awaited = true
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.resumes()
}

// A stand is readers whose sessions wait at one time for pages, which they share.
type stand struct {
	loop    *loop
	at      change.Timestamp
	readers []*reader
	holds   map[*Session]*standstill
	page    *page // it is written, and not given yet
}

var _ snapshot.Stand = (*stand)(nil)

// Stand implements snapshot.Sessions: the sessions leave the live path.
func (l *loop) Stand(readers []*reader, at change.Timestamp) snapshot.Stand {
	t := &stand{loop: l, at: at, readers: readers, holds: make(map[*Session]*standstill)}
	for _, r := range readers {
		if s := r.Who.session; l.Ready(r) { // otherwise it waits already, for another of its subscriptions
			t.holds[s] = l.standStill(l.live[s], at)
		}
	}
	return t
}

// Stays implements snapshot.Stand.
func (t *stand) Stays(documents, bytes int) (readers int) {
	for _, r := range t.readers {
		if s := r.Who.session; r.IsOver() || !s.stays(t.holds[s], documents, bytes) {
			return 0
		}
	}
	return len(t.readers)
}

// Writer implements snapshot.Stand. The loop does not change the readers before the first page is
// given.
func (t *stand) Writer() func(p *snapshot.PageRead, expected int) (written int) {
	w := t.loop.newPageWriter(t.readers, t.at)
	return func(p *snapshot.PageRead, expected int) (written int) {
		t.page = w.write(p, expected)
		return len(t.page.payloads.bytes)
	}
}

// Give implements snapshot.Stand.
func (t *stand) Give(g *snapshot.Given) {
	if g == nil {
		for s, hold := range t.holds {
			s.give(hold, nil, true)
		}
		return
	}
	p := t.page
	t.page = nil
	defer t.loop.giveUp(p.payloads, 1)
	for i, out := range g.Out {
		p.documents[i].out = out
	}
	given := make(map[*Session][]taking, len(t.holds))
	for _, r := range t.readers {
		if s := r.Who.session; p.costly[s] == nil {
			p.payloads.holders.Add(1)
			given[s] = append(given[s], taking{reader: r, page: p, left: r.Left, passes: g.Passes, done: r.Done, read: g.Read})
		}
	}
	for s, sub := range p.costly {
		t.loop.expensive(s, sub)
	}
	for s, hold := range t.holds {
		_, takes := given[s]
		s.give(hold, given[s], !g.More || !takes)
	}
	t.readers = slices.DeleteFunc(t.readers, func(r *reader) bool { return p.costly[r.Who.session] != nil })
	maps.DeleteFunc(t.holds, func(s *Session, _ *standstill) bool { return p.costly[s] != nil })
}

// give passes a session its part of a page, if it still waits for it.
func (s *Session) give(hold *standstill, takes []taking, last bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.hold == hold {
		hold.takes = append(hold.takes, takes...)
		hold.last = last
		s.stir()
	}
}

// stays reports whether a session still waits for pages, and would have room for more after it has
// taken the present ones and n documents.
func (s *Session) stays(hold *standstill, documents, bytes int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.hold != hold {
		return false
	}
	var last *page
	untaken := 0
	for _, t := range hold.takes {
		if t.page != last {
			last = t.page
			untaken++
		}
		documents += len(t.page.of[t.reader])
		bytes += len(t.page.payloads.bytes)
	}
	return untaken < maxUntaken && s.resumesWith(documents, bytes)
}

// expensive handles a subscription that costs too much on a page of its snapshot; the page is not
// delivered to it.
func (l *loop) expensive(s *Session, sub *Subscription) {
	away := l.costs.Banish(s.account, time.Now())
	l.metrics.costly.Inc()
	s.do(func(s *stream) {
		for _, other := range s.byKey {
			other.abandon()
		}
		if s.expense.PageEvicted(away, time.Now()) {
			s.hub.suspend(sub)
		}
	})
}
