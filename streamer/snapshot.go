package streamer

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/health"
	"github.com/mongostream/streamer/match"
	"github.com/mongostream/streamer/snapshot"
)

const (
	// pageBytes bounds a page, because the live path places it in one step.
	pageBytes = 512 << 10
	// maxScans bounds the collections that are read concurrently.
	maxScans = 4
	// patience is how long a scan waits for readers without room before it continues without them.
	patience = time.Second
	// retryRead is the wait after a failed read.
	retryRead = time.Second
)

// A SnapshotState is the state of a snapshot.
type SnapshotState string

// The states of a snapshot.
const (
	SnapshotBegun SnapshotState = "begun"
	SnapshotDone  SnapshotState = "done" // all documents have been sent
	// SnapshotCancelled says that an operator has ended it.
	SnapshotCancelled SnapshotState = "cancelled"
)

// A SnapshotMark is an entry of a session's stream at the beginning or the end of a snapshot.
type SnapshotMark struct {
	Subscription string
	State        SnapshotState
	Reason       snapshot.Reason
	// Read counts the documents read, Estimated the documents at the beginning.
	Read, Estimated uint64
}

// A reader is a subscription that reads a collection.
type reader = snapshot.Reader[*Subscription]

// A scan reads a collection for readers. It belongs to the Hub's loop.
type scan struct {
	snapshot.Scan[*Subscription]

	namespace change.Namespace
	touched   *snapshot.Touched // since the page was wanted
	ahead     *fetch            // the page after it, nil if it is not being read
	size      int               // typical size of a document, 0 if unknown
	patient   time.Time         // deadline for readers without room, zero while there are none
	woken     chan struct{}     // holds one signal: readers may have room
	placed    chan struct{}     // holds one signal: the page has been placed

	joining []*reader // join at the next page
	page    *page     // waits for the Hub to reach its time
	// again are documents of the page to read once more before the scan continues; until and next are its bounds then.
	again       []change.Value
	until, next change.Value
	read        int // documents read
}

// A fetch is a page that is being read.
type fetch struct {
	reading *health.Loop
	query   snapshot.Query
	touched *snapshot.Touched // since then
	done    chan struct{}     // closed when read or err is set
	read    snapshot.Page
	err     error
	begun   time.Time // zero without a tracer
	over    time.Time
}

// A page is a page of documents, encoded for its readers.
type page struct {
	to        change.Timestamp
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

// Snapshot sends the current documents of subscriptions, each in its place among the changes. It restarts a snapshot that is in progress.
// Unknown IDs are ignored.
func (s *Session) Snapshot(ids []string, reason snapshot.Reason) {
	s.await(func() {
		for _, id := range ids {
			if sub := s.subscriptions[id]; sub != nil {
				s.beginSnapshot(sub, reason, nil)
			}
		}
	})
}

// An Operation is what an operator does with a snapshot.
type Operation string

// The operations.
const (
	BeginSnapshot  Operation = "begin"
	PauseSnapshot  Operation = "pause"
	ResumeSnapshot Operation = "resume"
	CancelSnapshot Operation = "cancel"
)

// Operate does something with the snapshots of a subscription, or of all if id is empty, for an operator. It returns how many it was done with.
// A snapshot that begins reads a collection, or all of the subscription if ns is zero.
func (s *Session) Operate(do Operation, id string, ns change.Namespace) (done int) {
	s.await(func() {
		for _, sub := range s.byKey {
			if f := sub.Program.Filter(); id != "" && sub.ID != id || ns.DB != "" && (f.DB != "" && f.DB != ns.DB || f.Coll != "" && f.Coll != ns.Coll) {
				continue
			}
			if do == BeginSnapshot {
				var some []change.Namespace
				if ns.DB != "" {
					some = append(some, ns)
				}
				s.beginSnapshot(sub, snapshot.Operator, some)
				done++
			} else if s.operate(sub, do) {
				done++
			}
		}
	})
	return done
}

// operate pauses, resumes or cancels the snapshot of a subscription. It returns false if there is none for that. Called by the owner.
func (s *Session) operate(sub *Subscription, do Operation) bool {
	p := sub.progress()
	if p == nil || p.Done || do == PauseSnapshot && p.Paused || do == ResumeSnapshot && !p.Paused {
		return false
	}
	next, live := *p, s.isLive()
	if live {
		s.hub.abandon(sub)
	}
	if do == CancelSnapshot {
		next.Done, next.Paused, next.Listed, next.Left = true, false, true, nil
		next.At = change.Later(s.at(), s.position()).Time
		s.mark(sub, SnapshotCancelled, next)
		return true
	}
	next.Paused, next.Since = do == PauseSnapshot, time.Time{}
	s.setProgress(sub.ID, &next)
	if live {
		s.hub.advance(sub)
	}
	return true
}

// Snapshots returns the progress of the session's snapshots.
func (s *Session) Snapshots() []snapshot.Progress {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.snapshots
}

// setProgress replaces the progress of a subscription's snapshot; nil removes it.
func (s *Session) setProgress(id string, p *snapshot.Progress) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.setSnapshots(replaced(s.mu.snapshots, id, p))
}

