package delivery

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"slices"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/health"
	"github.com/mongostream/streamer/internal/wake"
	"github.com/mongostream/streamer/snapshot"
)

const (
	// pageBytes bounds a page.
	pageBytes = 512 << 10
	// patience is how long a scan waits for readers that are not ready before it continues without
	// them.
	patience = time.Second
	// retryRead is the wait after a failed read.
	retryRead = time.Second
	// maxUntold is how often the changes of the documents of a page may not tell what they did.
	// After that the documents come as they are read.
	maxUntold = 5
	// maxUntaken bounds the pages that wait for a session which has not come to their time.
	maxUntaken = 2
	// longestStand is how long sessions wait for pages while there are no changes, longestLag how
	// long they do after the Hub has advanced.
	longestStand, longestLag = time.Second, 25 * time.Millisecond
)

// A reader is a subscription that reads a collection.
type reader = snapshot.Reader[*Subscription]

// A scan reads a collection for readers. It belongs to the Hub's loop.
type scan struct {
	snapshot.Scan[*Subscription]

	namespace change.Namespace
	identity  string            // of a reader, for turns
	touched   *snapshot.Touched // since the time at which the page is read
	patience  time.Duration     // for readers that are not ready
	size      int               // typical size of a document, 0 if unknown
	encoded   int               // bytes of the last page's payloads
	patient   time.Time         // deadline for readers that are not ready, zero while there are none
	woken     chan struct{}     // holds one signal: readers may be ready
	delivered chan struct{}     // holds one signal: the page has been handed over

	joining []parkedReader // join at the next page
	takers  []*reader      // of the page being read; their sessions wait at its time
	holds   map[*Session]*standstill
	stood   time.Time // when they began to wait
	more    bool      // another page comes at the same time
	page    *page     // waits for the Hub to reach the time by which it was read
	// again are documents of the page that are still owed before the scan continues, because
	// changes hide their state at its time; until, next and read are the page's then. They are read
	// once more; for those that keep changing, replay then brings them to the time of the next
	// page.
	again       []change.Value
	replay      *snapshot.Replay // of again, from before they are read once more
	untold      int              // replays of the page that had to be begun again
	moved       chan struct{}    // holds one signal: the Hub has come further, which the replay waits for
	until, next change.Value
	read        int
}

// A fetch is a page that is being read.
type fetch struct {
	reading *health.Loop
	query   snapshot.Query
	replays bool // the documents of the query are not read, but brought to its time
	read    snapshot.Page
	err     error
	done    chan struct{} // closed when it is read
	begun   time.Time     // zero without a tracer
	over    time.Time
}

// offer finds a scan for a reader, or makes it wait until it may get a page.
func (l *loop) offer(r *reader) { l.find(parkedReader{reader: r}) }

func (l *loop) find(r parkedReader) {
	for _, c := range l.scans {
		if c.namespace == r.Left.Namespace && !isOver(r.reader) && (r.Left.IsFresh() || r.Left.From.Equal(c.At()) && l.isReady(r.reader) && c.Fits(r.reader)) {
			c.invite(r)
			wake.Notify(c.woken)
			return
		}
	}
	l.begin(r)
}

// begin begins a scan for a reader, unless it has to wait.
func (l *loop) begin(r parkedReader) {
	switch {
	case isOver(r.reader):
		return
	case l.isServed(r.reader):
		l.park(r)
		return
	case !l.isReady(r.reader):
		l.wait(r)
		return
	}
	c := &scan{
		namespace: r.Left.Namespace, identity: r.Who.session.cfg.Identity, touched: snapshot.NewTouched(r.Left.Namespace), patience: patience,
		woken: make(chan struct{}, 1), delivered: make(chan struct{}, 1), moved: make(chan struct{}, 1),
	}
	if !r.Left.IsFresh() {
		c.patience = latePatience
	}
	c.Join(r.reader)
	l.scans = append(l.scans, c)
	l.start(func(ctx context.Context) { l.runScan(ctx, c) })
}

