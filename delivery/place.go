package delivery

import (
	"bytes"
	"slices"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/match"
	"github.com/mongostream/streamer/snapshot"
)

// A page is a page of documents, encoded for its readers.
type page struct {
	after, to change.Timestamp
	until     change.Value
	next      change.Value
	documents []document
	hits      []hit // of the documents, one after the other
	payloads  []byte
	costly    map[*Session]*Subscription // whose filters cost too much on it
}

type document struct {
	id        change.Value
	partition change.Partition
	hits      int // where its hits end in those of the page
}

// A hit is a reader that receives a document.
type hit struct {
	reader   *reader
	from, to int // in the page's payloads
}

// A pageWriter keeps the buffers of a scan's pages, which are used again when a page has been placed.
type pageWriter struct {
	Writer

	hits     []hit
	payloads []byte
}

// write writes a page as its readers want it.
func (h *Hub) write(w *pageWriter, q snapshot.Query, read snapshot.Page, takers []*reader) *page {
	p := &page{
		after: q.After, to: read.To, until: q.Until, next: read.Next, documents: make([]document, 0, len(read.Documents)), hits: w.hits[:0], payloads: w.payloads[:0],
	}
	defer func() { w.hits, w.payloads = p.hits, p.payloads }()
	index, readers := &match.Index{}, make(map[match.ID]*reader, len(takers))
	for _, r := range takers {
		index.Add(r.Who.key, r.Who.Program)
		readers[r.Who.key] = r
	}
	partitioner := h.log.Partitioner()
	var found []match.ID
	meter := &pageMeter{hub: h, readers: readers, spent: make(map[*tenant]int), costly: make(map[*Session]*Subscription)}
	p.costly = meter.costly
	events := change.NewSnapshotter(q.Namespace, q.After)
	var e change.Event
	for _, doc := range read.Documents {
		var err error
		if e, err = events.Event(doc); err != nil {
			h.logger.Warn("parsing snapshot document failed", "namespace", q.Namespace.String(), "error", err)
			continue
		}
		d := document{id: change.IDOf(doc)}
		d.partition, _ = partitioner.Of(&e)
		w.Next(&e)
		found = index.Match(&e, found[:0], meter)
		for _, id := range found {
			r, from := readers[id], len(p.payloads)
			if p.payloads, err = w.Append(p.payloads, r.Who.Form); err != nil {
				h.fail(r.Who, err)
				continue
			}
			p.hits = append(p.hits, hit{r, from, len(p.payloads)})
		}
		d.hits = len(p.hits)
		p.documents = append(p.documents, d)
	}
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

// placeAll places the pages whose time the Hub has reached.
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

// place delivers a page to its readers, without the documents that changes have touched since, if the Hub has reached the page's time, and the
// end of a transaction of that time: the rest of it would take documents back to states that the page is later than. A
// page from which changes may be missing is read again.
func (h *Hub) place(c *scan) {
	p := c.page
	spoiled := c.touched.Spoiled()
	if p == nil || !spoiled && (p.to.Compare(h.at.Time) > 0 || p.to == h.at.Time && p.to == h.within) {
		return
	}
	c.page = nil
	defer notify(c.placed)
	if spoiled {
		return
	}
	if len(c.again) == 0 {
		c.until, c.next, c.read = p.until, p.next, len(p.documents)
	}
	c.again = nil
	for s, sub := range p.costly {
		h.evictReader(s, sub)
	}
	for _, r := range slices.Clone(c.Readers()) {
		if r.Who.session.documentsFrom.Compare(p.after) > 0 { // it has got partitions meanwhile, and reads the page again
			c.Leave(r)
			h.waiting = append(h.waiting, r)
			h.early = true
		}
	}
	takers := slices.Clone(c.Readers())
	ref := h.at.Ref()
	first := 0
	for _, d := range p.documents {
		hits := p.hits[first:d.hits]
		first = d.hits
		if touched, whole := c.touched.Has(d.id); touched {
			if !whole {
				c.again = append(c.again, change.Value{Type: d.id.Type, Data: bytes.Clone(d.id.Data)})
			}
			continue
		}
		for _, hit := range hits {
			if s := hit.reader.Who.session; slices.Contains(takers, hit.reader) && s.has(d.partition, true) {
				if hit.reader.Who.sent != nil {
					hit.reader.Who.sends(c.namespace, d.id)
				}
				s.document(ref, d.partition, hit.reader.Who, p.payloads[hit.from:hit.to])
			}
		}
	}
	for _, r := range takers {
		if s := r.Who.session; s.open != nil {
			s.queue(h.at)
		}
	}
	if len(c.again) == 0 {
		c.Passed(c.until, c.next)
		for _, r := range takers {
			h.passed(r, c.read)
		}
	}
	for _, r := range takers {
		if s := r.Who.session; s.isLive() && !s.credit() {
			h.leave(s, h.at)
		}
	}
}

// document puts a document of a snapshot into the open batch. The Hub's loop calls it.
func (s *Session) document(ref change.Ref, p change.Partition, sub *Subscription, payload []byte) {
	s.beginEvents()
	b := s.open
	b.payloads = append(b.payloads, payload...)
	b.Events = append(b.Events, Event{
		Ref: ref, Partition: p, Format: sub.Form.Format, Subscriptions: sub.ids, Snapshot: true, end: len(b.payloads),
	})
	if !b.grows() {
		s.queue(s.hub.at)
	}
}

// passed notes how far a reader is.
func (h *Hub) passed(r *reader, documents int) {
	sub := r.Who
	p := sub.progress()
	if p == nil {
		return
	}
	h.metrics.read.Add(float64(documents))
	next := p.With(r.Left, r.Done, documents)
	if next.Since.IsZero() {
		next.Since, next.ReadBefore = time.Now(), p.Read
	}
	sub.session.setProgress(sub.ID, &next)
	if r.Done {
		sub.readers = slices.DeleteFunc(sub.readers, func(other *reader) bool { return other == r })
		h.advance(sub)
	}
}
