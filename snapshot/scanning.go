package snapshot

import (
	"bytes"
	"iter"
	"slices"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/internal/wake"
)

const (
	// patience is how long a scan waits for readers that are not ready before it continues without
	// them.
	patience = time.Second
	// maxUntold is how often the documents of a page may have changes that do not contain their
	// effect. After that the documents come as they are read.
	maxUntold = 5
	// longestStand is how long sessions wait for pages while there are no changes, longestLag how
	// long they do after the log has been considered further.
	longestStand, longestLag = time.Second, 25 * time.Millisecond
	// firstDocuments bounds the first page of a scan.
	firstDocuments = 500
)

// A scanning is a Scan with what its next pages need. It belongs to the loop.
type scanning[T any] struct {
	Scan[T]

	namespace change.Namespace
	identity  string        // of a reader, for turns
	touched   *Touched      // since the time at which the page is read
	patience  time.Duration // for readers that are not ready
	size      int           // typical size of a document, 0 if unknown
	encoded   int           // bytes of the last page's payloads
	patient   time.Time     // deadline for readers that are not ready, zero while there are none
	woken     chan struct{} // holds one signal: readers may be ready
	delivered chan struct{} // holds one signal: the page has been handed over

	joining []*Reader[T] // join at the next page
	stand   Stand        // of the page being read: its readers wait at its time; nil: none do
	stood   time.Time    // when they began to wait
	more    bool         // another page comes at the same time
	page    *PageRead    // waits for the log to be considered up to the time by which it was read
	// again are documents of the page that are still owed before the scan continues, because
	// changes hide their state at its time; until, next and read are the page's then. They are read
	// once more; for those that keep changing, replay then brings them to the time of the next
	// page.
	again       []change.Value
	replay      *Replay       // of again, from before they are read once more
	untold      int           // replays of the page that had to be begun again
	moved       chan struct{} // holds one signal: the log was considered further, which the replay waits for
	until, next change.Value
	read        int
}

// newScanning returns a scan with its first reader.
func newScanning[T any](r *Reader[T]) *scanning[T] {
	c := &scanning[T]{
		namespace: r.Left.Namespace, identity: r.Identity, touched: NewTouched(r.Left.Namespace), patience: patience,
		woken: make(chan struct{}, 1), delivered: make(chan struct{}, 1), moved: make(chan struct{}, 1),
	}
	if !r.Left.IsFresh() {
		c.patience = latePatience
	}
	c.join(r)
	return c
}

// join adds a reader, which no longer waits for a scan.
func (c *scanning[T]) join(r *Reader[T]) bool {
	if !c.Join(r) {
		return false
	}
	r.ticket, r.yielded = 0, false
	return true
}

// note records an event, spoil that some may be missing.
func (c *scanning[T]) note(e *change.Event) {
	c.touched.Note(e)
	if c.replay != nil {
		c.replay.Note(e)
	}
}

func (c *scanning[T]) spoil() {
	c.touched.Spoil()
	if c.replay != nil {
		c.replay.Spoil()
	}
}

// invite has a reader join a scan at the next page. Only late readers of one identity wait longer
// for each other than others do.
func (c *scanning[T]) invite(r *Reader[T]) {
	c.joining = append(c.joining, r)
	if c.patience == latePatience && (r.Left.IsFresh() || r.Identity != c.identity) {
		c.patience = patience
		c.patient = time.Time{}
	}
}

// isPatient reports whether readers that are not ready are still waited for.
func (c *scanning[T]) isPatient() bool {
	if c.patient.IsZero() {
		c.patient = time.Now().Add(c.patience)
	}
	return time.Now().Before(c.patient)
}

// next begins the next pages of a scan: its readers' sessions wait at the time of the read. nil:
// not all readers are ready. over: the scan has no readers left.
func (s *Scanner[T]) next(c *scanning[T]) (f *fetch, over bool) {
	if len(c.again) == 0 {
		s.joinScan(c)
	}
	before := len(c.Readers())
	if !s.part(c) {
		return nil, false
	}
	c.patient = time.Time{}
	switch left := len(c.Readers()); {
	case left == 0 && len(c.joining) > 0:
		c.again, c.replay, c.untold = nil, nil, 0
		if before > 0 {
			defer s.reoffer(c.namespace)
		}
		return s.next(c)
	case left == 0:
		s.scans = slices.DeleteFunc(s.scans, func(other *scanning[T]) bool { return other == c })
		s.reoffer(c.namespace)
		return nil, true
	case left < before:
		s.reoffer(c.namespace)
	}
	readers := slices.Clone(c.Readers())
	c.identity = s.cfg.Turns.Least(identities(readers))
	c.touched = NewTouched(c.namespace)
	f = s.newFetch(c)
	c.stand = s.cfg.Sessions.Stand(readers, f.Query.After)
	c.stood = time.Now()
	return f, false
}

// part removes the readers from a scan that have left, and those that are not ready after some
// time. It returns false while it waits for these.
func (s *Scanner[T]) part(c *scanning[T]) bool {
	for _, r := range slices.Clone(c.Readers()) {
		switch {
		case r.IsOver():
			c.Leave(r)
		case s.cfg.Sessions.Ready(r):
		case c.isPatient():
			return false
		default:
			c.Leave(r)
			s.cfg.Sessions.Wait(r)
		}
	}
	return true
}

