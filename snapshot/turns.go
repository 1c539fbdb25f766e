package snapshot

import (
	"context"
	"iter"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const (
	// maxReads bounds the pages that are read at a time.
	maxReads = 4
	// maxServed bounds the identities whose turns are remembered.
	maxServed = 10_000
)

// Turns decide whose page is read next: that of the identity whose last turn is longest ago, so
// that many large scans of one identity do not delay a small one of another. They wait for the rate
// before a page, and a page costs its documents. They may be used concurrently.
type Turns struct {
	limit *rate.Limiter // nil: none

	mu struct {
		sync.Mutex
		reading int
		gate    bool // a reader waits for the rate
		waiting []*turnRequest
		turn    uint64
		served  map[string]uint64 // the last turn of each identity
	}
}

// A turnRequest waits for a turn.
type turnRequest struct {
	identity string
	granted  chan struct{}
}

// NewTurns returns Turns with a limit of documents; nil is none.
func NewTurns(limit *rate.Limiter) *Turns {
	r := &Turns{limit: limit}
	r.mu.served = make(map[string]uint64)
	return r
}

// Acquire waits for an identity's turn to read a page. It returns false if the context ends first.
func (r *Turns) Acquire(ctx context.Context, identity string) bool {
	q := &turnRequest{identity: identity, granted: make(chan struct{})}
	r.mu.Lock()
	r.mu.waiting = append(r.mu.waiting, q)
	r.grant()
	r.mu.Unlock()
	select {
	case <-q.granted:
	case <-ctx.Done():
		r.mu.Lock()
		defer r.mu.Unlock()
		if i := slices.Index(r.mu.waiting, q); i >= 0 {
			r.mu.waiting = slices.Delete(r.mu.waiting, i, i+1)
			return false
		}
		r.mu.gate = false
		r.mu.reading--
		r.grant()
		return false
	}
	var err error
	if r.limit != nil {
		err = r.limit.WaitN(ctx, 1)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.gate = false
	if err != nil { // the context has ended
		r.mu.reading--
	}
	r.grant()
	return err == nil
}

// grant gives the next turn, unless that is not to be had. The caller holds the mutex.
func (r *Turns) grant() {
	if r.mu.gate || r.mu.reading >= maxReads || len(r.mu.waiting) == 0 {
		return
	}
	next := 0
	for i, q := range r.mu.waiting {
		if r.mu.served[q.identity] < r.mu.served[r.mu.waiting[next].identity] {
			next = i
		}
	}
	q := r.mu.waiting[next]
	r.mu.waiting = slices.Delete(r.mu.waiting, next, next+1)
	if len(r.mu.served) >= maxServed {
		clear(r.mu.served)
	}
	r.mu.turn++
	r.mu.served[q.identity] = r.mu.turn
	r.mu.reading++
	r.mu.gate = true
	close(q.granted)
}

// Charge counts the documents of a page; the first one is paid already. The next page waits for
// them.
func (r *Turns) Charge(documents int) {
	if r.limit != nil && documents > 1 {
		r.limit.ReserveN(time.Now(), min(documents-1, r.limit.Burst()))
	}
}

// More reports whether another page may be read within a turn, and pays for its first document: no
// other reader waits for a turn, and the rate permits it at once.
func (r *Turns) More() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.mu.gate && len(r.mu.waiting) == 0 && (r.limit == nil || r.limit.AllowN(time.Now(), 1))
}

// Release ends a turn.
func (r *Turns) Release() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.reading--
	r.grant()
}

// Least returns the identity of some whose last turn is longest ago.
func (r *Turns) Least(identities iter.Seq[string]) (least string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	first := true
	for id := range identities {
		if first || r.mu.served[id] < r.mu.served[least] {
			least = id
		}
		first = false
	}
	return least
}
