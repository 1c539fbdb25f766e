package lane

import (
	"context"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/lane/ring"
)

// A Start says where a cursor begins.
type Start struct {
	// Position is what has been seen already: the cursor yields what stands behind it.
	Position change.Position
	// Open is where a stream is opened for it, at or before Position. Zero means Position itself; it differs where a position
	// cannot be opened, because its token belongs to another filter.
	Open change.Position
	// Anew is a position up to which the tail must not be used although it may hold what the cursor wants: the stretch is to be read
	// again from MongoDB.
	Anew change.Position
	// Onward says that the position is given up: reading goes on at the earliest place behind it that the log still holds.
	Onward bool
}

func (s Start) open() change.Position {
	if s.Open.IsZero() {
		return s.Position
	}
	return s.Open
}

// A Cursor is a place in a reader: one partition's lane, or a session that follows every partition. One goroutine reads it;
// Position and Close may be called from others.
type Cursor struct {
	log       *Log
	all       bool
	partition change.Partition
	signals   chan struct{} // holds one signal: there is something to look at

	// Guarded by the log's mutex.
	reader   *reader         // nil while behind every ring
	waiting  *reader         // the catch-up that is being opened for it
	position change.Position // everything up to here has been read
	open     change.Position // where a stream is opened for it
	anew     change.Position // up to here not from the tail
	onward   *LostError      // why the position is given up: a stream is opened at the earliest place behind it
	lost     *LostError      // what is to be told before anything else: what stands between the position and its Onward is lost
	told     bool            // it was
	next     uint64          // the slot to read next
	index    int             // how many of its events in that slot have been read
	idle     bool            // has read everything, is woken by the next slot that concerns it
	skipping bool            // has yet to meet the first event behind its position
	taken    bool            // current is handed out and not yet settled
	current  Batch
	alarm    change.Timestamp // Next returns when the position reaches this time; zero for never
	err      error
}

// A Batch is what one reply holds for a cursor. It is valid until the cursor's next call of Next or Return; its events alias the
// reply.
type Batch = ring.Batch

