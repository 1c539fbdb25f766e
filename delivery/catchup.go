package delivery

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/delivery/fair"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gap"
	"github.com/mongostream/streamer/internal/wake"
	"github.com/mongostream/streamer/match"
	"github.com/mongostream/streamer/oplog"
	"github.com/mongostream/streamer/snapshot"
)

// Open opens a session with its initial subscriptions. It ends with its context.
func (h *Hub) Open(ctx context.Context, cfg SessionConfig, subscriptions []Subscription) (*Session, error) {
	if cfg.CreditEvents == 0 {
		cfg.CreditEvents = h.cfg.CreditEvents
	}
	if cfg.CreditBytes == 0 {
		cfg.CreditBytes = h.cfg.CreditBytes
	}
	s := &stream{
		Session: &Session{
			hub: h, cfg: cfg, received: make(chan struct{}, 1), stirred: make(chan struct{}, 1), filtersAsked: make(chan struct{}, 1), done: make(chan struct{}),
		},
		subscriptions: make(map[string]*Subscription), byKey: make(map[match.ID]*Subscription), leavers: make(leavers),
		groups: make(map[string]*group),
	}
	s.run = func() { s.turn(ctx) }
	s.turns.Store(1) // the first one begins at the end of Open
	s.mu.joined = make(map[change.Partition]attachment)
	s.mu.cuts, s.mu.windows = make(map[change.Partition]cut), make(map[change.Partition]*window)
	s.part = h.memory.Enter(cfg.Identity, s.mayResume)
	if cfg.Attached {
		s.attached.Store(&map[change.Partition]change.Term{})
	}
	s.startAt(cfg.Start, cfg.Partitions, cfg.Generation)
	left := slices.DeleteFunc(slices.Clone(cfg.Snapshots), func(p snapshot.Progress) bool { // of removed subscriptions
		return !slices.ContainsFunc(subscriptions, func(sub Subscription) bool { return sub.ID == p.Subscription })
	})
	if cfg.Attached {
		s.owed = left
		left = slices.DeleteFunc(slices.Clone(left), func(p snapshot.Progress) bool { return !p.Done })
	}
	s.setSnapshots(snapshot.Together(left))
	if at := s.position(); !at.IsZero() {
		s.welcome(at)
	}
	s.add(subscriptions)
	if s.lapsed = cfg.Lapsed; !s.position().IsZero() {
		s.tellLapse()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mu.closing != nil {
		s.release()
		return nil, h.mu.closing
	}
	h.mu.sessions[s.Session] = struct{}{}
	s.account = h.accounts.Enter(cfg.Account)
	s.unwatch = context.AfterFunc(ctx, func() { s.Close(context.Cause(ctx)) })
	h.loops.Add(1)
	go s.run()
	return s.Session, nil
}

// welcome queues an empty batch, which has the start of the session.
func (s *stream) welcome(at change.Position) {
	s.open = &Batch{}
	s.queue(at)
}

// startAt sets the places from which the session reads, in a generation. The session must not be on
// the live path.
func (s *stream) startAt(rest Place, of map[change.Partition]Place, generation uint64) {
	s.seen = newSeen(rest, of)
	from := rest.From()
	if s.seen != nil {
		s.seen.owner = s.cfg.Owner
		from = s.seen.from()
	}
	s.began = Place{At: from, Begins: rest.Begins}
	for _, place := range of {
		s.began.Begins = s.began.Begins && place.Begins
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.reading = newReading(rest, of, generation)
	s.mu.considered = from.Clone()
}

// turn serves the session while it is off the live path, until it has nothing to do or has ended.
func (s *stream) turn(ctx context.Context) {
	for {
		asked := s.turns.Load()
		if s.Ended() {
			s.forget(ctx)
			return // turns is not 0, so that no other turn begins
		}
		s.handle(false)
		if s.standing {
			if s.standing = !s.takePages(); !s.standing {
				continue
			}
		} else if s.ready() {
			if err := s.catchUp(ctx); err != nil {
				s.Close(err)
			}
			continue
		}
		if s.kept != nil && s.kept.Idle() { // else the log ends its stream, if the wait is long
			s.closeKept()
		}
		if s.turns.CompareAndSwap(asked, 0) {
			return
		}
	}
}

// closeKept closes the cursor that was kept, if there is one. Only the session's own loop calls it.
func (s *stream) closeKept() {
	if s.kept != nil {
		s.kept.Close()
		s.kept = nil
	}
}

// forget removes the session from the Hub.
func (s *stream) forget(ctx context.Context) {
	h := s.hub
	defer h.loops.Done()
	s.unwatch()
	s.closeKept()
	if s.isLive() { // the hub may have removed it meanwhile, and does not add it again
		h.do(context.WithoutCancel(ctx), func(l *loop) {
			if _, live := l.live[s.Session]; live {
				l.leave(s, change.Later(l.at, s.from))
			}
		})
	}
	for _, sub := range s.byKey {
		sub.endTrail()
		sub.abandon()
	}
	h.retries.change(s.Session)
	h.accounts.Exit(s.account)
	s.release()
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.mu.sessions, s.Session)
}

// ready reports whether the session should read.
func (s *stream) ready() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.mu.live && !s.paused && s.resumes()
}

