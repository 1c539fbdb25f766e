package oplog

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"
)

// runCatchups opens catch-ups for waiting cursors, and pauses the tail for one without progress,
// until the context ends.
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

// assign assigns readers to the waiting cursors and returns the readers to open.
func (l *Log) assign() (opening []*reader) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wakeJoiners()
	if !l.tail.opened && !l.late {
		return nil
	}
	var pending []*Cursor
	for c := range l.waiting {
		switch {
		case l.tail.serves(c):
			delete(l.waiting, c)
			l.tail.add(c)
		case c.waiting == nil && !c.position.IsZero(): // one without a position begins where the tail does
			pending = append(pending, c)
		}
	}
	readers, places := l.plan(pending)
	var without []*Cursor
	for i, c := range pending {
		switch places[i] {
		case undecided:
			continue
		case nowhere:
			without = append(without, c)
			continue
		}
		r := readers[places[i]]
		if r.opened {
			delete(l.waiting, c)
			r.add(c)
			continue
		}
		c.waiting = r
		r.settled = r.settled || c.unites // with the scope of everything
		if _, known := l.catchups[r]; !known {
			l.catchups[r] = struct{}{}
			opening = append(opening, r)
		}
	}
	l.endOneFor(without, false)
	l.endOneFor(without, true)
	return opening
}

// wakeJoiners has the catch-ups that wait to join MongoDB ask again whether they may. One that was
// never opened ends if nobody waits for it any longer.
func (l *Log) wakeJoiners() {
	awaited := make(map[*reader]bool)
	for c := range l.waiting {
		awaited[c.waiting] = true
	}
	for r := range l.catchups {
		switch {
		case !r.joins:
		case r.opened || awaited[r]:
			r.notify()
		default:
			r.leave()
		}
	}
}

// endOneFor ends at most one catch-up, of the retained log or of MongoDB, for the cursors that get
// no reader: while its stream is being closed, nobody knows who will still be without one. One of
// the retained log may be ended for MongoDB's cursors, too.
func (l *Log) endOneFor(cursors []*Cursor, retained bool) {
	for r := range l.catchups {
		if r.ending && (r.retained || !retained) {
			return
		}
	}
	cursors = slices.DeleteFunc(slices.Clone(cursors), func(c *Cursor) bool { return l.left(c) != retained })
	urgent := slices.ContainsFunc(cursors, func(c *Cursor) bool { return l.turn(c) < inTurn }) || !retained && l.joinsLate()
	if urgent && l.preempt(retained) {
		return
	}
	_ = slices.ContainsFunc(cursors, l.unite) // until one is ended
}

// plan returns the existing and planned catch-ups and the index of one for each cursor.
func (l *Log) plan(pending []*Cursor) (readers []*reader, places []int) {
	spans := make([]span, 0, len(l.catchups))
	for r := range l.catchups {
		base, end := r.reach()
		readers, spans = append(readers, r), append(spans, span{
			base: base, end: end, begun: r.begun, scope: r.scope, settled: r.settled, opened: r.opened, retained: r.retained, joins: r.joins, turn: l.turnOf(r),
		})
	}
	places, open := assign(l.wantsOf(pending), spans, limits{budget: l.budget(), neighbourhood: l.cfg.Neighbourhood})
	for _, o := range open {
		r := newReader(l, false, o.from)
		r.settled, r.retained = o.whole, o.retained
		readers = append(readers, r)
	}
	return readers, places
}

// unite ends a catch-up that a waiting cursor could share but for its scope, if there is one. Its
// cursors wait again when they are next read; the cursor gets a catch-up of everything, from where
// they all can share it, so that none of them ends it in turn. A cursor does this once before it
// gets a reader.
func (l *Log) unite(c *Cursor) (ends bool) {
	if c.unites {
		return false
	}
	var latest *reader
	for r := range l.catchups {
		within := c.open.Covers(r.ring.base) && !r.begun.Before(c.reread.Since)
		shares := r.ends() && r.retained == l.left(c) && within && !r.scope.covers(c.scope)
		if shares && (latest == nil || r.ring.end.After(latest.ring.end)) {
			latest = r
		}
	}
	if latest == nil {
		return false
	}
	c.unites = true
	for other := range latest.cursors {
		if c.open.After(other.open) {
			c.open = other.open
		}
	}
	latest.leave()
	return true
}

// ends reports whether a catch-up can be ended: it has a stream and runs.
func (r *reader) ends() bool { return r.opened && r.leave != nil }

