package cursor

import (
	"crypto/rand"
	"encoding/binary"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mongostream/streamer/internal/devmongo/fault"
)

// Source is what a cursor reads.
type Source interface {
	// Fill adds what there is to the batch. An error ends the cursor.
	Fill(b *Batch) error
	// Closed reports whether there will never be more.
	Closed() bool
	// Waiting returns a channel that is closed when there may be more, nil for a source that does not wait.
	Waiting() <-chan struct{}
}

// Cursor is one open cursor. Its fields do not change.
type Cursor struct {
	ID     int64
	NS     string
	Stream bool // a change stream
	Source Source

	killed chan struct{}
	busy   bool
	dead   bool
	used   time.Time
}

// Killed is closed when the cursor was killed.
func (c *Cursor) Killed() <-chan struct{} { return c.killed }

// Registry is the open cursors of a server. It is safe for concurrent use.
type Registry struct {
	mu   sync.Mutex
	open map[int64]*Cursor
}

// NewRegistry makes an empty registry.
func NewRegistry() *Registry { return &Registry{open: map[int64]*Cursor{}} }

// Add registers a cursor under a new id, checked in.
func (r *Registry) Add(c *Cursor) *Cursor {
	r.mu.Lock()
	defer r.mu.Unlock()
	for c.ID == 0 || r.open[c.ID] != nil {
		c.ID = newID()
	}
	c.killed = make(chan struct{})
	c.used = time.Now()
	r.open[c.ID] = c
	return c
}

func newID() int64 {
	var b [8]byte
	_, _ = rand.Read(b[:])
	return int64(binary.LittleEndian.Uint64(b[:]) >> 1)
}

// CheckOut gives the cursor to a request.
func (r *Registry) CheckOut(id int64, ns string) (*Cursor, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.open[id]
	switch {
	case c == nil:
		return nil, fault.New(fault.CursorNotFound, "cursor id %d not found", id)
	case c.NS != ns:
		return nil, fault.New(fault.Unauthorized, "Requested getMore on namespace '%s', but cursor belongs to a different namespace %s", ns, c.NS)
	case c.busy:
		return nil, fault.New(fault.CursorInUse, "cursor id %d is already in use", id)
	}
	c.busy = true
	return c, nil
}

// CheckIn takes a cursor back; one that is done, or was killed meanwhile, is gone.
func (r *Registry) CheckIn(c *Cursor, done bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c.busy = false
	c.used = time.Now()
	if done || c.dead {
		delete(r.open, c.ID)
	}
}

// Kill ends a cursor and reports whether there was one.
func (r *Registry) Kill(id int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.open[id]
	if c == nil || c.dead {
		return false
	}
	r.kill(c)
	return true
}

func (r *Registry) kill(c *Cursor) {
	c.dead = true
	close(c.killed)
	if !c.busy {
		delete(r.open, c.ID)
	}
}

// Reap kills the cursors that nobody used since.
func (r *Registry) Reap(since time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.open {
		if !c.busy && !c.dead && c.used.Before(since) {
			r.kill(c)
		}
	}
}

// Count is the number of open cursors, and of change streams among them.
func (r *Registry) Count() (all, streams int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.open {
		all++
		if c.Stream {
			streams++
		}
	}
	return all, streams
}

// List is a source of documents that are all there.
type List struct{ docs []bsoncore.Document }

// NewList makes a source of the documents.
func NewList(docs []bsoncore.Document) *List { return &List{docs: docs} }

// Fill adds the next documents.
func (l *List) Fill(b *Batch) error {
	for len(l.docs) > 0 && b.Add(l.docs[0]) {
		l.docs[0] = nil
		l.docs = l.docs[1:]
	}
	return nil
}

// Closed reports whether all documents were delivered.
func (l *List) Closed() bool { return len(l.docs) == 0 }

// Waiting is nil: a list does not grow.
func (l *List) Waiting() <-chan struct{} { return nil }

var _ Source = (*List)(nil)
