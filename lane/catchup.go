package lane

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/lane/plan"
)

// runCatchups opens catch-ups for cursors that are behind, and pauses the tail for one that cannot win, until the context ends.
func (l *Log) runCatchups(ctx context.Context, fail context.CancelCauseFunc) {
	var wg sync.WaitGroup
	defer wg.Wait()
	look := time.NewTicker(l.cfg.Patience)
	defer look.Stop()
	for {
		select {
		case <-l.kick:
			for _, r := range l.assign() {
				wg.Go(func() { l.runCatchup(ctx, r, fail) })
			}
		case <-look.C:
			l.watch()
		case <-ctx.Done():
			return
		}
	}
}

// assign gives the cursors that are behind their readers, and returns the readers to open.
func (l *Log) assign() (opening []*reader) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refused || !l.tail.opened && !l.late {
		return nil
	}
	var pending []*Cursor
	for c := range l.behind {
		switch {
		case l.tail.serves(c):
			delete(l.behind, c)
			l.tail.add(c)
		case c.waiting == nil && !c.position.IsZero(): // who has none begins where the tail does
			pending = append(pending, c)
		}
	}
	readers, places := l.plan(pending)
	urgent := false
	for i, c := range pending {
		if places[i] == plan.Nowhere {
			urgent = urgent || c.open.Time.Compare(l.floor) < 0
			continue
		}
		r := readers[places[i]]
		if r.opened {
			delete(l.behind, c)
			r.add(c)
			continue
		}
		c.waiting = r
		if _, known := l.catchups[r]; !known {
			l.catchups[r] = struct{}{}
			opening = append(opening, r)
			if c.open.Compare(r.from) == 0 {
				r.onward = c.onward
			}
		}
	}
	if urgent {
		l.preempt()
	}
	return opening
}

// plan returns the catch-ups, those that are to be opened too, and the cursors' places among them.
func (l *Log) plan(pending []*Cursor) (readers []*reader, places []int) {
	views := make([]plan.Reader, 0, len(l.catchups))
	for r := range l.catchups {
		base, end := r.reach()
		readers, views = append(readers, r), append(views, plan.Reader{Base: base, End: end})
	}
	wishes := make([]plan.Cursor, len(pending))
	for i, c := range pending {
		wishes[i] = plan.Cursor{Open: c.open, Session: c.all}
	}
	places, open := plan.Assign(wishes, views, plan.Limits{Budget: l.cfg.MaxStreams - 1, Neighbourhood: l.cfg.Neighbourhood})
	for _, from := range open {
		readers = append(readers, newReader(l, false, from))
	}
	return readers, places
}

// preempt ends the catch-up that stands furthest on in the log, for a cursor whose position is about to be lost. Its own cursors ask
// again.
func (l *Log) preempt() {
	var foremost *reader
	for r := range l.catchups {
		if r.opened && r.leave != nil && r.from.Time.Compare(l.floor) >= 0 && (foremost == nil || r.from.After(foremost.from)) {
			foremost = r
		}
	}
	if foremost != nil {
		l.logger.Info("catch-up gives way to a position that is about to be lost", "from", foremost.from.String())
		foremost.leave()
	}
}

// runCatchup runs one catch-up to its end. What it leaves without a reader is looked at again.
func (l *Log) runCatchup(ctx context.Context, r *reader, fail context.CancelCauseFunc) {
	l.metrics.Catchups.Inc()
	l.logger.Info("catch-up begins", "from", r.from.String())
	err := r.run(ctx)
	lost := errors.Is(err, ErrPositionLost)
	if !lost && !ended(err) {
		fail(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.catchups, r)
	if l.pausedFor == r {
		l.pausedFor = nil
		l.tail.wake()
	}
	for c := range l.behind {
		if lost && r.shares(c, err) {
			c.loses(err, r.opened)
		} else if c.waiting == r {
			c.waiting = nil
		}
	}
	for _, c := range r.cursors() {
		switch {
		case lost && r.shares(c, err):
			c.loses(err, r.opened)
		case ctx.Err() != nil:
			c.fail(context.Cause(ctx))
		default:
			c.leave()
		}
	}
	l.logger.Info("catch-up ends", "from", r.from.String(), "to", r.ring.End().String())
	l.stir()
}

// loses deals with the loss of what the cursor wants. What was lost while it was read, for good, is looked for behind it: an opening at the
// position would be refused. Everything else is an error.
func (c *Cursor) loses(err error, read bool) {
	lost := lostForGood(err, c.open)
	if lost == nil || !read {
		c.fail(err)
		return
	}
	c.leave()
	c.onward = lost
	if c.err == nil {
		c.log.place(c)
	}
}

// tailBase returns where the tail begins, zero while it is not open.
func (l *Log) tailBase() change.Position {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.tail.opened {
		return change.Position{}
	}
	return l.tail.ring.Base()
}

// handOver lets the cursors that wait for a reader go on where the tail begins, and reports whether it could: the log holds nothing else
// behind what they have lost.
func (l *Log) handOver(r *reader) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	base := l.tail.ring.Base()
	if !l.tail.opened || !base.After(r.from) {
		return false
	}
	for c := range l.behind {
		if c.waiting == r {
			delete(l.behind, c)
			c.goesOn(r.onward, base)
			l.tail.add(c)
		}
	}
	return true
}

// shares reports whether what the reader has lost is lost to the cursor too: the position that the stream was opened at is, and what
// else the log does not hold; who stands further on, also because the reader has brought it there, may still be served. A server may
// open a stream at a lost position and refuse it only when it is read.
func (r *reader) shares(c *Cursor, err error) bool {
	if (c.waiting == r || c.reader == r) && !c.open.After(r.from) && !c.place().After(r.from) {
		return true
	}
	lost, ok := errors.AsType[*LostError](err)
	return ok && !c.open.IsZero() && !lost.Holds(c.open) // who has no position has lost none
}

// watch looks at how the catch-ups come along. One that reads all it can and yet comes no nearer pauses the tail; one that nobody
// has read from is ended, and its cursors ask again when they are read.
func (l *Log) watch() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for r := range l.catchups {
		if !r.opened {
			continue
		}
		before, moved := r.distance, r.front != r.seen
		r.distance, r.seen = l.tail.ring.End().Time.Time().Sub(r.ring.End().Time.Time()), r.front
		switch {
		case r.idle == 0 && !moved:
			r.leave()
		case !r.full() && l.pausedFor == nil && before > 0 && r.distance >= before:
			l.pausedFor = r
			l.metrics.Pauses.Inc()
			l.logger.Warn("the tail waits for a catch-up that comes no nearer", "distance", r.distance)
		}
	}
}