// replaced returns the progress of all snapshots with that of one replaced, or removed if nil.
func replaced(all []snapshot.Progress, id string, p *snapshot.Progress) []snapshot.Progress {
	all = slices.DeleteFunc(slices.Clone(all), func(p snapshot.Progress) bool { return p.Subscription == id })
	if p != nil {
		all = append(all, *p)
	}
	return all
}

// Stamp distinguishes states of snapshots; 0 if there is none. A subscriber that keeps the stamp with its position can prove which documents
// it has had, because documents that were read together share a position.
func Stamp(all []snapshot.Progress) (stamp uint32) {
	for _, p := range all {
		stamp += uint32(xxh3.Hash(p.AppendState(nil)))
	}
	return stamp
}

// setSnapshots sets the progress of all snapshots. The caller holds the mutex.
func (s *Session) setSnapshots(all []snapshot.Progress) {
	s.mu.snapshots, s.mu.stamp = all, Stamp(all)
	s.mu.reads = slices.ContainsFunc(all, func(p snapshot.Progress) bool { return !p.Done })
}

// progress returns the progress of a subscription's snapshot, nil if there is none.
func (sub *Subscription) progress() *snapshot.Progress {
	all := sub.session.Snapshots()
	if i := slices.IndexFunc(all, func(p snapshot.Progress) bool { return p.Subscription == sub.ID }); i >= 0 {
		return &all[i]
	}
	return nil
}

// hash distinguishes filters of subscriptions with the same ID.
func hash(p *match.Program) uint64 {
	f := p.Filter()
	return xxh3.HashString(fmt.Sprintf("%q %q %q", f.DB, f.Coll, f.Source))
}

// beginSnapshot begins the snapshot of a subscription, of all collections or of some. These are added to a snapshot that is in progress.
// Called by the owner.
func (s *Session) beginSnapshot(sub *Subscription, reason snapshot.Reason, some []change.Namespace) {
	p := snapshot.Progress{Subscription: sub.ID, Filter: hash(sub.Program), Reason: reason, Listed: len(some) > 0}
	if before := sub.progress(); len(some) > 0 && before != nil && !before.Done {
		p = *before
		p.Paused = false
	}
	if p.Listed {
		p.Left = slices.DeleteFunc(slices.Clone(p.Left), func(l snapshot.Left) bool { return slices.Contains(some, l.Namespace) })
		for _, ns := range some {
			p.Left = append(p.Left, snapshot.Left{Namespace: ns})
		}
	}
	if p.Read == 0 || sub.traced == nil {
		s.hub.traceSnapshot(sub, p)
	}
	if sub.sent != nil {
		sub.sent.reread(some)
	}
	live := s.isLive()
	if live {
		s.hub.abandon(sub)
	}
	if s.setProgress(sub.ID, &p); p.Listed {
		s.mark(sub, SnapshotBegun, p)
	}
	if live {
		s.hub.advance(sub)
	}
}