// newFetch returns the fetch of the next page: of documents that are owed, or of the next ones.
func (s *Scanner[T]) newFetch(c *scanning[T]) *fetch {
	f := newFetch(Query{Namespace: c.namespace, After: s.place.Past(), Documents: s.pageDocuments(c, len(c.Readers())), Bytes: PageBytes})
	switch f.Query.IDs = c.again; {
	case len(c.again) == 0:
		f.Query.From, f.Query.Until = c.Next()
	case c.replay != nil && c.replay.IsReady():
		f.replays = true
	default:
		if c.replay != nil && c.replay.Spoiled() {
			c.untold++
		}
		c.replay = NewReplay(c.namespace, c.again)
	}
	return f
}

// joinScan has the readers that wait for a scan join it: first those that have a place, because
// pages end where they are.
func (s *Scanner[T]) joinScan(c *scanning[T]) {
	if len(c.Readers()) > 0 {
		s.meet(c)
	}
	joining := c.joining
	c.joining = nil
	slices.SortStableFunc(joining, func(a, b *Reader[T]) int {
		switch {
		case a.Left.IsFresh() == b.Left.IsFresh():
			return 0
		case a.Left.IsFresh():
			return 1
		default:
			return -1
		}
	})
	for _, r := range joining {
		if !c.join(r) {
			s.begin(r)
		}
	}
}

// pageDocuments bounds the documents of a page: reading more than its bytes is wasted, and each of
// its readers needs room for their events. The first page shows how large documents are.
func (s *Scanner[T]) pageDocuments(c *scanning[T], readers int) int {
	most := firstDocuments
	if c.size > 0 {
		most = PageBytes/c.size + 1
	}
	return min(most, s.cfg.Documents(readers))
}

// identities yields those of readers.
func identities[T any](of []*Reader[T]) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, r := range of {
			if !yield(r.Identity) {
				return
			}
		}
	}
}

// stays returns how many readers of a scan may wait for the page after one that has been read, and
// have room for both. They continue if that one was not read at their time, if others wait to join
// them, and soon after a change.
func (s *Scanner[T]) stays(c *scanning[T], f *fetch) (readers int) {
	size := 0
	for _, doc := range f.Page.Documents {
		size += len(doc)
	}
	n := len(f.Page.Documents)
	if n > 0 {
		c.size = size/n + 1
	}
	longest := longestStand
	if s.place.Past() != f.Query.After {
		longest = longestLag
	}
	isLast := f.Page.Next.IsZero() || len(f.Query.IDs) > 0
	mayStay := f.isExact() && len(c.joining) == 0 && c.stand != nil
	if isLast || !mayStay || time.Since(c.stood) >= longest {
		return 0
	}
	return c.stand.Stays(n, size)
}

// deliver passes a page to the sessions that wait at its time. A page that could not be read at
// this time may show changes up to its read: it then waits until these have been considered, and
// the documents that they concern are read once more.
func (s *Scanner[T]) deliver(c *scanning[T]) {
	p := c.page
	waits := p != nil && !p.isExact() && !c.touched.Spoiled() && !s.place.IsPast(p.Page.To)
	if p == nil || waits {
		return
	}
	c.page = nil
	defer wake.Notify(c.delivered)
	if c.stand == nil {
		return
	}
	if !p.isExact() && c.touched.Spoiled() {
		s.giveUp(c)
		return
	}
	if len(c.again) == 0 {
		c.until = p.Query.Until
		c.next = p.Page.Next
		c.read = len(p.Page.Documents)
	}
	c.again = nil
	var out []bool
	if !p.isExact() && c.untold < maxUntold { // otherwise later changes set again what the documents may show of them
		out = c.sift(p)
	}
	passes := len(c.again) == 0
	if passes {
		c.replay, c.untold = nil, 0
		before := len(c.Readers())
		c.Passed(c.until, c.next)
		if len(c.Readers()) < before {
			s.reoffer(c.namespace)
		}
	}
	c.stand.Give(&Given{Out: out, Passes: passes, Read: c.read, More: c.more})
	if !c.more {
		c.stand = nil
	}
}

// sift takes the documents that changes have touched while the page was read out of it: they come
// at the time of another one. Those that were touched when they were read once more, too, are
// replayed.
func (c *scanning[T]) sift(p *PageRead) (out []bool) {
	out = make([]bool, len(p.Page.Documents))
	for i, doc := range p.Page.Documents {
		id := change.IDOf(doc)
		if out[i] = c.touched.Has(id); out[i] {
			c.again = append(c.again, change.Value{Type: id.Type, Data: bytes.Clone(id.Data)})
		}
	}
	if c.replay != nil {
		c.replay.Read(p.Page.Documents)
	}
	return out
}

// giveUp releases the sessions that wait for a page that does not come.
func (s *Scanner[T]) giveUp(c *scanning[T]) {
	if c.stand != nil {
		c.stand.Give(nil)
	}
	c.stand, c.page = nil, nil
}
