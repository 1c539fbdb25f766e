package delivery

import (
	"bytes"
	"maps"
	"slices"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/delivery/fair"
	"github.com/mongostream/streamer/internal/wake"
	"github.com/mongostream/streamer/match"
	"github.com/mongostream/streamer/snapshot"
)

// A page is a page of documents, encoded for its readers, which share it. It is not changed once
// they have it.
type page struct {
	namespace change.Namespace
	after, to change.Timestamp
	until     change.Value
	next      change.Value
	documents []document
	of        map[*reader][]hit
	raw       [][]byte // the documents, if they are read once more
	payloads  []byte
	lease     *fair.Lease
	begun     time.Time // when it was read, zero without a tracer
	over      time.Time
	costly    map[*Session]*Subscription // whose filters cost too much on it
}

type document struct {
	id        change.Value
	partition change.Partition
	out       bool // it is not in the page, because changes during the read hide its state
}

// A hit is a document that a reader receives.
type hit struct {
	document int32
	from, to int32 // in the page's payloads
}

// A pageWriter writes the pages that are read at one time as their readers want them, in each form
// once.
type pageWriter struct {
	hub         *Hub
	scan        *scan
	readers     []pageReader
	every       []int // those that get every document, in readers
	asked       bool  // whether a reader does
	index       match.Index
	of          map[match.ID]int // those in the index, in readers
	writer      Writer
	events      *change.Snapshotter
	partitioner change.Partitioner
	event       change.Event // of the current document
	forms       []pageForm
	found       []match.ID
}

// A pageReader is a reader of the pages of a pageWriter.
type pageReader struct {
	*reader

	form int // in the forms of the writer
	hits []hit
	lost bool // its session gets no more of the pages
}

// A pageForm is a form that readers want, and the last document that was written in it.
type pageForm struct {
	Form

	last hit
}

func (h *Hub) newPageWriter(c *scan, q snapshot.Query) *pageWriter {
	w := &pageWriter{
		hub: h, scan: c, of: make(map[match.ID]int), events: change.NewSnapshotter(q.Namespace, q.After), partitioner: h.log.Partitioner(),
	}
	forms := make(map[string]int)
	for i, r := range c.takers {
		form, known := forms[r.Who.Form.key]
		if !known {
			form = len(w.forms)
			forms[r.Who.Form.key] = form
			w.forms = append(w.forms, pageForm{Form: r.Who.Form})
		}
		w.readers = append(w.readers, pageReader{reader: r, form: form})
		if !r.Who.Program.IsOfAll() {
			w.index.Add(r.Who.key, r.Who.Program)
			w.of[r.Who.key] = i
		}
	}
	return w
}

// write writes a page.
func (w *pageWriter) write(f *fetch) *page {
	q, n := f.query, len(f.read.Documents)
	p := &page{
		namespace: q.Namespace, after: q.After, to: f.read.To, until: q.Until, next: f.read.Next, begun: f.begun, over: f.over,
		documents: make([]document, 0, n), of: make(map[*reader][]hit, len(w.readers)), payloads: make([]byte, 0, w.scan.encoded),
	}
	meter := &pageMeter{writer: w, spent: make(map[*fair.Account]int), costly: make(map[*Session]*Subscription)}
	p.costly = meter.costly
	if len(q.IDs) > 0 {
		p.raw = f.read.Documents
	}
	for i := range w.forms {
		w.forms[i].last.document = -1
	}
	for i := range w.readers {
		r := &w.readers[i]
		r.hits = make([]hit, 0, min(n, len(r.hits)+len(r.hits)/8))
	}
	for _, doc := range f.read.Documents {
		var err error
		if w.event, err = w.events.Event(doc); err != nil {
			w.hub.logger.Warn("parsing snapshot document failed", "namespace", q.Namespace.String(), "error", err)
			continue
		}
		d := document{id: change.IDOf(doc)}
		d.partition, _ = w.partitioner.Of(&w.event)
		w.writer.Next(&w.event)
		w.match(p, meter)
		p.documents = append(p.documents, d)
	}
	for i := range w.readers {
		switch r := &w.readers[i]; {
		case p.costly[r.Who.session] == nil:
			p.of[r.reader] = r.hits
		case !r.lost: // a session that has not got this page gets no later one
			r.lost = true
			w.index.Remove(r.Who.key)
		}
	}
	w.scan.encoded = len(p.payloads) + len(p.payloads)/8
	p.lease = fair.NewLease(cap(p.payloads))
	return p
}

// match writes the current document for the readers that get it. Whether a filter that looks at no
// document matches is asked once.
func (w *pageWriter) match(p *page, meter *pageMeter) {
	if !w.asked {
		w.asked = true
		for i := range w.readers {
			if program := w.readers[i].Who.Program; program.IsOfAll() {
				if matches, err := program.Match(&w.event); err == nil && matches {
					w.every = append(w.every, i)
				}
			}
		}
	}
	for _, i := range w.every {
		w.append(p, &w.readers[i])
	}
	w.found = w.index.Match(&w.event, w.found[:0], meter)
	for _, id := range w.found {
		w.append(p, &w.readers[w.of[id]])
	}
}

