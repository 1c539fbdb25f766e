package retention

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// A cache holds parts of segments, so that streams that read the same stretch fetch it once. It
// drops those that were used least recently where its bytes exceed the limit, but never the last
// one. Its methods are safe for concurrent use.
type cache struct {
	limit   int64
	metrics *readMetrics

	mu struct {
		sync.Mutex
		parts   []*part // the last one was used last
		bytes   int64
		readers int
		linger  *time.Timer // clears it; nil before the first reader has left
	}
}

// lingering is how long parts stay after the last reader: the next one often follows at once.
const lingering = 10 * time.Second

// A part is some bytes of a segment.
type part struct {
	of        edition
	at, size  int64
	fetched   chan struct{} // closed when data and err are set
	data      []byte
	err       error
	abandoned bool // its reader's context ended while it was fetched
}

// An edition is a segment as it was written, or rewritten.
type edition struct {
	key       string
	id        ID
	rewritten int
}

// newCache returns a cache. Its metrics are registered unless the registerer is nil.
func newCache(limit int64, r prometheus.Registerer) *cache {
	c := &cache{limit: limit}
	c.metrics = newReadMetrics(r, c.size)
	return c
}

// enter counts a reader until exit.
func (c *cache) enter() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.readers++; c.mu.linger != nil {
		c.mu.linger.Stop()
	}
}

// exit drops everything soon after the last reader.
func (c *cache) exit() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.readers--; c.mu.readers == 0 {
		c.mu.linger = time.AfterFunc(lingering, c.clear)
	}
}

// share returns how much one of the readers may fetch at once, so that others do not push it out
// before it is read.
func (c *cache) share() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.limit / int64(2*max(2, c.mu.readers))
}

func (c *cache) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.readers == 0 {
		c.mu.parts, c.mu.bytes = nil, 0
	}
}

func (c *cache) size() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.bytes
}

// get returns n bytes of a segment from an offset, fewer if it ends before. If no part has them, it
// fetches extent bytes. The bytes are shared and must not be changed.
func (c *cache) get(ctx context.Context, store Store, of edition, offset, n, extent int64) ([]byte, error) {
	for {
		p, missing := c.find(of, offset, n, extent)
		if missing {
			p.data, _, p.err = store.Get(ctx, of.key, offset, extent)
			p.abandoned = ctx.Err() != nil
			c.metrics.fetched(len(p.data))
			c.settle(p)
		}
		select {
		case <-p.fetched:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		switch {
		case p.err == nil:
			from := min(offset-p.at, int64(len(p.data)))
			return p.data[from:min(from+n, int64(len(p.data)))], nil
		case missing || !p.abandoned:
			return nil, p.err
		}
	}
}

// find returns the part that has some bytes, or a missing one, which the caller fetches.
func (c *cache) find(of edition, offset, n, extent int64) (p *part, missing bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := c.index(of, offset, n); i >= 0 {
		p = c.mu.parts[i]
		c.mu.parts = append(slices.Delete(c.mu.parts, i, i+1), p)
		return p, false
	}
	p = &part{of: of, at: offset, size: extent, fetched: make(chan struct{})}
	c.mu.parts = append(c.mu.parts, p)
	c.mu.bytes += extent
	for c.mu.bytes > c.limit && len(c.mu.parts) > 1 {
		c.remove(0)
	}
	return p, true
}

// has reports whether a part has some bytes.
func (c *cache) has(of edition, offset, n int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.index(of, offset, n) >= 0
}

// drop drops the parts that have some bytes, which are damaged.
func (c *cache) drop(of edition, offset, n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := c.index(of, offset, n); i >= 0; i = c.index(of, offset, n) {
		c.remove(i)
	}
}

// settle ends the fetching of a part. One that has failed is forgotten.
func (c *cache) settle(p *part) {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer close(p.fetched)
	if i := slices.Index(c.mu.parts, p); p.err != nil && i >= 0 {
		c.remove(i)
	}
}

func (c *cache) index(of edition, offset, n int64) int {
	return slices.IndexFunc(c.mu.parts, func(p *part) bool { return p.of == of && p.at <= offset && offset+n <= p.at+p.size })
}

func (c *cache) remove(i int) {
	c.mu.bytes -= c.mu.parts[i].size
	c.mu.parts = slices.Delete(c.mu.parts, i, i+1)
}
