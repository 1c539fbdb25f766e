package oplog

import (
	"context"

	"github.com/mongostream/streamer/change"
)

// A Start says where a cursor begins.
type Start struct {
	// Position is what has been read already: the cursor yields what comes after it. Zero means from now on.
	Position change.Position
	// Open is where a stream is opened for it, at or before Position. Zero means Position itself; it differs where a position
	// cannot be opened, because its token belongs to another filter.
	Open change.Position
	// Live makes it the cursor that the tail keeps pace with: the tail reads only so far ahead of it, and never overwrites what it has yet
	// to read. A log has one.
	Live bool
}

// A Cursor is a place in a reader. One goroutine reads it; Position and Close may be called from others.
type Cursor struct {
	log     *Log
	live    bool
	signals chan struct{} // holds one signal: there is something to look at

	// Guarded by the log's mutex.
	reader   *reader         // nil while no reader serves it
	waiting  *reader         // the catch-up that is being opened for it
	position change.Position // everything up to here has been read
	open     change.Position // where a stream is opened for it
	next     uint64          // the slot to read next
	index    int             // how many of its events have been read
	idle     bool            // has read everything up to the reader's end
	skipping bool            // has yet to meet the first entry after its position
	taken    bool            // current is handed out and not yet counted as read
	current  Batch
	err      error
}

// Next counts the batch handed out before as read, and returns the next one. It blocks until there is one or the context ends, whose cause
// it returns. Other errors are final: ErrAhead, context.Canceled after Close, and the one that ended the log.
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

// Signal returns a channel that holds a signal when Poll may have something. It is for whoever waits for other things too.
func (c *Cursor) Signal() <-chan struct{} { return c.signals }

// Poll is Next for whoever does not wait: it returns nil where there is nothing.
func (c *Cursor) Poll() (*Batch, error) {
	l := c.log
	l.mu.Lock()
	defer l.mu.Unlock()
	c.settle()
	if c.err != nil {
		return nil, c.err
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
	case l.tail.holds(c.place()):
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

// Return gives back a batch of which only the first n events have been read, at least one, and lets go of its reply: whoever waits must not
// hold the ring's memory. The rest comes again.
func (c *Cursor) Return(b *Batch, n int) {
	c.log.mu.Lock()
	defer c.log.mu.Unlock()
	if !c.taken || n < 1 || n >= b.Len() {
		return
	}
	c.advance(b.Event(n - 1).Position().Clone())
	c.index = b.first + n
	c.taken, *b = false, Batch{}
	if c.reader != nil {
		c.reader.progressed()
	}
}

// advance moves the position forward. From then on it is one of the log's own, at which a stream can be opened.
func (c *Cursor) advance(p change.Position) {
	if p.After(c.position) {
		c.position, c.open = p, p
	}
}

// Position returns the position up to which everything has been read. Of a cursor that has read everything that is as far as its reader is.
func (c *Cursor) Position() change.Position {
	c.log.mu.Lock()
	defer c.log.mu.Unlock()
	return c.place()
}

// place is Position under the mutex.
func (c *Cursor) place() change.Position {
	if c.idle {
		return change.Later(c.position, c.reader.ring.end)
	}
	return c.position
}

// Close ends the cursor.
func (c *Cursor) Close() {
	c.log.mu.Lock()
	defer c.log.mu.Unlock()
	c.fail(context.Canceled)
}

// fail makes the cursor return the error from now on.
func (c *Cursor) fail(err error) {
	if c.err == nil {
		c.err = err
	}
	c.leave()
}

// leave takes the cursor out of its reader, or out of those that wait for one. It asks for a reader again when it is next read; until then
// it costs nothing.
func (c *Cursor) leave() {
	if c.reader != nil {
		c.position = c.place()
		c.reader.remove(c)
	}
	c.waiting = nil
	delete(c.log.waiting, c)
	c.signal()
}

// overwritten reports whether the ring no longer has the slot that the cursor was to read next.
func (c *Cursor) overwritten() bool { return !c.idle && c.next < c.reader.ring.first() }

// settle counts the batch handed out before as read.
func (c *Cursor) settle() {
	if !c.taken {
		return
	}
	end, next := c.current.End(), c.current.slot.seq+1
	c.taken, c.current = false, Batch{}
	c.advance(end)
	c.next, c.index = next, 0
	if r := c.reader; r != nil {
		r.passed(c)
	}
}

// find returns the next slot for the cursor, or an empty batch where the log has only moved on, or makes it idle.
func (c *Cursor) find() *Batch {
	in := &c.reader.ring
	if c.idle {
		if !in.end.After(c.position) {
			return nil
		}
		c.advance(in.end)
		return &Batch{slot: &slot{end: in.end, at: c.reader.replied}}
	}
	for ; c.next < in.next; c.next, c.index = c.next+1, 0 {
		s := in.at(c.next)
		c.current = Batch{slot: s, first: c.index}
		if c.index == 0 {
			c.current.loss = s.loss
		}
		if c.skipping {
			c.current.skip(c.position)
		}
		if c.current.loss == nil && c.current.Len() == 0 {
			continue
		}
		c.skipping = false
		c.index = c.current.first
		c.taken = true
		return &c.current
	}
	c.current = Batch{}
	c.idle = true
	c.reader.idle++
	c.reader.passed(c)
	if in.end.After(c.position) {
		c.advance(in.end)
		return &Batch{slot: &slot{end: in.end, at: c.reader.replied}}
	}
	return nil
}

// wake lets an idle cursor look at a new slot. It has read everything up to the position before it.
func (c *Cursor) wake(seq uint64, before change.Position) {
	if !c.idle {
		return
	}
	c.advance(before)
	c.idle = false
	c.reader.idle--
	c.next, c.index = seq, 0
	c.signal()
}

// signal lets the reader of the cursor look again. It never blocks.
func (c *Cursor) signal() { notify(c.signals) }
