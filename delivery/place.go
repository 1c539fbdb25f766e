package delivery

import (
	"bytes"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/match"
	"github.com/mongostream/streamer/snapshot"
)

// A page is a page of documents, encoded for its readers, which share it. It is not changed once they have it.
type page struct {
	namespace change.Namespace
	after, to change.Timestamp
	until     change.Value
	next      change.Value
	documents []document
	of        map[*reader][]hit
	payloads  []byte
	lease     *lease
	begun     time.Time // when it was read, zero without a tracer
	over      time.Time
	costly    map[*Session]*Subscription // whose filters cost too much on it
}

type document struct {
	id        change.Value
	partition change.Partition
	last      snapshot.Touch // what happened to it while it was read
	out       bool           // it is not in the page, because that hides what it was
	touched   bool
}

// A hit is a document that a reader receives.
type hit struct {
	document int32
	from, to int32 // in the page's payloads
}

// skips reports whether a subscription gets a newer state of a document from its own changes.
func (p *page) skips(d *document, sub *Subscription) bool {
	return d.out || d.touched && d.last.Whole && sub.Program.Admits(d.last.Op)
}

// write writes a page as its readers want it, in each form once.
func (h *Hub) write(q snapshot.Query, read snapshot.Page, takers []*reader) *page {
	p := &page{
		namespace: q.Namespace, after: q.After, to: read.To, until: q.Until, next: read.Next, documents: make([]document, 0, len(read.Documents)),
		of: make(map[*reader][]hit, len(takers)),
	}
	index, readers := &match.Index{}, make(map[match.ID]*reader, len(takers))
	for _, r := range takers {
		index.Add(r.Who.key, r.Who.Program)
		readers[r.Who.key] = r
	}
	var w Writer
	var found []match.ID
	forms := make(map[string]hit)
	partitioner := h.log.Partitioner()
	meter := &pageMeter{hub: h, readers: readers, spent: make(map[*tenant]int), costly: make(map[*Session]*Subscription)}
	p.costly = meter.costly
	events := change.NewSnapshotter(q.Namespace, q.After)
	for _, doc := range read.Documents {
		e, err := events.Event(doc)
		if err != nil {
			h.logger.Warn("parsing snapshot document failed", "namespace", q.Namespace.String(), "error", err)
			continue
		}
		d := document{id: change.IDOf(doc)}
		d.partition, _ = partitioner.Of(&e)
		w.Next(&e)
		clear(forms)
		found = index.Match(&e, found[:0], meter)
		for _, id := range found {
			r := readers[id]
			one, encoded := forms[r.Who.Form.key]
			if !encoded {
				from := len(p.payloads)
				if p.payloads, err = w.Append(p.payloads, r.Who.Form); err != nil {
					h.fail(r.Who, err)
					continue
				}
				one = hit{int32(len(p.documents)), int32(from), int32(len(p.payloads))}
				forms[r.Who.Form.key] = one
			}
			p.of[r] = append(p.of[r], one)
		}
		p.documents = append(p.documents, d)
	}
	p.lease = h.budget.lease(len(p.payloads))
	return p
}

// A pageMeter bounds what identities spend on a page of documents, which waits for all of its readers.
type pageMeter struct {
	hub     *Hub
	readers map[match.ID]*reader
	spent   map[*tenant]int
	costly  map[*Session]*Subscription // who may spend no more
}

var _ match.Meter = (*pageMeter)(nil)

// Grant implements match.Meter.
func (m *pageMeter) Grant(id match.ID) int {
	sub := m.readers[id].Who
	t := sub.session.tenant
	switch {
	case t == nil:
	case m.costly[sub.session] != nil:
		return 0
	case m.spent[t] > pageUnits:
		m.costly[sub.session] = sub
		return 0
	}
	return match.MaxCost
}

// Spent implements match.Meter.
func (m *pageMeter) Spent(id match.ID, units int, err error) {
	sub := m.readers[id].Who
	if t := sub.session.tenant; t != nil {
		m.spent[t] += units
	}
	if err != nil {
		m.hub.fail(sub, err)
	}
}

// placeAll hands over the pages whose time the Hub has reached.
func (h *Hub) placeAll() {
	if h.early {
		h.early = false
		h.roomy()
	}
	h.placeListings()
	for _, c := range h.scans {
		h.place(c)
	}
}

// place hands a page over to the sessions that stand at its time. One that could not be read at this time may show what happened until it was read: the
// Hub then waits until it has seen that, and the documents that it concerns are read once more.
func (h *Hub) place(c *scan) {
	p := c.page
	inexact := p != nil && p.to != p.after
	if p == nil || inexact && !c.touched.Spoiled() && !h.isPast(p.to) {
		return
	}
	c.page = nil
	defer notify(c.placed)
	if inexact && c.touched.Spoiled() {
		h.giveUp(c)
		return
	}
	if len(c.again) == 0 {
		c.until, c.next, c.read = p.until, p.next, len(p.documents)
	}
	c.again = nil
	if inexact {
		h.sift(c, p)
	}
	takers := c.takers
	c.takers = nil
	passes := len(c.again) == 0
	if passes {
		c.tries = 0
		c.Passed(c.until, c.next)
	}
	given := make(map[*Session][]taking, len(takers))
	for _, r := range takers {
		s := r.Who.session
		takes := given[s]
		if p.costly[s] == nil {
			takes = append(takes, taking{reader: r, page: p, left: r.Left, passes: passes, done: r.Done, read: c.read})
		}
		given[s] = takes
	}
	for s, sub := range p.costly {
		h.expensive(s, sub)
	}
	for s, takes := range given {
		s.give(takes)
	}
}

// sift takes the documents that changes have touched while the page was read out of it, to be read again; those that never rest stay in it, because
// reading them once more would not end: what their changes say next brings them to their present state.
func (h *Hub) sift(c *scan, p *page) {
	c.tries++
	for i := range p.documents {
		d := &p.documents[i]
		if d.last, d.touched = c.touched.Has(d.id); d.touched && c.tries < attempts {
			d.out = true
			c.again = append(c.again, change.Value{Type: d.id.Type, Data: bytes.Clone(d.id.Data)})
		}
	}
}

// isPast reports whether the Hub has considered everything up to a time.
func (h *Hub) isPast(t change.Timestamp) bool {
	return t.Compare(h.at.Time) < 0 || t == h.at.Time && (h.drained || h.at.IsProgress())
}

// giveUp lets the sessions go that stand still for a page that does not come.
func (h *Hub) giveUp(c *scan) {
	takers := c.takers
	c.takers, c.page = nil, nil
	for _, r := range takers {
		r.Who.session.give(nil)
	}
}

// give tells a session that stands still what it takes.
func (s *Session) give(takes []taking) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.hold != nil && !s.mu.hold.ready {
		s.mu.hold.ready, s.mu.hold.takes = true, takes
		notify(s.stirred)
	}
}

// expensive acts on a subscription that costs too much on a page of its snapshot, of which nothing is delivered to it.
func (h *Hub) expensive(s *Session, sub *Subscription) {
	h.now = time.Now()
	h.banish(s.tenant)
	h.metrics.costly.Inc()
	away := s.tenant.away
	s.do(func() {
		for _, other := range s.byKey {
			other.abandon()
		}
		s.expense.away, s.expense.slot = away, true
		s.expense.level = level{units: freeUnits, at: time.Now()}
		if s.expense.pages++; s.expense.pages >= maxPages {
			h.suspend(sub)
		}
	})
}
