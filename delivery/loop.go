package delivery

import (
	"context"
	"errors"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/oplog"
)

// Run serves the sessions until the context ends, and then closes them.
func (h *Hub) Run(ctx context.Context) error {
	defer h.loops.Wait()
	defer close(h.stopped)
	defer h.Stop(fault.Newf(fault.NodeStopping, "node is stopping"))
	running, cancel := context.WithCancel(ctx)
	l := h.newLoop(running)
	defer l.scanner.Join()
	defer cancel() // before Join: a scan that nobody serves ends only with its context
	defer h.pulse.turning.Rest()
	for {
		turning, end := context.WithCancel(ctx)
		h.mu.Lock()
		h.mu.restart = end
		h.mu.Unlock()
		err := l.run(turning)
		again := turning.Err() != nil && ctx.Err() == nil
		end()
		if !again {
			return err
		}
		h.cfg.Logger.Warn("hub restarted: its sessions continue where they are")
		l.part()
	}
}

// part takes all sessions off the live path at their places, and tells page readers to consider the
// span from here to the log's end.
func (l *loop) part() {
	for _, s := range l.live {
		l.leave(s, change.Later(l.at, s.from))
	}
	l.scanner.Spoil()
	l.drained = false
	l.deliverPages()
}

// run serves the live sessions until the context ends, or the log.
func (l *loop) run(ctx context.Context) error {
	cursor := l.log.Cursor(oplog.Start{Live: true})
	defer func() { cursor.Close() }()
	bookmark := l.newBookmark()
	defer bookmark.Stop()
	for {
		l.pulse.turning.Work()
		l.pulse.turns.Add(1)
		if l.cfg.Stall != nil {
			l.cfg.Stall(ctx)
			if ctx.Err() != nil {
				return nil
			}
		}
		batch, err := cursor.Poll()
		switch {
		case batch != nil:
			l.pass(batch)
			l.handle()
			select { // which must not wait until the log pauses
			case <-l.retries.signal:
				l.retryChanged()
			case <-bookmark.C:
				l.bookmark(bookmark)
			default:
			}
			continue
		case err == nil:
		case errors.Is(err, oplog.ErrAhead):
			l.ahead(err)
			cursor.Close()
			cursor = l.log.Cursor(oplog.Start{Live: true})
			continue
		case ctx.Err() != nil, errors.Is(err, context.Canceled):
			return nil // a planned stop, of the hub or of the log
		default:
			return err
		}
		l.proceed(cursor.Position(), cursor.Drained())
		l.pulse.turning.Rest()
		select {
		case <-cursor.Signal():
		case f := <-l.commands:
			f(l)
		case <-l.poked:
			l.handle()
		case <-l.retries.signal:
			l.retryChanged()
		case <-bookmark.C:
			l.bookmark(bookmark)
		case <-ctx.Done():
			return nil
		}
	}
}

// handle processes the mailboxes of live sessions and the loop's commands.
func (l *loop) handle() {
	l.mu.Lock()
	mail := l.mu.mail
	l.mu.mail = nil
	l.mu.Unlock()
	for _, of := range mail {
		if s := l.live[of]; s != nil {
			s.handle(true)
		}
	}
	for {
		select {
		case f := <-l.commands:
			f(l)
		default:
			return
		}
	}
}

// reached advances the Hub. When its position becomes known, it wakes the sessions that wait to
// join.
func (l *loop) reached(to change.Position) {
	l.at = to
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.at.IsZero() && !to.IsZero() {
		for s := range l.mu.sessions {
			s.stir()
		}
	}
	l.mu.at = to
}

// proceed advances the Hub when the log has only advanced. drained says that it had nothing more.
func (l *loop) proceed(to change.Position, drained bool) {
	later := to.After(l.at)
	differs := drained != l.drained
	l.drained = drained
	if later {
		l.reached(to)
	}
	if later || differs {
		l.deliverPages()
	}
}

