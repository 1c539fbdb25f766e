package rescan

import (
	"slices"
	"sync"

	"github.com/zeebo/xxh3"

	"github.com/mongostream/streamer/change"
)

// An Intake is where a lane takes documents in. S identifies sessions. Its zero value is closed.
type Intake[S comparable] struct {
	mu      sync.Mutex
	changed map[xxh3.Uint128]change.Timestamp // when the stream changed a document since the intake was opened; nil while it is closed
	at      change.Timestamp                  // of the page that waits; zero while none does
	docs    []change.Event
	waiting map[S]int     // batches of the page that are not acknowledged
	taken   bool          // the page has been handed out
	done    chan struct{} // closed when the page has been taken in and acknowledged
}

// Open begins to note what the stream changes, before a page is read.
func (in *Intake[S]) Open() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.changed, in.waiting = make(map[xxh3.Uint128]change.Timestamp), make(map[S]int)
	in.done, in.taken, in.docs, in.at = make(chan struct{}), false, nil, change.Timestamp{}
}

// Note remembers that the stream has changed documents.
func (in *Intake[S]) Note(events []*change.Event) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.changed == nil {
		return
	}
	for _, e := range events {
		in.changed[identity(e)] = e.Time()
	}
}

// identity names a document within its partition.
func identity(e *change.Event) xxh3.Uint128 {
	id := e.ID()
	var stack [256]byte
	b := append(stack[:0], e.DB()...)
	b = append(append(b, '.'), e.Coll()...)
	b = append(b, 0, id.Type)
	return xxh3.Hash128(append(b, id.Data...))
}

// Put keeps the documents that were read at the time until the lane has reached it. The channel is closed when they are acknowledged.
func (in *Intake[S]) Put(at change.Timestamp, docs []change.Event) <-chan struct{} {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.at, in.docs = at, docs
	return in.done
}

// Due returns the time that the lane must reach, zero where nothing waits.
func (in *Intake[S]) Due() change.Timestamp {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.at
}

// Take hands out what waits, when the lane has reached its time: the documents that the stream has not changed since they were read.
// Taken must follow.
func (in *Intake[S]) Take(reached change.Timestamp) (docs []change.Event, due bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.at.IsZero() || in.at.Compare(reached) > 0 {
		return nil, false
	}
	docs = slices.DeleteFunc(in.docs, func(e change.Event) bool {
		t, ok := in.changed[identity(&e)]
		return ok && t.Compare(in.at) > 0
	})
	in.at, in.docs = change.Timestamp{}, nil
	return docs, true
}

// Sent notes that a session was handed a batch of the page.
func (in *Intake[S]) Sent(s S) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.waiting[s]++
}

// Taken notes that all of the page has been handed out.
func (in *Intake[S]) Taken() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.taken = true
	in.settle()
}

// Acked notes that a session has acknowledged a batch of the page.
func (in *Intake[S]) Acked(s S) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.waiting[s]--; in.waiting[s] <= 0 {
		delete(in.waiting, s)
	}
	in.settle()
}

// Left notes that a session is gone and will acknowledge no more.
func (in *Intake[S]) Left(s S) {
	in.mu.Lock()
	defer in.mu.Unlock()
	delete(in.waiting, s)
	in.settle()
}

// settle tells who waits when the page is done with. The mutex is held.
func (in *Intake[S]) settle() {
	if in.taken && len(in.waiting) == 0 && in.done != nil {
		close(in.done)
		in.done, in.changed = nil, nil
	}
}
