package oplog

import (
	"context"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/internal/wake"
)

// A Start says where a cursor begins.
type Start struct {
	// Position is the cursor's place: the cursor yields the entries after it. Zero means from now
	// on.
	Position change.Position
	// Open is the position at which a stream is opened, at or before Position. Defaults to
	// Position. It differs if Position cannot be opened, because its token belongs to another
	// pipeline.
	Open change.Position
	// Scope has the namespaces for which the cursor is read: it may leave out all others. Defaults
	// to everything.
	Scope Scope
	// Reread makes the cursor read a stretch anew, whatever rings have of it.
	Reread Reread
	// Instead is a cursor that this one replaces: it is closed. This one continues with its stream,
	// if that serves this one too. Optional.
	Instead *Cursor
	// Live makes this the cursor with which the tail keeps pace: the tail reads ahead of it by a
	// bounded amount and never overwrites unread entries. A log has one such cursor.
	Live bool
}

// A Reread asks for entries up to Until from streams that were opened at Since or later; zero asks
// for nothing. MongoDB looks up the document of an update when the change is read, so an entry that
// a ring has had for a while may have an older document than another process has seen since. In
// entries that are read anew, documents are no older than anything that was seen before Since. From
// a stretch on that the oplog no longer has, entries come from the tail's ring all the same,
// because that is better than a loss.
type Reread struct {
	Since time.Time
	Until change.Timestamp
}

// isOver reports whether a cursor at a position has read the stretch. drained says that no entry of
// the position's time follows.
func (r Reread) isOver(at change.Position, drained bool) bool {
	c := at.Time.Compare(r.Until)
	return r.Since.IsZero() || c > 0 || c == 0 && drained
}

// A Cursor is a place in a reader. One goroutine reads it; Position and Close are safe for
// concurrent use.
type Cursor struct {
	log     *Log
	live    bool
	scope   Scope
	signals chan struct{} // holds one signal: Poll may return something

	// Guarded by the log's mutex:
	reader   *reader         // nil without a reader
	waiting  *reader         // the catch-up that is being opened for it
	position change.Position // everything up to here has been read
	open     change.Position // where a stream is opened for it
	reread   Reread          // zero once that is over
	unites   bool            // gets a catch-up of everything; see Log.unite
	next     uint64          // the slot to read next
	idle     bool            // has read everything that the reader has
	skipping bool            // must skip entries up to its position
	taken    bool            // current was returned and does not count as read yet
	current  Batch
	err      error
}