// append writes the current document for a reader.
func (w *pageWriter) append(p *page, r *pageReader) {
	if r.lost {
		return
	}
	form := &w.forms[r.form]
	if at := int32(len(p.documents)); form.last.document != at {
		from := len(p.payloads)
		var err error
		if p.payloads, err = w.writer.Append(p.payloads, form.Form); err != nil {
			w.hub.fail(r.Who, err)
			return
		}
		form.last = hit{at, int32(from), int32(len(p.payloads))}
	}
	r.hits = append(r.hits, form.last)
}

// A pageMeter bounds what identities spend on a page of documents, which waits for all of its
// readers.
type pageMeter struct {
	writer *pageWriter
	spent  map[*fair.Account]int
	costly map[*Session]*Subscription // sessions that have spent their share
}

var _ match.Meter = (*pageMeter)(nil)

// Grant implements match.Meter.
func (m *pageMeter) Grant(id match.ID) int {
	sub := m.writer.readers[m.writer.of[id]].Who
	t := sub.session.account
	switch {
	case t == nil:
	case m.costly[sub.session] != nil:
		return 0
	case m.spent[t] > fair.PageUnits:
		m.costly[sub.session] = sub
		return 0
	}
	return match.MaxCost
}

// Spent implements match.Meter.
func (m *pageMeter) Spent(id match.ID, units int, err error) {
	sub := m.writer.readers[m.writer.of[id]].Who
	if t := sub.session.account; t != nil {
		m.spent[t] += units
	}
	if err != nil {
		m.writer.hub.fail(sub, err)
	}
}

// deliverPages hands over the pages whose time the Hub has reached.
func (l *loop) deliverPages() {
	if l.awaited {
		l.awaited = false
		l.resumeAll()
	}
	l.beginListed()
	for _, c := range l.scans {
		l.deliverPage(c)
		wake.Notify(c.moved)
	}
}

// deliverPage passes a page to the sessions that wait at its time. A page that could not be read at
// this time may show changes up to its read: the Hub then waits until it has seen these, and reads
// the documents that they concern once more.
func (l *loop) deliverPage(c *scan) {
	p := c.page
	inexact := p != nil && p.to != p.after
	if p == nil || inexact && !c.touched.Spoiled() && !l.isPast(p.to) {
		return
	}
	c.page = nil
	defer wake.Notify(c.delivered)
	if inexact && c.touched.Spoiled() {
		l.giveUp(c)
		return
	}
	if len(c.again) == 0 {
		c.until, c.next, c.read = p.until, p.next, len(p.documents)
	}
	c.again = nil
	if inexact && c.untold < maxUntold { // otherwise later changes set again what the documents may show of them
		l.sift(c, p)
	}
	passes := len(c.again) == 0
	if passes {
		c.replay, c.untold = nil, 0
		before := len(c.Readers())
		c.Passed(c.until, c.next)
		if len(c.Readers()) < before {
			l.reoffer(c.namespace)
		}
	}
	given := make(map[*Session][]taking, len(c.holds))
	for _, r := range c.takers {
		if s := r.Who.session; p.costly[s] == nil {
			given[s] = append(given[s], taking{reader: r, page: p, left: r.Left, passes: passes, done: r.Done, read: c.read})
		}
	}
	for s, sub := range p.costly {
		l.expensive(s, sub)
	}
	for s, hold := range c.holds {
		_, takes := given[s]
		s.give(hold, given[s], !c.more || !takes)
	}
	if !c.more {
		c.takers, c.holds = nil, nil
		return
	}
	c.takers = slices.DeleteFunc(c.takers, func(r *reader) bool { return p.costly[r.Who.session] != nil })
	maps.DeleteFunc(c.holds, func(s *Session, _ *standstill) bool { return p.costly[s] != nil })
}

// sift takes the documents that changes have touched while the page was read out of it: they come
// at the time of another one. Those that were touched when they were read once more, too, are
// replayed.
func (l *loop) sift(c *scan, p *page) {
	for i := range p.documents {
		d := &p.documents[i]
		if d.out = c.touched.Has(d.id); d.out {
			c.again = append(c.again, change.Value{Type: d.id.Type, Data: bytes.Clone(d.id.Data)})
		}
	}
	if c.replay != nil {
		c.replay.Read(p.raw)
	}
}

// isPast reports whether the Hub has considered everything up to a time.
func (l *loop) isPast(t change.Timestamp) bool {
	return t.Compare(l.at.Time) < 0 || t == l.at.Time && (l.drained || l.at.IsProgress())
}

// giveUp releases the sessions that wait for a page that does not come.
func (l *loop) giveUp(c *scan) {
	for s, hold := range c.holds {
		s.give(hold, nil, true)
	}
	c.takers, c.holds, c.page = nil, nil, nil
}

// give passes a session its part of a page, if it still waits for it.
func (s *Session) give(hold *standstill, takes []taking, last bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.hold == hold {
		hold.takes, hold.last = append(hold.takes, takes...), last
		wake.Notify(s.stirred)
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
		bytes += len(t.page.payloads)
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