// owes has the session read again what is left of snapshots by another session of the subscriber, from the beginning of each collection. Until it
// has, that is left wherever the subscriber is by its acknowledgements.
func (s *Session) owes(left []snapshot.Progress) {
	s.await(func() {
		for _, p := range left {
			sub := s.subscriptions[p.Subscription]
			if sub == nil {
				continue
			}
			some := make([]change.Namespace, len(p.Left))
			for i, l := range p.Left {
				some[i] = l.Namespace
			}
			s.beginSnapshot(sub, p.Reason, some)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		for i := range s.mu.sent {
			s.mu.sent[i].snapshots = s.mu.snapshots
		}
	})
}

// unread returns what is left of snapshots, by whole collections.
func unread(all []snapshot.Progress) (left []snapshot.Progress) {
	for _, p := range all {
		if p.Done || p.Listed && len(p.Left) == 0 {
			continue
		}
		whole := snapshot.Progress{Subscription: p.Subscription, Filter: p.Filter, Reason: p.Reason, Listed: p.Listed}
		for _, l := range p.Left {
			whole.Left = append(whole.Left, snapshot.Left{Namespace: l.Namespace})
		}
		left = append(left, whole)
	}
	return left
}

// together adds what is left of snapshots to what is left already.
func together(all, more []snapshot.Progress) []snapshot.Progress {
	for _, p := range more {
		i := slices.IndexFunc(all, func(q snapshot.Progress) bool { return q.Subscription == p.Subscription })
		if i < 0 {
			all = append(all, p)
			continue
		}
		if all[i].Listed = all[i].Listed && p.Listed; !all[i].Listed {
			all[i].Left = nil // of all collections
			continue
		}
		for _, l := range p.Left {
			if !slices.ContainsFunc(all[i].Left, func(m snapshot.Left) bool { return m.Namespace == l.Namespace }) {
				all[i].Left = append(all[i].Left, l)
			}
		}
	}
	return all
}

// resumeSnapshot resumes or begins the snapshot of a new subscription. Called by the owner.
func (s *Session) resumeSnapshot(sub *Subscription) {
	p := sub.progress()
	switch {
	case p == nil && (sub.Snapshot || s.cfg.Snapshot):
		if sub.sent != nil {
			sub.sent.whole = true // it is new
		}
		s.beginSnapshot(sub, snapshot.Start, nil)
	case p != nil && p.Filter != hash(sub.Program):
		s.beginSnapshot(sub, p.Reason, nil)
	case p != nil && !p.Done:
		s.hub.traceSnapshot(sub, *p)
	}
}

// advance continues the snapshot of a live subscription.
func (h *Hub) advance(sub *Subscription) {
	p := sub.progress()
	switch {
	case p == nil || p.Done || p.Paused || h.cfg.Snapshots == nil:
	case !p.Listed:
		h.list(sub)
	case len(p.Left) == 0:
		h.gone(sub)
		done := *p
		done.Done, done.At = true, change.Later(sub.session.at(), sub.session.position()).Time
		sub.session.mark(sub, SnapshotDone, done)
	default:
		for _, left := range p.Left {
			if !slices.ContainsFunc(sub.readers, func(r *reader) bool { return r.Left.Namespace == left.Namespace }) {
				r := &reader{Left: left, Who: sub}
				sub.readers = append(sub.readers, r)
				h.offer(r)
			}
		}
	}
}

// abandon removes a subscription from all scans.
func (h *Hub) abandon(sub *Subscription) {
	for _, r := range sub.readers {
		h.leaveScan(r)
	}
	sub.readers = nil
}

func (h *Hub) leaveScan(r *reader) {
	is := func(other *reader) bool { return other == r }
	for _, c := range h.scans {
		c.Leave(r)
		c.joining = slices.DeleteFunc(c.joining, is)
	}
	h.waiting = slices.DeleteFunc(h.waiting, is)
}

// mark queues a snapshot mark and then updates the progress.
func (s *Session) mark(sub *Subscription, state SnapshotState, p snapshot.Progress) {
	s.queue(s.position())
	s.open = &Batch{
		Snapshot: &SnapshotMark{Subscription: sub.ID, State: state, Reason: p.Reason, Read: p.Read, Estimated: p.Estimated},
		Stamp:    Stamp(replaced(s.Snapshots(), sub.ID, &p)),
	}
	s.queue(change.Later(s.at(), s.position()))
	s.setProgress(sub.ID, &p)
	sub.marked(state, p)
}

// list lists the collections of a subscription's snapshot. Collections created later begin with changes.
func (h *Hub) list(sub *Subscription) {
	if sub.listing {
		return
	}
	sub.listing = true
	f := sub.Program.Filter()
	h.start(func(ctx context.Context) {
		collections, at, err := h.cfg.Snapshots.Collections(ctx, f.DB, f.Coll)
		if err != nil {
			h.logger.Warn("listing collections for a snapshot failed", "error", err)
			await(ctx, nil, retryRead)
		}
		h.do(ctx, func() {
			if err != nil {
				sub.listing = false
				if h.subscriptions[sub.key] == sub {
					h.advance(sub)
				}
				return
			}
			h.listings = append(h.listings, listing{sub, collections, at})
			h.placeListings()
		})
	})
}

// A listing is the collections of a subscription's snapshot.
type listing struct {
	sub         *Subscription
	collections []snapshot.Collection
	at          change.Timestamp
}

// placeListings begins the snapshots whose collections are listed, if the Hub has reached the time of the listing: a collection that was dropped
// before it is still there for the session.
func (h *Hub) placeListings() {
	waiting := h.listings
	h.listings = nil
	for _, l := range waiting {
		if l.at.Compare(h.at.Time) > 0 {
			h.listings = append(h.listings, l)
			continue
		}
		l.sub.listing = false
		if f := l.sub.Program.Filter(); f.Coll != "" && len(l.collections) == 0 {
			l.sub.session.Notify(Notice{
				Kind: "snapshot_empty", Subscription: l.sub.ID, At: time.Now(),
				Text: "There is no such collection to read: it does not exist, is not watched, or is a view or a time series, which have no changes.",
			})
		}
		if p := l.sub.progress(); h.subscriptions[l.sub.key] == l.sub && p != nil && !p.Listed {
			h.listed(l.sub, *p, l.collections)
			h.advance(l.sub)
		}
	}
}

func (h *Hub) listed(sub *Subscription, p snapshot.Progress, collections []snapshot.Collection) {
	p.Listed, p.Left = true, nil
	for _, c := range collections {
		p.Left = append(p.Left, snapshot.Left{Namespace: c.Namespace})
		p.Estimated += uint64(max(0, c.Documents))
	}
	sub.session.mark(sub, SnapshotBegun, p)
}

// offer finds a scan for a reader, or makes it wait for one.
func (h *Hub) offer(r *reader) {
	for _, c := range h.scans {
		if c.namespace == r.Left.Namespace && r.Left.IsFresh() {
			c.joining = append(c.joining, r)
			notify(c.woken)
			return
		}
	}
	if len(h.scans) >= maxScans || !h.hasRoom(r) {
		h.waiting = append(h.waiting, r)
		return
	}
	c := &scan{
		namespace: r.Left.Namespace, touched: snapshot.NewTouched(r.Left.Namespace), woken: make(chan struct{}, 1), placed: make(chan struct{}, 1),
	}
	c.Join(r)
	h.scans = append(h.scans, c)
	h.start(func(ctx context.Context) { h.runScan(ctx, c) })
}

// hasRoom reports whether a reader may get a page: its session is with the Hub, and has credit.
func (h *Hub) hasRoom(r *reader) bool {
	s := r.Who.session
	if s.from.After(h.at) {
		h.early = true
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hasRoom()
}

// roomy resumes scans: a session has room again, or a scan has ended.
func (h *Hub) roomy() {
	for _, c := range h.scans {
		notify(c.woken)
	}
	waiting := h.waiting
	h.waiting = nil
	for _, r := range waiting {
		h.offer(r)
	}
}

// runScan reads pages until no reader is left.
func (h *Hub) runScan(ctx context.Context, c *scan) {
	var w pageWriter
	for ctx.Err() == nil {
		var f *fetch
		var takers []*reader
		over := true
		h.do(ctx, func() { f, takers, over = h.next(c) })
		if over {
			return
		}
		if len(takers) == 0 {
			await(ctx, c.woken, patience)
			continue
		}
		<-f.done
		h.tracePage(ctx, c, f)
		if f.err != nil {
			h.logger.Warn("reading snapshot page failed", "namespace", c.namespace.String(), "error", f.err)
			await(ctx, nil, retryRead)
			continue
		}
		h.do(ctx, func() { h.readAhead(c, f) })
		p := h.write(&w, f.query, f.read, takers)
		h.do(ctx, func() {
			c.page = p
			h.place(c)
		})
		await(ctx, c.placed, 0)
	}
}

// noteFetch notes how to end the reading of a page; nil: it is over.
func (h *Hub) noteFetch(f *fetch, cancel context.CancelFunc) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if cancel == nil {
		delete(h.mu.fetches, f)
		return
	}
	f.reading.Work()
	h.mu.fetches[f] = cancel
}

// RestartSnapshots reads the pages again that are being read. It does not wait.
func (h *Hub) RestartSnapshots() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, cancel := range h.mu.fetches {
		cancel()
	}
}

