package delivery

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/time/rate"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/delivery/fair"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/health"
	"github.com/mongostream/streamer/internal/wake"
	"github.com/mongostream/streamer/match"
	"github.com/mongostream/streamer/oplog"
	"github.com/mongostream/streamer/snapshot"
)

// Config configures a Hub.
type Config struct {
	// Partitions is N. Required.
	Partitions int
	// Halt ends sessions affected by a loss of history with the fault LogHistoryLost, instead of
	// reporting the loss to them.
	Halt bool
	// CreditEvents and CreditBytes bound the events of a session that are queued or sent and not
	// acknowledged. Default to 65536 and 16 MiB. One reply of MongoDB may exceed them.
	CreditEvents, CreditBytes int
	// QueueBytes bounds what all sessions together have queued or sent and not acknowledged, in
	// bytes of memory; see fair.Memory. 0 means no bound.
	QueueBytes int
	// Bookmark is the interval at which idle sessions receive their position. Defaults to 15 s. In
	// an oplog of less than 2 minutes it is at most 5 s, so that positions do not leave it.
	Bookmark time.Duration
	// Snapshots reads the documents of snapshots. Optional. SnapshotRate bounds the documents read;
	// nil means no limit.
	Snapshots    snapshot.Source
	SnapshotRate *rate.Limiter
	// SnapshotPage is how many documents are read at a time. Defaults to 512.
	SnapshotPage int
	// Covers reports whether changes of a namespace are read, of some collection with an empty
	// Coll, of some database with an empty DB. Subscriptions to other namespaces, and reads of
	// their documents, are refused. nil covers all.
	Covers func(change.Namespace) bool
	// Kinds returns the kinds of databases and collections, as far as they are known. A
	// subscription to a namespace without changes is refused; a subscriber to one that does not
	// exist yet gets a notice. Optional.
	Kinds func(context.Context, []change.Namespace) (map[change.Namespace]change.NamespaceKind, error)
	// Range is the extent of the oplog. Required for Page; without it no oplog is short.
	Range *oplog.Range
	// Recover are collections whose documents every subscription of them gets again after a loss.
	Recover []change.Namespace
	// Stall is called before each turn of the loop, and delays it. It is for demonstrations of a
	// hub that hangs; nil otherwise. It must return when its context ends.
	Stall func(ctx context.Context)
	// Logger defaults to one that discards.
	Logger *slog.Logger
	// Registerer registers the metrics. Optional.
	Registerer prometheus.Registerer
	// Tracer records snapshots. Optional.
	Tracer trace.Tracer
}

// A Hub serves the log to sessions. This half of it is for everybody; its loop has the other one.
type Hub struct {
	cfg      Config
	log      *oplog.Log
	logger   *slog.Logger
	metrics  metrics
	memory   *fair.Memory
	accounts *fair.Accounts
	compiler *match.Compiler
	turns    *snapshot.Turns
	reads    *snapshot.Reads
	retries  *retries
	kinds    kinds

	commands chan func(*loop) // for the loop
	poked    chan struct{}    // holds one signal: a live session has mail
	stopped  chan struct{}    // closed when Run has returned
	loops    sync.WaitGroup   // of sessions and listings
	lastKey  atomic.Uint64    // of subscriptions
	pulse    pulse

	mu struct {
		sync.Mutex
		at       change.Position
		sessions map[*Session]struct{}
		mail     []*Session
		events   []uint64
		closing  error              // why new sessions are refused
		restart  context.CancelFunc // ends the loop that runs
		losses   []rememberedLoss   // recent ones, oldest first
	}
}

// A pulse says whether the loop makes progress.
type pulse struct {
	turns   atomic.Uint64
	turning *health.Loop
	behind  health.Progress // of the caller of Age
}

// New returns a Hub of a log.
func New(cfg Config, log *oplog.Log) *Hub {
	cfg.CreditEvents = cmp.Or(cfg.CreditEvents, 65536)
	cfg.CreditBytes = cmp.Or(cfg.CreditBytes, 16<<20)
	cfg.Bookmark = cmp.Or(cfg.Bookmark, 15*time.Second)
	cfg.SnapshotPage = cmp.Or(cfg.SnapshotPage, 512)
	h := &Hub{
		cfg: cfg, log: log, logger: cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler)), memory: fair.NewMemory(cfg.QueueBytes),
		commands: make(chan func(*loop)), poked: make(chan struct{}, 1), stopped: make(chan struct{}),
		turns: snapshot.NewTurns(cfg.SnapshotRate), reads: snapshot.NewReads(), retries: newRetries(), accounts: fair.NewAccounts(), compiler: match.NewCompiler(programBytes), pulse: pulse{turning: health.NewLoop()},
	}
	h.mu.sessions = make(map[*Session]struct{})
	h.mu.events = make([]uint64, cfg.Partitions)
	h.metrics = newMetrics(cfg.Registerer, h)
	return h
}

