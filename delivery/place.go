package delivery

import (
	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/delivery/fair"
	"github.com/mongostream/streamer/match"
	"github.com/mongostream/streamer/snapshot"
)

// A pageWriter writes the pages that are read at one time as their readers want them, in each form
// once.
type pageWriter struct {
	hub         *Hub
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
	hits []pageHit
	lost bool // its session gets no further pages
}

// A pageForm is a form that readers want, and the last document that was written in it.
type pageForm struct {
	Form

	last pageHit
}

func (h *Hub) newPageWriter(readers []*reader, at change.Timestamp) *pageWriter {
	w := &pageWriter{
		hub: h, of: make(map[match.ID]int), events: change.NewSnapshotter(readers[0].Left.Namespace, at), partitioner: h.log.Partitioner(),
	}
	forms := make(map[string]int)
	for i, r := range readers {
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

// newPayloads returns the payloads of a page, of so many bytes as is expected, with one holder.
// Their memory is that of a page without holders, if it is about as large: otherwise payloads would
// be most of the garbage of a snapshot.
func (h *Hub) newPayloads(expected int) *pagePayloads {
	p, is := h.spares.pages.Get().(*pagePayloads)
	if !is || cap(p.bytes) < expected/2 || cap(p.bytes) > 2*expected {
		p = &pagePayloads{bytes: make([]byte, 0, expected)}
	}
	p.holders.Store(1)
	return p
}

// giveUp says that so many holders have given the payloads of a page up. A session that ends keeps
// what it holds, which then is garbage.
func (h *Hub) giveUp(p *pagePayloads, holders int32) {
	if p.holders.Add(-holders) == 0 {
		h.spares.pages.Put(&pagePayloads{bytes: p.bytes[:0]})
	}
}

// write writes a page. It expects payloads of so many bytes.
func (w *pageWriter) write(f *snapshot.PageRead, expected int) *page {
	n := len(f.Page.Documents)
	p := &page{
		namespace: f.Query.Namespace, begun: f.Begun, over: f.Over,
		documents: make([]document, 0, n), of: make(map[*reader][]pageHit, len(w.readers)), payloads: w.hub.newPayloads(expected),
	}
	meter := &pageMeter{writer: w, spent: make(map[*fair.Account]int), costly: make(map[*Session]*Subscription)}
	p.costly = meter.costly
	for i := range w.forms {
		w.forms[i].last.document = -1
	}
	for i := range w.readers {
		r := &w.readers[i]
		r.hits = make([]pageHit, 0, min(n, len(r.hits)+len(r.hits)/8))
	}
	for _, doc := range f.Page.Documents {
		d := document{id: change.IDOf(doc)}
		var err error
		if w.event, err = w.events.Event(doc); err != nil {
			w.hub.cfg.Logger.Warn("parsing snapshot document failed", "namespace", p.namespace.String(), "error", err)
		} else {
			d.partition, _ = w.partitioner.Of(&w.event)
			w.writer.Next(&w.event)
			w.match(p, meter)
		}
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
	p.lease = fair.NewLease(cap(p.payloads.bytes))
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
		from := len(p.payloads.bytes)
		var err error
		if p.payloads.bytes, err = w.writer.Append(p.payloads.bytes, form.Form); err != nil {
			w.hub.fail(r.Who, err)
			return
		}
		form.last = pageHit{at, int32(from), int32(len(p.payloads.bytes))}
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