// SnapshotAge returns for how long the page that has taken longest has been read.
func (h *Hub) SnapshotAge() (age time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for f := range h.mu.fetches {
		age = max(age, f.reading.Age())
	}
	return age
}

// fetch begins to read a page.
func (h *Hub) fetch(q snapshot.Query, touched *snapshot.Touched) *fetch {
	f := &fetch{query: q, touched: touched, done: make(chan struct{}), reading: health.NewLoop()}
	h.start(func(ctx context.Context) {
		defer close(f.done)
		if limit := h.cfg.SnapshotRate; limit != nil {
			if f.err = limit.WaitN(ctx, min(q.Documents, limit.Burst())); f.err != nil { // the context has ended
				return
			}
		}
		reading, cancel := context.WithCancel(ctx)
		defer cancel()
		h.noteFetch(f, cancel)
		defer h.noteFetch(f, nil)
		f.begun = h.traceTime()
		f.read, f.err = h.cfg.Snapshots.Read(reading, q)
		f.over = h.traceTime()
	})
	return f
}

// readAhead begins to read the page after one that was read, while that is delivered.
func (h *Hub) readAhead(c *scan, f *fetch) {
	if len(f.query.IDs) > 0 || len(f.read.Documents) == 0 {
		return
	}
	size := 0
	for _, d := range f.read.Documents {
		size += len(d)
	}
	c.size = size / len(f.read.Documents)
	if f.read.Next.IsZero() {
		return
	}
	q := h.query(c)
	q.From, q.Until = f.read.Next, f.query.Until
	c.ahead = h.fetch(q, snapshot.NewTouched(c.namespace))
}