// A loop is the half of a Hub that only the goroutine of Run may touch: whoever has one is called
// by it. Others ask for it with Hub.do.
type loop struct {
	*Hub

	start         func(func(context.Context)) // runs a function concurrently with the loop; its context ends with Run
	at            change.Position             // everything up to here has been considered on the live path; zero while unknown
	drained       bool                        // the log had nothing more there, so that no event of its time follows
	index         *match.Index                // subscriptions of the live sessions
	subscriptions map[match.ID]*Subscription
	live          map[*Session]*stream
	leavers       leavers  // of the live sessions
	events        []uint64 // by partition, since the start
	costs         costs

	// Of the current event and reply.
	writer  Writer
	found   []match.ID
	getting []*stream            // sessions that receive the current event, for the subscriptions in stream.matched
	touched map[*stream]struct{} // by the current reply
	bound   bool                 // a loss has the position of the current event: a session that has got it cannot leave before it
	pending int                  // bytes in open batches of the current reply, which the budget does not count yet

	// Of snapshots.
	scanner  *snapshot.Scanner[*Subscription]
	listings []listing              // that wait for the Hub to reach their time
	waiting  map[*Session][]*reader // until their sessions may get a page
	awaited  bool                   // one of them waits because its session is later than the Hub
}

func (h *Hub) newLoop(running context.Context) *loop {
	l := &loop{
		Hub: h, start: func(f func(context.Context)) { h.loops.Go(func() { f(running) }) },
		index: &match.Index{}, subscriptions: make(map[match.ID]*Subscription), leavers: make(leavers), live: make(map[*Session]*stream),
		events: make([]uint64, h.cfg.Partitions), touched: make(map[*stream]struct{}), waiting: make(map[*Session][]*reader), costs: costs{Live: fair.NewLive(h.accounts)},
	}
	l.scanner = snapshot.NewScanner(running, snapshot.Config[*Subscription]{
		Source: h.cfg.Snapshots, Sessions: l, Turns: h.turns, Reads: h.reads, Logger: h.logger,
		Do:        func(ctx context.Context, f func()) bool { return h.do(ctx, func(*loop) { f() }) },
		Documents: func(readers int) int { return min(h.cfg.SnapshotPage, h.memory.Events(readers)) },
	})
	return l
}

// Run serves the sessions until the context ends, and then closes them.
func (h *Hub) Run(ctx context.Context) error {
	defer h.loops.Wait()
	defer close(h.stopped)
	defer h.Stop(fault.Newf(fault.NodeStopping, "node is stopping"))
	running, cancel := context.WithCancel(ctx)
	defer cancel()
	l := h.newLoop(running)
	defer l.scanner.Join()
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
		h.logger.Warn("hub restarted: its sessions continue where they are")
		l.part()
	}
}

// Restart ends the loop and starts a new one: every live session leaves the live path at its place,
// and loses nothing. It does not wait, and has no effect on a loop that hangs.
func (h *Hub) Restart() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mu.restart != nil {
		h.mu.restart()
	}
}