// isReady reports whether a reader may get a page now: its session is with the Hub, and has credit.
func (l *loop) isReady(r *reader) bool {
	s := l.live[r.Who.session]
	if s == nil {
		return false
	}
	if pastOf(s.from).Compare(l.past()) > 0 || s.documentsFrom.Compare(l.past()) > 0 {
		l.awaited = true
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.resumes()
}

// past returns the latest time whose events the Hub may have considered: a page that is read there
// includes all changes that live sessions have had.
func (l *loop) past() change.Timestamp {
	if l.drained {
		return l.at.Time
	}
	return pastOf(l.at)
}

// pastOf is past for a position.
func pastOf(at change.Position) change.Timestamp {
	if at.IsProgress() && !at.Time.IsZero() { // before every event of its time
		return at.Time.Prev()
	}
	return at.Time
}

// runScan reads pages until no reader is left. It waits for its turn, and for the rate, before any
// session pauses.
func (h *Hub) runScan(ctx context.Context, c *scan) {
	for ctx.Err() == nil {
		if !h.pages.Acquire(ctx, c.identity) {
			return
		}
		var f *fetch
		over := true
		h.do(ctx, func(l *loop) { f, over = l.next(c) })
		if f != nil {
			f = h.readPages(ctx, c, f)
		}
		h.pages.Release()
		switch {
		case f == nil && over:
			return
		case f == nil:
			await(ctx, c.woken, patience)
		case f.err != nil:
			if errors.Is(f.err, errUntold) {
				c.untold++
			}
			h.logger.Warn("reading snapshot page failed", "namespace", c.namespace.String(), "error", f.err)
			h.do(ctx, func(l *loop) { l.giveUp(c) })
			await(ctx, nil, retryRead)
		}
	}
}

// readPages reads pages at the time at which the readers of a scan wait, and passes them on, until
// the readers have to continue. While one is encoded, the next one is read. It returns the last
// one, which may have failed.
func (h *Hub) readPages(ctx context.Context, c *scan, f *fetch) *fetch {
	h.startFetch(ctx, c, f)
	w := h.newPageWriter(c, f.query) // of takers, which the loop does not change while pages are read
	for {
		<-f.done
		if f.err != nil {
			return f
		}
		h.pages.Charge(len(f.read.Documents))
		next := h.readAhead(ctx, c, f)
		p := w.write(f)
		h.do(ctx, func(l *loop) {
			c.page, c.more = p, next != nil
			l.deliverPage(c)
		})
		await(ctx, c.delivered, 0)
		if next == nil {
			return f
		}
		f = next
	}
}

// readAhead begins to read the page after another one, at the same time. It returns nil if that is
// not to be.
func (h *Hub) readAhead(ctx context.Context, c *scan, f *fetch) *fetch {
	stay := false
	documents := 0
	h.do(ctx, func(l *loop) {
		l.cut(c, f)
		stay = l.stays(c, f)
		documents = l.pageDocuments(c)
	})
	if !stay || !h.pages.More() {
		return nil
	}
	next := &fetch{query: f.query, reading: health.NewLoop(), done: make(chan struct{})}
	next.query.From, next.query.Documents = f.read.Next, documents
	h.startFetch(ctx, c, next)
	return next
}

// stays reports whether the readers of a scan may wait for the page after one that has been read,
// and have room for both. They continue if that one was not read at their time, if others wait to
// join them, and soon after a change.
func (l *loop) stays(c *scan, f *fetch) bool {
	bytes := 0
	for _, doc := range f.read.Documents {
		bytes += len(doc)
	}
	if n := len(f.read.Documents); n > 0 {
		c.size = bytes/n + 1
	}
	longest := longestStand
	if l.past() != f.query.After {
		longest = longestLag
	}
	if f.read.To != f.query.After || f.read.Next.IsZero() || len(f.query.IDs) > 0 || len(c.joining) > 0 || time.Since(c.stood) >= longest {
		return false
	}
	for _, r := range c.takers {
		if s := r.Who.session; r.Gone.Load() || s.Ended() || !s.stays(c.holds[s], len(f.read.Documents), bytes) {
			return false
		}
	}
	return true
}

// note records an event, spoil that some may be missing.
func (c *scan) note(e *change.Event) {
	c.touched.Note(e)
	if c.replay != nil {
		c.replay.Note(e)
	}
}

func (c *scan) spoil() {
	c.touched.Spoil()
	if c.replay != nil {
		c.replay.Spoil()
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

// startFetch begins to read a page.
func (h *Hub) startFetch(ctx context.Context, c *scan, f *fetch) {
	h.loops.Go(func() { h.fetch(ctx, c, f) })
}

// fetch reads a page.
func (h *Hub) fetch(ctx context.Context, c *scan, f *fetch) {
	defer close(f.done)
	reading, cancel := context.WithCancel(ctx)
	defer cancel()
	h.noteFetch(f, cancel)
	defer h.noteFetch(f, nil)
	f.begun = h.traceTime()
	if f.replays {
		f.read, f.err = h.replay(reading, c, f.query)
	} else {
		f.read, f.err = h.cfg.Snapshots.Read(reading, f.query)
	}
	f.over = h.traceTime()
}

// errUntold says that documents that never rest must be read again.
var errUntold = errors.New("changes of documents that were read before are missing, or do not say what they did")

// replay returns the documents of a query as of its time, from the former read and the changes
// since: all of them are known once the Hub has passed that time.
func (h *Hub) replay(ctx context.Context, c *scan, q snapshot.Query) (p snapshot.Page, err error) {
	var of *snapshot.Replay
	take := func(l *loop) {
		if l.isPast(q.After) || c.replay.Spoiled() {
			of = c.replay
			c.replay = nil
		}
	}
	for h.do(ctx, take) && of == nil {
		await(ctx, c.moved, 0)
	}
	if of == nil {
		return p, cmp.Or(context.Cause(ctx), errUntold)
	}
	documents, told := of.At(q.IDs, q.After)
	if !told || of.Spoiled() {
		return p, errUntold
	}
	return snapshot.Page{Documents: documents, To: q.After}, nil
}

// await waits for a signal, with a timeout unless that is 0, or for the context.
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

// next begins the next pages of a scan: its readers' sessions leave the live path, and wait at the
// time of the read. nil: not all readers are ready. over: the scan has no readers left.
func (l *loop) next(c *scan) (f *fetch, over bool) {
	if len(c.again) == 0 {
		l.joinScan(c)
	}
	before := len(c.Readers())
	for _, r := range slices.Clone(c.Readers()) {
		switch {
		case r.Gone.Load() || r.Who.session.Ended():
			c.Leave(r)
		case l.isReady(r):
		case c.isPatient():
			return nil, false
		default:
			c.Leave(r)
			l.wait(parkedReader{reader: r})
		}
	}
	c.patient = time.Time{}
	switch left := len(c.Readers()); {
	case left == 0 && len(c.joining) > 0:
		c.again, c.replay, c.untold = nil, nil, 0
		if before > 0 {
			defer l.reoffer(c.namespace)
		}
		return l.next(c)
	case left == 0:
		l.scans = slices.DeleteFunc(l.scans, func(other *scan) bool { return other == c })
		l.resumeAll()
		l.reoffer(c.namespace)
		return nil, true
	case left < before:
		l.reoffer(c.namespace)
	}
	c.takers = slices.Clone(c.Readers())
	c.identity = l.pages.Least(identities(c.takers))
	c.touched = snapshot.NewTouched(c.namespace)
	c.holds, c.stood = make(map[*Session]*standstill), time.Now()
	f = &fetch{query: l.query(c), reading: health.NewLoop(), done: make(chan struct{})}
	switch f.query.IDs = c.again; {
	case len(c.again) == 0:
		f.query.From, f.query.Until = c.Next()
	case c.replay != nil && c.replay.IsReady():
		f.replays = true
	default:
		if c.replay != nil && c.replay.Spoiled() {
			c.untold++
		}
		c.replay = snapshot.NewReplay(c.namespace, c.again)
	}
	for _, r := range c.takers {
		if s := r.Who.session; l.isReady(r) { // otherwise it waits already, for another of its subscriptions
			c.holds[s] = l.standStill(l.live[s], f.query.After)
		}
	}
	return f, false
}

// invite has a reader join a scan at the next page. Only late readers of one identity wait longer
// for each other than others do.
func (c *scan) invite(r parkedReader) {
	c.joining = append(c.joining, r)
	if c.patience == latePatience && (r.Left.IsFresh() || r.Who.session.cfg.Identity != c.identity) {
		c.patience, c.patient = patience, time.Time{}
	}
}

// joinScan has the readers that wait for a scan join it: first those that have a place, because
// pages end where they are.
func (l *loop) joinScan(c *scan) {
	if len(c.Readers()) > 0 {
		l.meet(c)
	}
	joining := c.joining
	c.joining = nil
	slices.SortStableFunc(joining, func(a, b parkedReader) int {
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
		if !c.Join(r.reader) {
			l.begin(r)
		}
	}
}

// query returns the query for a page that is read now, without its bounds.
func (l *loop) query(c *scan) snapshot.Query {
	return snapshot.Query{Namespace: c.namespace, After: l.past(), Documents: l.pageDocuments(c), Bytes: pageBytes}
}

// pageDocuments bounds the documents of a page: reading more than its bytes is wasted, and each of
// its readers needs room for their events.
func (l *loop) pageDocuments(c *scan) int {
	most := min(l.cfg.SnapshotPage, l.memory.Events(len(c.takers)))
	if c.size > 0 {
		most = min(most, pageBytes/c.size+1)
	}
	return most
}

// isPatient reports whether readers that are not ready are still waited for.
func (c *scan) isPatient() bool {
	if c.patient.IsZero() {
		c.patient = time.Now().Add(c.patience)
	}
	return time.Now().Before(c.patient)
}

// identities yields those of the sessions of readers.
func identities(of []*reader) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, r := range of {
			if !yield(r.Who.session.cfg.Identity) {
				return
			}
		}
	}
}