// preempt ends the catch-up with the latest position, of the retained log or of MongoDB, if there
// is one, in favour of a cursor whose position is about to leave the log, or which no other may
// serve because it reads anew. Its own cursors wait again. For MongoDB it may also be one of the
// retained log, where these are more than their budget.
func (l *Log) preempt(retained bool) (ends bool) {
	var foremost *reader
	tooMany := !retained && l.count(true) > l.budget()
	for r := range l.catchups {
		canWait := r.retained == retained && r.from.Time.Compare(l.floor) >= 0
		isOver := r.retained && tooMany
		mayEnd := (canWait || isOver) && r.ends()
		if mayEnd && (foremost == nil || r.from.After(foremost.from)) {
			foremost = r
		}
	}
	if foremost == nil {
		return false
	}
	l.logger.Info("catch-up preempted for a position that cannot wait", "from", foremost.from.String())
	foremost.leave()
	return true
}

// joinsLate reports whether a catch-up waits to join MongoDB from where the oplog is about to end,
// or has ended, while no stream is free.
func (l *Log) joinsLate() bool {
	return l.count(false) >= l.budget() && l.joinsBefore(anew)
}

// joinsBefore reports whether a catch-up waits to join MongoDB whose turn is before another one.
func (l *Log) joinsBefore(other turn) bool {
	for r := range l.catchups {
		if r.joins && l.turnOf(r) < other {
			return true
		}
	}
	return false
}

// budget is how many catch-ups may read MongoDB, and how many are opened to read the retained log.
func (l *Log) budget() int { return l.cfg.MaxStreams - 1 }

// count returns how many catch-ups read the retained log, or MongoDB.
func (l *Log) count(retained bool) (n int) {
	for r := range l.catchups {
		if r.retained == retained {
			n++
		}
	}
	return n
}

// admits reports whether a catch-up may open a stream of MongoDB: there is one, and nobody whose
// turn is earlier is about to get it. One that may not is woken when another one ends.
func (l *Log) admits(r *reader) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	waited := r.joins
	r.joins, r.retained = true, true
	if own := l.turnOf(r); l.count(false) < l.budget() && !l.isAwaited(own) && !l.joinsBefore(own) {
		r.joins, r.retained = false, false
	} else if !waited {
		l.notify() // another one may be ended for it
	}
	return !r.joins
}

// isAwaited reports whether a cursor waits for a stream of MongoDB whose turn is before another
// one.
func (l *Log) isAwaited(other turn) bool {
	for c := range l.waiting {
		isInLine := c.waiting == nil && !c.position.IsZero() && !l.left(c)
		if isInLine && l.turn(c) < other {
			return true
		}
	}
	return false
}

// runCatchup runs one catch-up. Cursors that it leaves wait for a reader again.
func (l *Log) runCatchup(ctx context.Context, r *reader, fail context.CancelCauseFunc) {
	l.metrics.catchups.Inc()
	l.logger.Info("catch-up started", "from", r.from.String())
	err := r.run(ctx)
	ahead := errors.Is(err, ErrAhead)
	if !ahead && !ended(err) {
		fail(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.catchups, r)
	if l.pausedFor == r {
		l.pausedFor = nil
		l.tail.notify()
	}
	for c := range maps.Clone(l.waiting) {
		switch {
		case c.waiting == r && ahead && !r.from.After(c.open):
			c.fail(err)
		case c.waiting == r:
			c.waiting = nil
		}
	}
	for c := range maps.Clone(r.cursors) {
		switch {
		case ahead:
			c.fail(err)
		case ctx.Err() != nil:
			c.fail(context.Cause(ctx))
		default:
			c.leave()
		}
	}
	l.logger.Info("catch-up ended", "from", r.from.String(), "to", r.ring.end.String())
	l.notify()
}

// watch checks the progress of the catch-ups. One that reads continuously without approaching the
// tail pauses it; one that is not read is ended, and its cursors wait again when they are read.
func (l *Log) watch() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for r := range l.catchups {
		if !r.opened {
			continue
		}
		before := r.distance
		moved := r.front != r.seen
		r.distance = l.tail.ring.end.Time.Time().Sub(r.ring.end.Time.Time())
		r.seen = r.front
		late := before > 0 && r.distance >= before // no nearer to the tail than before
		needsPause := late && !r.retained && !r.full()
		switch {
		case r.idle == 0 && !moved:
			r.leave()
		case needsPause && l.pausedFor == nil:
			l.pausedFor = r
			l.metrics.pauses.Inc()
			l.logger.Warn("tail paused for a catch-up without progress", "distance", r.distance)
		}
	}
}

// ended reports whether an error is an ordinary end of a reader.
func ended(err error) bool { return err == nil || errors.Is(err, context.Canceled) }