// catchUp reads with the session's own cursor until the session is live, has no credit, or has
// mail.
func (s *stream) catchUp(ctx context.Context) error {
	looks := s.seen != nil
	c := s.newCatchup(ctx)
	defer c.end()
	cursor := c.cursor
	bookmark := s.hub.newBookmark() // while it is off the live path
	defer bookmark.Stop()
	back := time.NewTimer(0) // fires when it can return to the live path
	defer back.Stop()
	for {
		batch, err := c.poll()
		if err != nil {
			return err
		}
		if batch != nil && !c.consider(batch) {
			s.reread = cursor.Rereads()
			c.keep()
			return context.Cause(ctx)
		}
		if batch == nil {
			c.giveBack()
			s.follow(cursor.Position())
			if s.seen != nil && cursor.Drained() && s.seen.drained(s.position()) {
				s.seen = nil
			}
		}
		s.reread = cursor.Rereads()
		if s.stands(cursor.Drained()) {
			s.standing = true
			return nil
		}
		if s.isAway(time.Now()) {
			s.follow(cursor.Position())
		} else if s.mayJoin() && s.joins(ctx) {
			return nil
		}
		found := looks && s.seen == nil // the client's place: from here on the cursor may read the session's namespaces alone
		interrupted := !s.credit() || s.hasMail() || s.Ended()
		if interrupted || found && cursor.Retained() {
			c.keep()
			return nil
		}
		if batch != nil {
			continue
		}
		if err := c.wait(ctx, cursor.Signal(), back, bookmark); err != nil {
			return err
		}
	}
}

// newCatchup opens a cursor at the session's position.
func (s *stream) newCatchup(ctx context.Context) *catchup {
	scope := s.scope()
	if s.seen != nil { // for the change that a client's place names, whatever its namespace
		scope = nil
	}
	cursor := s.hub.log.Cursor(oplog.Start{Position: s.position(), Scope: scope, Reread: s.reread, Instead: s.kept})
	c := &catchup{session: s, cursor: cursor, index: &match.Index{}, gone: ctx.Done(), told: s.position()}
	for key, sub := range s.byKey {
		c.index.Add(key, sub.Program)
	}
	return c
}

// poll returns the log's next batch, nil if there is none yet. A session that begins at the log's
// tail learns where that is.
func (c *catchup) poll() (*oplog.Batch, error) {
	batch, err := c.cursor.Poll()
	switch s := c.session; {
	case errors.Is(err, oplog.ErrAhead):
		return nil, fault.New(fault.LogAhead, err)
	case err != nil:
		return nil, err
	case s.position().IsZero():
		if at := c.cursor.Position(); !at.IsZero() {
			s.welcome(at)
		}
	}
	return batch, nil
}