// query returns the query for a page that is wanted now, without its bounds.
func (h *Hub) query(c *scan) snapshot.Query {
	most := h.cfg.SnapshotPage
	if c.size > 0 {
		most = min(most, pageBytes/c.size+1)
	}
	return snapshot.Query{Namespace: c.namespace, After: h.at.Time, Documents: most, Bytes: pageBytes}
}

// note notes a change that pages in progress may lack; spoil says that some may be unknown.
func (c *scan) note(e *change.Event) {
	c.touched.Note(e)
	if c.ahead != nil {
		c.ahead.touched.Note(e)
	}
}

func (c *scan) spoil() {
	c.touched.Spoil()
	if c.ahead != nil {
		c.ahead.touched.Spoil()
	}
}

// await waits for a signal, so long at most if that is not 0, or for the context.
func await(ctx context.Context, signal <-chan struct{}, most time.Duration) {
	var timeout <-chan time.Time
	if most > 0 {
		timer := time.NewTimer(most)
		defer timer.Stop()
		timeout = timer.C
	}
	select {
	case <-signal:
	case <-timeout:
	case <-ctx.Done():
	}
}

// next returns the next page of a scan, which is being read, and for whom. Nobody: readers have no room. over: the scan has none any more.
func (h *Hub) next(c *scan) (f *fetch, takers []*reader, over bool) {
	readers := slices.Clone(c.Readers())
	switch {
	case c.touched.Replaced(): // by another collection: read all of it
		c.Scan, c.touched, c.again = snapshot.Scan[*Subscription]{}, snapshot.NewTouched(c.namespace), nil
		c.ahead = nil
		for _, r := range readers {
			r.Left = snapshot.Left{Namespace: c.namespace}
			c.Join(r)
			h.passed(r, 0)
		}
	case c.touched.Gone(): // later documents arrive as changes
		c.touched, c.again, c.ahead = snapshot.NewTouched(c.namespace), nil, nil
		for _, r := range readers {
			r.Done = true
			c.Leave(r)
			h.passed(r, 0)
		}
	}
	if len(c.again) == 0 {
		for _, r := range c.joining {
			c.Join(r)
		}
		c.joining = nil
	}
	readers = slices.Clone(c.Readers())
	for _, r := range readers {
		if !h.hasRoom(r) && c.isPatient() {
			return nil, nil, false
		}
	}
	for _, r := range readers {
		if !h.hasRoom(r) {
			c.Leave(r)
			h.waiting = append(h.waiting, r)
		}
	}
	c.patient = time.Time{}
	switch left := len(c.Readers()); {
	case left == 0 && len(c.joining) > 0:
		c.again = nil
		return h.next(c)
	case left == 0:
		h.scans = slices.DeleteFunc(h.scans, func(other *scan) bool { return other == c })
		h.roomy()
		return nil, nil, true
	}
	takers = slices.Clone(c.Readers())
	if len(c.again) == 0 {
		from, until := c.Next()
		f, c.ahead = c.ahead, nil
		if f != nil && !f.touched.Spoiled() && f.query.From.Equal(from) && f.query.Until.Equal(until) {
			c.touched = f.touched
			return f, takers, false
		}
		c.touched.Forget()
		q := h.query(c)
		q.From, q.Until = from, until
		return h.fetch(q, c.touched), takers, false
	}
	c.touched.Forget()
	q := h.query(c)
	q.IDs = c.again
	return h.fetch(q, c.touched), takers, false
}

// isPatient reports whether readers without room are still waited for.
func (c *scan) isPatient() bool {
	if c.patient.IsZero() {
		c.patient = time.Now().Add(patience)
	}
	return time.Now().Before(c.patient)
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
		to: read.To, until: q.Until, next: read.Next, documents: make([]document, 0, len(read.Documents)), hits: w.hits[:0], payloads: w.payloads[:0],
	}
	defer func() { w.hits, w.payloads = p.hits, p.payloads }()
	index, readers := &match.Index{}, make(map[match.ID]*reader, len(takers))
	for _, r := range takers {
		index.Add(r.Who.key, r.Who.Program)
		readers[r.Who.key] = r
	}
	partitioner := change.NewPartitioner(h.cfg.Partitions)
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