// pass delivers one batch of the log to the live sessions.
func (l *loop) pass(batch *oplog.Batch) {
	if loss := batch.Loss(); loss != nil {
		l.lost(loss, batch)
	}
	l.costs.Begin(time.Now(), batch.Len())
	l.drained = false
	l.writer.came = batch.At()
	before := l.at
	for i := range batch.Len() {
		p, keyed := batch.Partition(i)
		e := batch.Event(i)
		l.bound = i == 0 && batch.Loss() != nil && !e.Position().After(batch.Loss().To)
		l.event(e, p, keyed, before)
		before = change.Later(before, e.Position())
		if l.costs.Exceeds() {
			l.relieve(before)
		}
	}
	l.costs.End()
	l.pending, l.bound = 0, false
	end := batch.End()
	for s := range l.touched {
		s.queue(change.Later(end, s.from))
		if !s.credit() {
			l.metrics.left.Inc()
			l.leave(s, change.Later(end, s.from))
		}
	}
	clear(l.touched)
	l.reached(end)
	l.disperse(end)
	l.deliverPages()
	if batch.Len() > 0 {
		l.mu.Lock()
		copy(l.mu.events, l.events)
		l.mu.Unlock()
	}
}

// event delivers one event to the sessions that it is for. before is the position of the previous
// one: sessions that cannot have it on the live path leave there, and consider it themselves.
func (l *loop) event(e *change.Event, p change.Partition, keyed bool, before change.Position) {
	if keyed {
		l.events[p]++
	}
	l.scanner.Note(e)
	l.match(e, p, keyed, before)
	if len(l.getting) == 0 {
		return
	}
	position := e.Position()
	ref := position.Ref()
	for _, s := range l.getting {
		if !l.afford(s, e, before) {
			continue
		}
		opened := s.opened()
		l.writer.cost, l.writer.copied = 0, 0
		s.appendEvent(e, ref, p, keyed, s.matched, &l.writer)
		s.appendLeft(e, ref, p, s.without, &l.writer)
		s.closeUnit(position)
		l.settle(s, opened)
	}
	clear(l.getting)
	l.getting = l.getting[:0]
}

// match finds the sessions that get an event, and why: the subscriptions that it matches, and those
// that a document has left with it.
func (l *loop) match(e *change.Event, p change.Partition, keyed bool, before change.Position) {
	l.found = l.index.Match(e, l.found[:0], l)
	for _, s := range l.costs.refused {
		l.evict(s, before)
	}
	clear(l.costs.refused)
	l.costs.refused = l.costs.refused[:0]
	if len(l.found) == 0 && len(l.leavers) == 0 {
		return
	}
	l.writer.Next(e)
	position := e.Position()
	for _, id := range l.found {
		sub := l.subscriptions[id]
		if sub == nil {
			continue // it has just left
		}
		s := sub.stream
		if len(s.matched) == 0 {
			if !s.has(p, keyed) || !s.isAfter(position) {
				continue
			}
			l.getting = append(l.getting, s)
		}
		sub.hit = true
		s.matched = append(s.matched, sub)
	}
	for sub := range l.leavers.of(e) {
		s := sub.stream
		if sub.hit || !s.has(p, keyed) || !s.isAfter(position) {
			continue
		}
		left, units := sub.hasLeft(e)
		if l.charge(s, units); !left {
			continue
		}
		if len(s.matched) == 0 && len(s.without) == 0 {
			l.getting = append(l.getting, s)
		}
		s.without = append(s.without, sub)
	}
	for _, s := range l.getting {
		for _, sub := range s.matched {
			sub.hit = false
		}
	}
}

// afford reports whether a session may have an event on the live path. Otherwise the session leaves
// it before the event, and belongs to its own loop.
func (l *loop) afford(s *stream, e *change.Event, before change.Position) bool {
	switch {
	case s.account != nil && len(s.matched) > 1 && !l.affordsForms(s, e):
		s.forgetMatched()
		l.evict(s, before)
	case l.memory.Tight(l.pending) && !l.bound && !s.affords():
		s.forgetMatched()
		l.shed(s, before)
	default:
		return true
	}
	return false
}

// settle charges a session for the event that it has got, and forgets the event. opened is the size
// of the open batch before it.
func (l *loop) settle(s *stream, opened int) {
	l.charge(s, l.writer.cost)
	l.chargeDelivery(s, l.writer.copied)
	l.pending += s.opened() - opened
	l.touched[s] = struct{}{}
	s.forgetMatched()
}

// ahead ends the live sessions, because they have read a log that no longer exists.
func (l *loop) ahead(err error) {
	for _, s := range l.live {
		s.Close(fault.New(fault.LogAhead, err))
	}
	l.reached(change.Position{})
	l.scanner.Spoil()
	l.deliverPages()
}

// bookmark sends their position to idle live sessions.
func (l *loop) bookmark(b *bookmark) {
	if !b.due() {
		return
	}
	for _, s := range l.live {
		if l.at.After(s.position()) && s.idle() {
			s.openBatch()
			s.queue(l.at)
		}
	}
}