// Age returns how long the loop has made no progress although it had work. Only one goroutine may
// call it.
func (h *Hub) Age() time.Duration {
	end, at := h.log.End(), h.Position()
	return max(h.pulse.turning.Age(), h.pulse.behind.Age(h.pulse.turns.Load(), end.After(at), time.Now()))
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

// do calls a function in the loop between two replies and waits for it. It returns false if the Hub
// has stopped or the context ends first.
func (h *Hub) do(ctx context.Context, f func(*loop)) bool {
	did := make(chan struct{})
	select {
	case h.commands <- func(l *loop) { f(l); close(did) }:
		<-did
		return true
	case <-h.stopped:
		return false
	case <-ctx.Done():
		return false
	}
}

// poke asks the loop to check a session's mailbox.
func (h *Hub) poke(s *Session) {
	h.mu.Lock()
	h.mu.mail = append(h.mu.mail, s)
	h.mu.Unlock()
	wake.Notify(h.poked)
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

// Position returns the position up to which the Hub has considered the log.
func (h *Hub) Position() change.Position {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mu.at
}

// reached advances the Hub. When its position becomes known, it wakes the sessions that wait to
// join.
func (l *loop) reached(to change.Position) {
	l.at = to
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.at.IsZero() && !to.IsZero() {
		for s := range l.mu.sessions {
			wake.Notify(s.stirred)
		}
	}
	l.mu.at = to
}

// proceed advances the Hub when the log has only advanced. drained says that it had nothing more.
func (l *loop) proceed(to change.Position, drained bool) {
	later, differs := to.After(l.at), drained != l.drained
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

// forgetMatched clears the matches of the current event.
func (s *stream) forgetMatched() {
	clear(s.matched)
	clear(s.without)
	s.matched, s.without = s.matched[:0], s.without[:0]
}

// shed removes a session from the live path before the current event, because its budget is
// exhausted. before is the position of the previous event.
func (l *loop) shed(s *stream, before change.Position) {
	at := change.Later(before, s.position()).Clone()
	delete(l.touched, s)
	s.queue(at)
	l.metrics.left.Inc()
	l.leave(s, at)
}

// isAfter reports whether a live session has not yet considered the position.
func (s *stream) isAfter(at change.Position) bool {
	if s.from.IsZero() {
		return true
	}
	if s.from.Has(at) {
		return false
	}
	s.from = change.Position{} // it has reached the hub
	return true
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

// leave removes a session from the live path at a position. Its own loop owns it afterwards.
func (l *loop) leave(s *stream, at change.Position) {
	l.takeOff(s, at)
	s.handOver()
}

// takeOff removes a session from the live path, at a position; the Hub's loop still owns it.
func (l *loop) takeOff(s *stream, at change.Position) {
	delete(l.live, s.Session)
	for _, sub := range s.byKey {
		l.exclude(sub)
	}
	s.loop = nil
	s.from = change.Position{}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.considered, s.mu.follows = at, false
}

// handOver passes a session that is off the live path to its own loop. The caller must not use it
// afterwards.
func (s *stream) handOver() {
	s.mu.Lock()
	s.mu.live = false
	s.mu.Unlock()
	wake.Notify(s.stirred)
}

// Stop closes the sessions with the error and refuses new ones.
func (h *Hub) Stop(cause error) {
	h.mu.Lock()
	if h.mu.closing == nil {
		h.mu.closing = cause
	}
	sessions := slices.Collect(maps.Keys(h.mu.sessions))
	h.mu.Unlock()
	for _, s := range sessions {
		s.Close(cause)
	}
}

// Sessions returns the sessions.
func (h *Hub) Sessions() []*Session {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Collect(maps.Keys(h.mu.sessions))
}

// join adds a session that has considered everything up to at to the live path, unless the Hub is
// later.
func (l *loop) join(s *stream, at change.Position) (joined bool) {
	if l.at.IsZero() || !at.Covers(l.at) {
		return false
	}
	if away, admitted := l.costs.Admits(s.account, time.Now(), s.evaluates); !admitted {
		s.expense.LeftLive(away)
		return false
	}
	l.live[s.Session], s.loop = s, l
	s.from = change.Position{}
	if !l.at.Covers(at) {
		s.from = at
	}
	s.mu.Lock()
	s.mu.live, s.mu.follows, s.mu.considered = true, true, at
	s.mu.Unlock()
	reading := false
	for _, sub := range s.byKey {
		reading = reading || len(sub.readers) > 0
		l.include(sub)
	}
	l.poke(s.Session) // the loop now handles its mail
	l.metrics.joined.Inc()
	if reading {
		l.resume(s.Session)
	}
	return true
}

// include and exclude maintain the index.
func (l *loop) include(sub *Subscription) {
	l.subscriptions[sub.key] = sub
	l.index.Add(sub.key, sub.Program)
	if sub.known != nil {
		l.leavers.add(sub)
	}
	l.advance(sub)
}

func (l *loop) exclude(sub *Subscription) {
	l.index.Remove(sub.key)
	if sub.known != nil {
		l.leavers.remove(sub)
	}
	delete(l.subscriptions, sub.key)
}

// fail reports an error of a subscription to its session.
func (h *Hub) fail(sub *Subscription, err error) {
	h.metrics.failed.Inc()
	sub.failed.Add(err)
}

// Events returns the number of events by partition since the start.
func (h *Hub) Events() []uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]uint64(nil), h.mu.events...)
}