// wait waits until there is something to do: the log has more, the session is stirred or over, or
// it can return to the live path. An idle session that stays off it gets its position meanwhile. It
// returns the context's cause when that ends.
func (c *catchup) wait(ctx context.Context, more <-chan struct{}, back *time.Timer, bookmark *bookmark) error {
	s := c.session
	if away := s.awayFor(time.Now()); away > 0 {
		back.Reset(away)
	}
	select {
	case <-more:
	case <-back.C:
	case <-bookmark.C:
		waits := s.idle() && s.isAway(time.Now())
		if at := s.position(); bookmark.due() && waits && at.After(c.told) {
			c.told = at
			s.openBatch()
			s.queue(at)
		}
	case <-s.stirred:
	case <-s.done:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

// scope returns the namespaces of the session's subscriptions. Later subscriptions are read with
// another cursor.
func (s *stream) scope() oplog.Scope {
	var all []change.Namespace
	for _, sub := range s.byKey {
		f := sub.Program.Filter()
		all = append(all, change.Namespace{DB: f.DB, Coll: f.Coll})
	}
	return oplog.ScopeOf(all...)
}

// follow advances a session off the live path when the log has only advanced.
func (s *stream) follow(at change.Position) {
	if s.seen == nil && !s.position().IsZero() && at.After(s.position()) {
		s.queue(at.Clone())
	}
}

// mayJoin reports whether nothing is left that only the session's own cursor may read: changes that
// are read anew, those up to its client's place, and those up to the time at which it waits.
func (s *stream) mayJoin() bool {
	return s.reread.Since.IsZero() && s.seen == nil && s.held() == nil
}

// joins puts the session on the live path unless the Hub is later. It does not wait for a Hub that
// has not begun to read, because the session must stay responsive.
func (s *stream) joins(ctx context.Context) (joined bool) {
	at := s.position()
	hub := s.hub.Position()
	if hub.IsZero() || !at.Covers(hub) {
		return false
	}
	s.hub.do(ctx, func(l *loop) { joined = l.join(s, at) })
	return joined
}

// A catchup matches the log for one session.
type catchup struct {
	session *stream
	cursor  *oplog.Cursor // nil if the session keeps it
	writer  Writer
	index   *match.Index
	found   []match.ID

	gone      <-chan struct{} // closed when its context has ended
	asked     *Subscription
	slot      bool // it has one
	slice     int  // the cost that it may still spend with it
	spent     int  // for the batch
	delivered int  // what its deliveries cost in the batch
	ended     bool // the session is over: its last events do not count

	told change.Position // the last position that the session, if it was idle, was sent
}

// keep keeps the cursor of a session that reads anew for the next catch-up, which would open
// another stream otherwise, because no ring serves it.
func (c *catchup) keep() {
	if !c.session.reread.Since.IsZero() {
		c.session.kept = c.cursor
		c.cursor = nil
	}
}

// end ends the catch-up. The session may be on the live path by now.
func (c *catchup) end() {
	c.giveBack()
	if c.cursor != nil {
		c.cursor.Close()
	}
}

// consider queues the matching events of a batch of the log. It returns false if it stopped within
// it: because the session ends, and has not considered the batch, or because the budget is
// exhausted.
func (c *catchup) consider(batch *oplog.Batch) (whole bool) {
	s := c.session
	defer c.settle()
	if !c.turn() {
		return false
	}
	held := s.held()
	if loss := batch.Loss(); loss != nil {
		passes := func(at change.Timestamp) bool { return held != nil && at.Compare(held.at) > 0 }
		if passes(loss.To.Time) || batch.Len() > 0 && passes(batch.Event(0).Time()) {
			c.standStill(held)
			return false
		}
		if !s.hasSeen(loss, batch) {
			s.tell(loss)
		}
	}
	for i := range batch.Len() {
		if held != nil && batch.Event(i).Time().Compare(held.at) > 0 {
			c.standStill(held)
			return false
		}
		if c.slot && c.slice <= 0 && !c.turn() {
			return false
		}
		p, keyed := batch.Partition(i)
		e := batch.Event(i)
		if s.seen != nil {
			v, released := s.seen.look(e, p, keyed)
			c.release(released)
			if v != deliver {
				continue
			}
		}
		queued := c.event(e, p, keyed)
		if queued && s.hub.memory.Tight(s.opened()) && !s.affords() {
			s.queue(change.Later(s.position(), e.Position()).Clone())
			return false
		}
		if c.ended {
			return false
		}
	}
	end := batch.End()
	if s.seen != nil {
		c.release(s.seen.reached(end))
		if s.seen.done() {
			s.seen = nil
		}
	}
	if c.ended {
		return false
	}
	s.queue(end)
	return true
}

// hasSeen reports whether the session's subscriber has seen the rename to which a loss belongs, the
// first change of the batch, and so has the loss.
func (s *stream) hasSeen(loss *oplog.Loss, batch *oplog.Batch) bool {
	return loss.Reason == gap.Renamed && batch.Len() > 0 && s.seen != nil && s.seen.has(batch.Event(0).Position())
}

// standStill ends the reading at the time of a hold: the next entry of the log is later.
func (c *catchup) standStill(at *standstill) {
	c.session.queue(change.Later(change.At(at.at.Next()), c.session.position()))
	c.session.standing = true
}

// settle records the cost of a batch.
func (c *catchup) settle() {
	s := c.session
	if c.slot {
		s.hub.accounts.Deliver(s.account, c.delivered)
	} else if c.delivered > 0 {
		s.hub.accounts.Deliver(s.account, c.delivered+fair.WakeUnits)
	}
	c.delivered = 0
	if c.spent > 0 {
		s.expense.Spend(time.Now(), c.spent)
		c.spent = 0
	}
}

// over reports whether the session or its context has ended.
func (c *catchup) over() bool {
	select {
	case <-c.gone:
		return true
	default:
		return c.session.Ended()
	}
}

// Grant implements match.Meter off the live path: a session that spends much takes turns.
func (c *catchup) Grant(id match.ID) int {
	if c.asked = c.session.byKey[id]; !c.turn() {
		return 0
	}
	return match.MaxCost
}

// Spent implements match.Meter. A subscription whose evaluations keep costing too much is
// suspended.
func (c *catchup) Spent(_ match.ID, units int, err error) {
	s := c.session
	c.spent += units
	c.slice -= units
	if err != nil {
		s.hub.fail(c.asked, err)
	}
	if s.account != nil && s.expense.Evaluated(time.Now(), units) {
		s.hub.suspend(c.asked)
		c.ended = true
	}
}

var _ match.Meter = (*catchup)(nil)

func (c *catchup) release(held []heldEvent) {
	for i := range held {
		c.event(&held[i].event, held[i].partition, held[i].keyed)
	}
}

// event queues one event if it matches.
func (c *catchup) event(e *change.Event, p change.Partition, keyed bool) (queued bool) {
	s := c.session
	if !s.has(p, keyed) {
		return false
	}
	c.found = c.index.Match(e, c.found[:0], c)
	if c.ended {
		return false
	}
	s.matched = s.matched[:0]
	for _, id := range c.found {
		sub := s.byKey[id]
		sub.hit = true
		s.matched = append(s.matched, sub)
	}
	for sub := range s.leavers.of(e) {
		if sub.hit {
			continue
		}
		left, units := sub.hasLeft(e)
		if c.spent, c.slice = c.spent+units, c.slice-units; left {
			s.without = append(s.without, sub)
		}
	}
	for _, sub := range s.matched {
		sub.hit = false
	}
	if len(s.matched) == 0 && len(s.without) == 0 {
		return false
	}
	c.writer.Next(e)
	c.writer.cost, c.writer.copied = 0, 0
	ref := e.Position().Ref()
	s.appendEvent(e, ref, p, keyed, s.matched, &c.writer)
	s.appendLeft(e, ref, p, s.without, &c.writer)
	s.closeUnit(e.Position())
	c.spent += c.writer.cost
	c.delivered += c.writer.copied
	c.slice = c.slice - c.writer.cost - c.writer.copied
	s.forgetMatched()
	return true
}

// turn waits for the session's turn off the live path, if it has to take turns, and for another one
// when it has spent its slice. It returns false if the session or its context is over.
func (c *catchup) turn() bool {
	s := c.session
	switch {
	case s.account == nil:
		return true
	case c.ended || c.over():
		c.ended = true
		return false
	case c.slot && c.slice > 0, !c.slot && c.isFree():
		return true
	}
	c.giveBack()
	if !s.hub.accounts.Acquire(s.account, s.done, c.gone) {
		c.ended = true
		return false
	}
	c.slot = true
	c.slice = fair.SliceUnits
	s.fill(true)
	return true
}

// isFree reports whether the session needs no turn: it and its account have spent little.
func (c *catchup) isFree() bool {
	s := c.session
	return !s.expense.NeedsSlot() && c.spent <= fair.FreeUnits && !s.hub.accounts.TakesTurns(s.account, time.Now())
}

// giveBack ends the session's turn: its queued events are sent.
func (c *catchup) giveBack() {
	if !c.slot {
		return
	}
	c.slot = false
	c.session.fill(false)
	c.session.hub.accounts.Release(c.session.account, fair.SliceUnits-c.slice+fair.WakeUnits)
}

// fill says that the session queues more in this turn: its transport waits for all of that, which
// costs less than piece by piece.
func (s *Session) fill(on bool) {
	s.mu.Lock()
	s.mu.fills = on
	more := !on && len(s.mu.queue) > 0
	s.mu.Unlock()
	if more {
		wake.Notify(s.received)
	}
}
