package snapshot

import (
	"context"
	"sync"
	"time"

	"github.com/mongostream/streamer/health"
)

// A PageRead is a page as it was read.
type PageRead struct {
	Query Query
	Page  Page
	// Begun and Over are when it was read.
	Begun, Over time.Time
}

// isExact reports whether the page shows its collection at the time at which its readers wait.
func (p *PageRead) isExact() bool { return p.Page.To == p.Query.After }

// A fetch is a page that is being read.
type fetch struct {
	PageRead

	replays bool // the documents of the query are not read, but brought to its time
	err     error
	done    chan struct{} // closed when it is read
	reading *health.Loop
}

func newFetch(q Query) *fetch {
	return &fetch{PageRead: PageRead{Query: q}, reading: health.NewLoop(), done: make(chan struct{})}
}

// Reads are the pages that are being read. They may be used concurrently.
type Reads struct {
	mu struct {
		sync.Mutex
		fetches map[*fetch]context.CancelFunc // what ends the reading of each page
	}
}

// NewReads returns Reads without a page.
func NewReads() *Reads {
	r := &Reads{}
	r.mu.fetches = make(map[*fetch]context.CancelFunc)
	return r
}

// begin notes how to end the reading of a page.
func (r *Reads) begin(f *fetch, cancel context.CancelFunc) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f.reading.Work()
	r.mu.fetches[f] = cancel
}

// end notes that a page is no longer being read.
func (r *Reads) end(f *fetch) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.mu.fetches, f)
}

// Restart reads the pages again that are being read. It does not wait.
func (r *Reads) Restart() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, cancel := range r.mu.fetches {
		cancel()
	}
}

// Age returns for how long the page that has taken longest has been read.
func (r *Reads) Age() (age time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for f := range r.mu.fetches {
		age = max(age, f.reading.Age())
	}
	return age
}
