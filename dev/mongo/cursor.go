package devmongo

import (
	"crypto/rand"
	"encoding/binary"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mongostream/streamer/dev/mongo/wire"
)

// cursorSource is the source of a cursor's documents.
type cursorSource interface {
	// Fill adds what there is to the batch. An error ends the cursor.
	Fill(b *wire.Batch) error
	// Closed reports whether there will never be more.
	Closed() bool
	// Waiting returns a channel that is closed when there may be more, nil for a source that does
	// not wait.
	Waiting() <-chan struct{}
}

// openCursor is one open cursor. Its fields do not change.
type openCursor struct {
	id     int64
	ns     string
	stream bool // a change stream
	source cursorSource

	killed chan struct{} // closed when the cursor is killed
	busy   bool
	dead   bool
	used   time.Time
}

// cursorRegistry is the open cursors of a server. It is safe for concurrent use.
type cursorRegistry struct {
	mu   sync.Mutex
	open map[int64]*openCursor
}

// newCursorRegistry makes an empty registry.
func newCursorRegistry() *cursorRegistry { return &cursorRegistry{open: map[int64]*openCursor{}} }

// add registers a cursor under a new id, checked in.
func (r *cursorRegistry) add(c *openCursor) *openCursor {
	r.mu.Lock()
	defer r.mu.Unlock()
	for c.id == 0 || r.open[c.id] != nil {
		c.id = newID()
	}
	c.killed = make(chan struct{})
	c.used = time.Now()
	r.open[c.id] = c
	return c
}

func newID() int64 {
	var b [8]byte
	_, _ = rand.Read(b[:])
	return int64(binary.LittleEndian.Uint64(b[:]) >> 1)
}

// checkOut gives the cursor to a request.
func (r *cursorRegistry) checkOut(id int64, ns string) (*openCursor, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.open[id]
	switch {
	case c == nil:
		return nil, wire.Errorf(wire.CursorNotFound, "cursor id %d not found", id)
	case c.ns != ns:
		return nil, wire.Errorf(wire.Unauthorized, "Requested getMore on namespace '%s', but cursor belongs to a different namespace %s", ns, c.ns)
	case c.busy:
		return nil, wire.Errorf(wire.CursorInUse, "cursor id %d is already in use", id)
	}
	c.busy = true
	return c, nil
}

// checkIn takes a cursor back; one that is done, or was killed meanwhile, is gone.
func (r *cursorRegistry) checkIn(c *openCursor, done bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c.busy = false
	c.used = time.Now()
	if done || c.dead {
		delete(r.open, c.id)
	}
}

// killID ends a cursor and reports whether there was one.
func (r *cursorRegistry) killID(id int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.open[id]
	if c == nil || c.dead {
		return false
	}
	r.kill(c)
	return true
}

func (r *cursorRegistry) kill(c *openCursor) {
	c.dead = true
	close(c.killed)
	if !c.busy {
		delete(r.open, c.id)
	}
}

// reap kills the cursors that have been unused since.
func (r *cursorRegistry) reap(since time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.open {
		if !c.busy && !c.dead && c.used.Before(since) {
			r.kill(c)
		}
	}
}

// count is the number of open cursors, and of change streams among them.
func (r *cursorRegistry) count() (all, streams int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.open {
		all++
		if c.stream {
			streams++
		}
	}
	return all, streams
}

// listSource is a source of documents that are all there.
type listSource struct{ docs []bsoncore.Document }

// newListSource makes a source of the documents.
func newListSource(docs []bsoncore.Document) *listSource { return &listSource{docs: docs} }

// Fill adds the next documents.
func (l *listSource) Fill(b *wire.Batch) error {
	for len(l.docs) > 0 && b.Add(l.docs[0]) {
		l.docs[0] = nil
		l.docs = l.docs[1:]
	}
	return nil
}

// Closed reports whether all documents were delivered.
func (l *listSource) Closed() bool { return len(l.docs) == 0 }

// Waiting is nil: a list does not grow.
func (l *listSource) Waiting() <-chan struct{} { return nil }

var _ cursorSource = (*listSource)(nil)