// Next marks the previous batch as read and returns the next one. It blocks until there is one or
// the context ends; then it returns the context's cause. Other errors are permanent: ErrAhead,
// context.Canceled after Close, and the error of the log.
func (c *Cursor) Next(ctx context.Context) (*Batch, error) {
	for {
		if b, err := c.Poll(); b != nil || err != nil {
			return b, err
		}
		select {
		case <-c.signals:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// Signal returns a channel that receives a signal when Poll may return something.
func (c *Cursor) Signal() <-chan struct{} { return c.signals }

// Poll is Next without waiting: it returns nil if there is no batch.
func (c *Cursor) Poll() (*Batch, error) {
	l := c.log
	l.mu.Lock()
	defer l.mu.Unlock()
	c.settle()
	if c.err != nil {
		return nil, c.err
	}
	if c.reread.isOver(c.place(), c.isDrained()) {
		c.reread = Reread{}
	}
	switch {
	case c.reader == nil:
		l.place(c)
	case c.reader.tail:
		if c.overwritten() {
			l.metrics.detached.Inc()
			c.leave()
			l.place(c)
		}
	case l.tail.serves(c):
		l.join(c)
	case c.overwritten():
		c.leave()
		l.place(c)
	}
	if c.reader == nil {
		return nil, nil //nolint:nilnil // the caller waits
	}
	return c.find(), nil
}

// advance moves the position forward. It then is a position of the log, at which a stream can be
// opened.
func (c *Cursor) advance(p change.Position) {
	if p.After(c.position) {
		c.position = p
		c.open = p
	}
}

// Position returns the position up to which everything has been read.
func (c *Cursor) Position() change.Position {
	c.log.mu.Lock()
	defer c.log.mu.Unlock()
	return c.place()
}

// Drained reports whether everything was read that MongoDB had when it was last asked, so that no
// event of the position's time follows. Signal fires when it becomes true.
func (c *Cursor) Drained() bool {
	c.log.mu.Lock()
	defer c.log.mu.Unlock()
	return c.isDrained()
}

// isDrained is Drained for callers that hold the mutex.
func (c *Cursor) isDrained() bool { return c.idle && c.reader != nil && c.reader.drained }

// Idle reports whether the cursor has read everything that its reader has, or has no reader. The
// log ends the catch-up of one that is neither idle nor read.
func (c *Cursor) Idle() bool {
	c.log.mu.Lock()
	defer c.log.mu.Unlock()
	return c.idle || c.reader == nil
}

// Rereads returns the stretch that the cursor still has to read anew, zero if nothing.
func (c *Cursor) Rereads() Reread {
	c.log.mu.Lock()
	defer c.log.mu.Unlock()
	if c.reread.isOver(c.place(), c.isDrained()) {
		c.reread = Reread{}
	}
	return c.reread
}

// Retained reports whether the cursor reads a log beyond MongoDB's.
func (c *Cursor) Retained() bool {
	c.log.mu.Lock()
	defer c.log.mu.Unlock()
	return c.reader != nil && c.reader.retained
}

// place is Position for callers that hold the mutex.
func (c *Cursor) place() change.Position {
	if c.idle {
		return change.Later(c.position, c.reader.ring.end)
	}
	return c.position
}

// Close closes the cursor.
func (c *Cursor) Close() {
	c.log.mu.Lock()
	defer c.log.mu.Unlock()
	c.fail(context.Canceled)
}

// fail makes the cursor return the error.
func (c *Cursor) fail(err error) {
	if c.err == nil {
		c.err = err
	}
	c.leave()
}

// leave removes the cursor from its reader or from the waiting cursors. It requests a reader again
// when it is next read.
func (c *Cursor) leave() {
	if c.reader != nil {
		c.position = c.place()
		c.reader.remove(c)
	}
	if c.waiting != nil {
		c.log.notify() // nobody may wait for that reader any longer
	}
	c.waiting = nil
	delete(c.log.waiting, c)
	c.signal()
}

// overwritten reports whether the ring has overwritten the cursor's next slot.
func (c *Cursor) overwritten() bool { return !c.idle && c.next < c.reader.ring.first() }

// settle marks the returned batch as read.
func (c *Cursor) settle() {
	if !c.taken {
		return
	}
	end := c.current.End()
	next := c.current.slot.seq + 1
	c.taken = false
	c.current = Batch{}
	c.advance(end)
	c.next = next
	if r := c.reader; r != nil {
		r.passed(c)
	}
}

// find returns the cursor's next batch, which is empty if the log has only advanced, or makes the
// cursor idle.
func (c *Cursor) find() *Batch {
	in := &c.reader.ring
	if c.idle {
		if !in.end.After(c.position) {
			return nil
		}
		c.advance(in.end)
		return &Batch{slot: &slot{end: in.end}}
	}
	for ; c.next < in.next; c.next++ {
		s := in.at(c.next)
		c.current = Batch{slot: s, loss: s.loss}
		if c.skipping {
			c.current.skip(c.position)
		}
		if c.current.loss == nil && c.current.Len() == 0 {
			continue
		}
		if loss := c.current.loss; loss.isGone() && !c.reader.tail && c.log.tail.holds(loss.From) {
			c.advance(loss.From) // everything before it has been read, and later entries cannot be read anew
			c.current = Batch{}
			c.reread = Reread{}
			c.log.join(c)
			return c.find()
		}
		if s.held && c.current.loss != nil {
			s.held = false
			c.reader.countLoss(s.loss)
		}
		c.skipping = false
		c.taken = true
		return &c.current
	}
	c.current = Batch{}
	c.idle = true
	c.reader.idle++
	c.reader.passed(c)
	if in.end.After(c.position) {
		c.advance(in.end)
		return &Batch{slot: &slot{end: in.end}}
	}
	return nil
}

// wake gives an idle cursor, which has read everything up to before, a new slot.
func (c *Cursor) wake(seq uint64, before change.Position) {
	if !c.idle {
		return
	}
	c.advance(before)
	c.idle = false
	c.reader.idle--
	c.next = seq
	c.signal()
}

// signal sends a signal to the reader of the cursor. It never blocks.
func (c *Cursor) signal() { wake.Notify(c.signals) }
