package delivery

import (
	"context"
	"slices"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/health"
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
	if s.from.After(h.at) || s.documentsFrom.Compare(h.at.Time) > 0 {
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

// isEarlyFor reports whether the page is of a time at which the session of a reader takes no documents yet.
func (f *fetch) isEarlyFor(r *reader) bool {
	return r.Who.session.documentsFrom.Compare(f.query.After) > 0
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
		if f != nil && !slices.ContainsFunc(takers, f.isEarlyFor) && !f.touched.Spoiled() && f.query.From.Equal(from) && f.query.Until.Equal(until) {
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