// Next settles the batch handed out before as read, and returns the next one. It blocks until there is one, the context ends
// (its cause is returned), or the log no longer holds what the cursor wants (ErrPositionLost). Where reading can go on behind the loss the
// error is a *LostError with Onward: the cursor stays where it was until the next call, which goes on there. Otherwise the cursor has failed.
func (c *Cursor) Next(ctx context.Context) (*Batch, error) {
	for {
		b, err := c.take()
		if b != nil || err != nil {
			return b, err
		}
		select {
		case <-c.signals:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// Alarm makes Next return with an empty batch, once, as soon as everything up to the time has been read, also where nothing happens.
// It may be called from any goroutine; a later call takes the place of an earlier one.
func (c *Cursor) Alarm(at change.Timestamp) {
	c.log.mu.Lock()
	defer c.log.mu.Unlock()
	c.alarm = at
	if at.IsZero() {
		delete(c.log.alarms, c)
		return
	}
	c.log.alarms[c] = struct{}{}
	c.signal()
}

// rings reports whether the cursor's alarm is due.
func (c *Cursor) rings() bool { return !c.alarm.IsZero() && c.place().Time.Compare(c.alarm) >= 0 }

// Return gives back a batch of which only the first n events have been read, and lets go of its reply: a cursor whose consumer
// has to wait must not hold the ring's memory. The rest comes again with Next.
func (c *Cursor) Return(b *Batch, n int) {
	c.log.mu.Lock()
	defer c.log.mu.Unlock()
	if !c.taken || n >= b.Len() {
		return
	}
	if n > 0 {
		c.advance(b.Event(n - 1).Position().Clone())
		c.index = b.First() + n
	}
	c.taken, *b = false, Batch{}
	if c.reader != nil {
		c.reader.stepped()
	}
}

// advance moves the position forward. From then on it is one of the log's own, at which a stream can be opened.
func (c *Cursor) advance(p change.Position) {
	if p.After(c.position) {
		c.position, c.open = p, p
	}
}

// Position returns the position up to which everything has been read. Of an idle cursor that is as far as its reader is,
// which moves on also where nothing happens.
func (c *Cursor) Position() change.Position {
	c.log.mu.Lock()
	defer c.log.mu.Unlock()
	return c.place()
}

// place is Position under the mutex.
func (c *Cursor) place() change.Position {
	if c.idle {
		return change.Later(c.position, c.reader.ring.End())
	}
	return c.position
}

// Close ends the cursor. Next returns context.Canceled from then on.
func (c *Cursor) Close() {
	c.log.mu.Lock()
	defer c.log.mu.Unlock()
	c.fail(context.Canceled)
}

// fail makes Next return the error from now on.
func (c *Cursor) fail(err error) {
	if c.err == nil {
		c.err = err
	}
	c.leave()
}

// goesOn tells the cursor that what stands before the position is lost, where it has yet to read some of that.
func (c *Cursor) goesOn(cause *LostError, at change.Position) {
	switch {
	case at.After(c.position):
		c.anew = change.Position{}
		c.lost, c.told = &LostError{First: cause.First, Last: cause.Last, Onward: at, Err: cause.Err}, false
	case at.After(c.open):
		c.open = at
	}
}

// leave takes the cursor out of its reader, or out of those that wait for one. It stands at its position and asks for a reader
// again when it is next read; until then it costs nothing.
func (c *Cursor) leave() {
	if c.reader != nil {
		c.position = c.place()
		c.reader.remove(c)
	}
	c.waiting = nil
	delete(c.log.behind, c)
	if c.err != nil {
		delete(c.log.alarms, c)
	}
	c.signal()
}

// take settles the last batch and looks for the next one; nil without an error means to wait for a signal.
func (c *Cursor) take() (*Batch, error) {
	l := c.log
	l.mu.Lock()
	defer l.mu.Unlock()
	c.settle()
	if c.err != nil {
		return nil, c.err
	}
	if lost := c.lost; lost != nil {
		if !c.told {
			c.told = true
			return nil, lost
		}
		c.lost, c.told = nil, false
		c.advance(lost.Onward)
	}
	switch {
	case c.reader == nil:
		l.place(c)
	case c.reader.tail:
		if c.overwritten() {
			l.metrics.Detached.Inc()
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
	if b := c.ring(); b != nil {
		return b, nil
	}
	if !c.idle {
		if b := c.find(); b != nil {
			return b, nil
		}
	}
	return c.ring(), nil
}

// ring returns the empty batch of an alarm that is due, nil otherwise.
func (c *Cursor) ring() *Batch {
	if !c.rings() {
		return nil
	}
	c.alarm = change.Timestamp{}
	delete(c.log.alarms, c)
	empty := (&ring.Slot{End: c.place(), At: c.reader.replied}).All(0)
	return &empty
}

// overwritten reports whether the ring no longer has the slot that the cursor was to read next.
func (c *Cursor) overwritten() bool { return !c.idle && c.next < c.reader.ring.First() }

// settle counts the batch handed out before as read.
func (c *Cursor) settle() {
	if !c.taken {
		return
	}
	end, next := c.current.End(), c.current.Seq()+1
	c.taken, c.current = false, Batch{}
	c.advance(end)
	c.next, c.index = next, 0
	r := c.reader
	if r == nil {
		return
	}
	if c.next > r.front {
		r.front = c.next
		r.wake()
	}
	r.stepped()
}

// find returns the next slot's events for the cursor, or makes it idle.
func (c *Cursor) find() *Batch {
	in := &c.reader.ring
	for ; c.next < in.Next(); c.next, c.index = c.next+1, 0 {
		s := in.At(c.next)
		if c.batch(s) {
			c.taken = true
			return &c.current
		}
		c.advance(s.End)
	}
	c.idle = true
	c.reader.idle++
	c.reader.front = in.Next()
	c.reader.wake()
	c.reader.stepped()
	return nil
}

// batch makes what the slot holds for the cursor and has not been read the current batch, if there is anything.
func (c *Cursor) batch(s *ring.Slot) bool {
	b := &c.current
	if c.all {
		*b = s.All(c.index)
	} else {
		*b = s.Lane(c.partition, c.index)
	}
	if c.skipping {
		b.Skip(c.position)
		c.skipping = b.Len() == 0
	}
	c.index = b.First()
	return b.Len() > 0 || s.Unproven && s.End.After(c.position)
}

// rouse wakes an idle cursor for a slot that concerns it; it has read everything up to the position before the slot.
func (c *Cursor) rouse(seq uint64, before change.Position) {
	if !c.idle {
		return
	}
	c.advance(before)
	c.idle = false
	c.reader.idle--
	c.next, c.index = seq, 0
	c.signal()
}

// signal lets Next look again. It never blocks.
func (c *Cursor) signal() { nudge(c.signals) }
