package snapshot

import (
	"cmp"
	"context"
	"errors"
	"time"
)

const (
	// PageBytes bounds a page.
	PageBytes = 512 << 10
	// retryRead is the wait after a failed read.
	retryRead = time.Second
)

// errUntold says that documents that never rest must be read again.
var errUntold = errors.New("changes of documents that were read before are missing, or do not say what they did")

// run reads pages until no reader is left. It waits for its turn, and for the rate, before any
// session pauses.
func (s *Scanner[T]) run(ctx context.Context, c *scanning[T]) {
	for ctx.Err() == nil {
		if !s.cfg.Turns.Acquire(ctx, c.identity) {
			return
		}
		var f *fetch
		over := true
		s.cfg.Do(ctx, func() { f, over = s.next(c) })
		if f != nil {
			f = s.readPages(ctx, c, f)
		}
		s.cfg.Turns.Release()
		switch {
		case f == nil && over:
			return
		case f == nil:
			await(ctx, c.woken, patience)
		case f.err != nil:
			if errors.Is(f.err, errUntold) {
				c.untold++
			}
			s.cfg.Logger.Warn("reading snapshot page failed", "namespace", c.namespace.String(), "error", f.err)
			s.cfg.Do(ctx, func() { s.giveUp(c) })
			await(ctx, nil, retryRead)
		}
	}
}

// readPages reads pages at the time at which the readers of a scan wait, and passes them on, until
// the readers have to continue. While one is written, the next one is read. It returns the last
// one, which may have failed.
func (s *Scanner[T]) readPages(ctx context.Context, c *scanning[T], f *fetch) *fetch {
	fetches := make(chan *fetch, 1)
	defer close(fetches)
	s.start(func(ctx context.Context) { s.runFetches(ctx, c, fetches) })
	fetches <- f
	write := c.stand.Writer()
	for {
		<-f.done
		if f.err != nil {
			return f
		}
		s.cfg.Turns.Charge(len(f.Page.Documents))
		next := s.following(ctx, c, f)
		if next != nil {
			fetches <- next
		}
		written := write(&f.PageRead, c.encoded)
		c.encoded = written + written/8
		s.cfg.Do(ctx, func() {
			c.page = &f.PageRead
			c.more = next != nil
			s.deliver(c)
		})
		await(ctx, c.delivered, 0)
		if next == nil {
			return f
		}
		f = next
	}
}

// following returns the page after another one, to be read at the same time. It returns nil if
// there is not to be one.
func (s *Scanner[T]) following(ctx context.Context, c *scanning[T], f *fetch) *fetch {
	readers, documents := 0, 0
	s.cfg.Do(ctx, func() {
		s.cut(c, f)
		if readers = s.stays(c, f); readers > 0 {
			documents = s.pageDocuments(c, readers)
		}
	})
	if readers == 0 || !s.cfg.Turns.More() {
		return nil
	}
	q := f.Query
	q.From = f.Page.Next
	q.Documents = documents
	return newFetch(q)
}

// runFetches reads pages in one goroutine: the driver needs a deep stack, which a new goroutine
// would have to grow for each page.
func (s *Scanner[T]) runFetches(ctx context.Context, c *scanning[T], fetches <-chan *fetch) {
	for f := range fetches {
		s.fetch(ctx, c, f)
	}
}

// fetch reads a page.
func (s *Scanner[T]) fetch(ctx context.Context, c *scanning[T], f *fetch) {
	defer close(f.done)
	reading, cancel := context.WithCancel(ctx)
	defer cancel()
	s.cfg.Reads.begin(f, cancel)
	defer s.cfg.Reads.end(f)
	f.Begun = time.Now()
	if f.replays {
		f.Page, f.err = s.replay(reading, c, f.Query)
	} else {
		f.Page, f.err = s.cfg.Source.Read(reading, f.Query)
	}
	f.Over = time.Now()
}

// replay returns the documents of a query as of its time, from the former read and the changes
// since: all of them are known once the log has been considered beyond that time.
func (s *Scanner[T]) replay(ctx context.Context, c *scanning[T], q Query) (p Page, err error) {
	var of *Replay
	take := func() {
		if s.place.IsPast(q.After) || c.replay.Spoiled() {
			of = c.replay
			c.replay = nil
		}
	}
	for s.cfg.Do(ctx, take) && of == nil {
		await(ctx, c.moved, 0)
	}
	if of == nil {
		return p, cmp.Or(context.Cause(ctx), errUntold)
	}
	documents, told := of.At(q.IDs, q.After)
	if !told || of.Spoiled() {
		return p, errUntold
	}
	return Page{Documents: documents, To: q.After}, nil
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
