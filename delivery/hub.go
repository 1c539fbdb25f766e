package delivery

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/time/rate"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gap"
	"github.com/mongostream/streamer/health"
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
	// bytes of memory; see budget. 0 means no bound.
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

// A Hub serves the log to sessions.
type Hub struct {
	cfg     Config
	log     *oplog.Log
	logger  *slog.Logger
	metrics metrics
	budget  *budget

	commands chan func()   // for the loop
	poked    chan struct{} // holds one signal: a live session has mail
	acked    chan struct{} // holds one signal: a session has acknowledged everything
	stopped  chan struct{} // closed when Run has returned
	tenants  *tenants
	kinds    kinds
	lastKey  atomic.Uint64 // of subscriptions
	turns    atomic.Uint64 // of the loop
	loops    sync.WaitGroup
	turning  *health.Loop
	behind   health.Progress // of the caller of Age

	// The following fields belong to the loop.
	at            change.Position // everything up to here has been considered on the live path; zero while unknown
	drained       bool            // the log had nothing more there, so that no event of its time follows
	index         *match.Index    // subscriptions of the live sessions
	subscriptions map[match.ID]*Subscription
	live          map[*Session]struct{}
	events        []uint64 // by partition, since the start
	writer        Writer
	found         []match.ID
	leavers       leavers                     // of the live sessions
	getting       []*Session                  // sessions that receive the current event, for the subscriptions in Session.matched
	touched       map[*Session]struct{}       // by the current reply
	bound         bool                        // a loss has the position of the current event: a session that has got it cannot leave before it
	pending       int                         // bytes in open batches of the current reply, which the budget does not count yet
	start         func(func(context.Context)) // runs a function concurrently with the loop; its context ends with Run
	scans         []*scan
	listings      []listing // that wait for the Hub to reach their time
	early         bool      // a reader waits because its session is later than the Hub
	reads         *reads
	rooms         *rooms

	// What filters cost, also for the loop.
	now      time.Time // when the current reply came
	reply    uint64    // its number
	allowed  int       // the cost that an identity may spend in it
	spent    int       // by all of them in it
	level    level     // spent before it
	spenders []*tenant // in it
	asked    *Subscription
	granted  int        // for the evaluation of asked
	leaving  []*Session // before the current event
	sent     level      // what all deliveries have cost
	senders  []*tenant  // in the current reply

	mu struct {
		sync.Mutex
		at       change.Position
		sessions map[*Session]struct{}
		mail     []*Session
		events   []uint64
		closing  error                         // why new sessions are refused
		restart  context.CancelFunc            // ends the loop that runs
		fetches  map[*fetch]context.CancelFunc // what ends the reading of each page
		losses   []rememberedLoss              // recent ones, oldest first
	}
}

// New returns a Hub of a log.
func New(cfg Config, log *oplog.Log) *Hub {
	cfg.CreditEvents = cmp.Or(cfg.CreditEvents, 65536)
	cfg.CreditBytes = cmp.Or(cfg.CreditBytes, 16<<20)
	cfg.Bookmark = cmp.Or(cfg.Bookmark, 15*time.Second)
	cfg.SnapshotPage = cmp.Or(cfg.SnapshotPage, 512)
	h := &Hub{
		cfg: cfg, log: log, logger: cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler)), budget: newBudget(cfg.QueueBytes),
		commands: make(chan func()), poked: make(chan struct{}, 1), acked: make(chan struct{}, 1),
		stopped: make(chan struct{}), reads: newReads(cfg.SnapshotRate), rooms: newRooms(), tenants: newTenants(), turning: health.NewLoop(),
		index: &match.Index{}, subscriptions: make(map[match.ID]*Subscription), leavers: make(leavers), live: make(map[*Session]struct{}),
		events: make([]uint64, cfg.Partitions), touched: make(map[*Session]struct{}),
	}
	h.mu.sessions, h.mu.fetches = make(map[*Session]struct{}), make(map[*fetch]context.CancelFunc)
	h.mu.events = make([]uint64, cfg.Partitions)
	h.metrics = newMetrics(cfg.Registerer, h)
	return h
}

// Run serves the sessions until the context ends, and then closes them.
func (h *Hub) Run(ctx context.Context) error {
	defer h.loops.Wait()
	defer close(h.stopped)
	defer h.Stop(fault.Newf(fault.NodeStopping, "node is stopping"))
	running, cancel := context.WithCancel(ctx)
	defer cancel()
	h.start = func(f func(context.Context)) { h.loops.Go(func() { f(running) }) }
	defer h.turning.Rest()
	for {
		turning, end := context.WithCancel(ctx)
		h.mu.Lock()
		h.mu.restart = end
		h.mu.Unlock()
		err := h.run(turning)
		again := turning.Err() != nil && ctx.Err() == nil
		end()
		if !again {
			return err
		}
		h.logger.Warn("hub restarted: its sessions continue where they are")
		h.part()
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
	return max(h.turning.Age(), h.behind.Age(h.turns.Load(), end.After(at), time.Now()))
}

// part takes all sessions off the live path at their places, and tells page readers to consider the
// span from here to the log's end.
func (h *Hub) part() {
	for s := range h.live {
		h.leave(s, change.Later(h.at, s.from))
	}
	for _, c := range h.scans {
		c.spoil()
	}
	h.drained = false
	h.placeAll()
}

// run serves the live sessions until the context ends, or the log.
func (h *Hub) run(ctx context.Context) error {
	cursor := h.log.Cursor(oplog.Start{Live: true})
	defer func() { cursor.Close() }()
	bookmark := h.newBookmark()
	defer bookmark.Stop()
	for {
		h.turning.Work()
		h.turns.Add(1)
		if h.cfg.Stall != nil {
			h.cfg.Stall(ctx)
			if ctx.Err() != nil {
				return nil
			}
		}
		batch, err := cursor.Poll()
		switch {
		case batch != nil:
			h.pass(batch)
			h.handle()
			select { // which must not wait until the log pauses
			case <-h.rooms.signal:
				h.roomy()
			case <-bookmark.C:
				h.bookmark(bookmark)
			default:
			}
			continue
		case err == nil:
		case errors.Is(err, oplog.ErrAhead):
			h.ahead(err)
			cursor.Close()
			cursor = h.log.Cursor(oplog.Start{Live: true})
			continue
		case ctx.Err() != nil, errors.Is(err, context.Canceled):
			return nil // a planned stop, of the hub or of the log
		default:
			return err
		}
		h.proceed(cursor.Position(), cursor.Drained())
		h.turning.Rest()
		select {
		case <-cursor.Signal():
		case f := <-h.commands:
			f()
		case <-h.poked:
			h.handle()
		case <-h.rooms.signal:
			h.roomy()
		case <-bookmark.C:
			h.bookmark(bookmark)
		case <-ctx.Done():
			return nil
		}
	}
}

// do calls a function in the loop between two replies and waits for it. It returns false if the Hub
// has stopped or the context ends first.
func (h *Hub) do(ctx context.Context, f func()) bool {
	did := make(chan struct{})
	select {
	case h.commands <- func() { f(); close(did) }:
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
	notify(h.poked)
}

// handle processes the mailboxes of live sessions and the loop's commands.
func (h *Hub) handle() {
	h.mu.Lock()
	mail := h.mu.mail
	h.mu.mail = nil
	h.mu.Unlock()
	for _, s := range mail {
		s.handle(true)
	}
	for {
		select {
		case f := <-h.commands:
			f()
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
func (h *Hub) reached(to change.Position) {
	h.at = to
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mu.at.IsZero() && !to.IsZero() {
		for s := range h.mu.sessions {
			notify(s.stirred)
		}
	}
	h.mu.at = to
}

// proceed advances the Hub when the log has only advanced. drained says that it had nothing more.
func (h *Hub) proceed(to change.Position, drained bool) {
	later, ended := to.After(h.at), drained && !h.drained
	h.drained = drained
	if later {
		h.reached(to)
	}
	if later || ended {
		h.placeAll()
	}
}

// pass delivers one batch of the log to the live sessions.
func (h *Hub) pass(batch *oplog.Batch) {
	if loss := batch.Loss(); loss != nil {
		h.lost(loss, batch)
	}
	h.opens(batch.Len())
	h.drained = false
	before := h.at
	for i := range batch.Len() {
		p, keyed := batch.Partition(i)
		e := batch.Event(i)
		h.bound = i == 0 && batch.Loss() != nil && !e.Position().After(batch.Loss().To)
		h.event(e, p, keyed, before)
		before = change.Later(before, e.Position())
		if h.spent > 0 && h.level.units+float64(h.spent) > liveUnits {
			h.relieve(before)
		}
	}
	h.closes()
	h.pending, h.bound = 0, false
	end := batch.End()
	for s := range h.touched {
		s.queue(change.Later(end, s.from))
		if !s.credit() {
			h.metrics.left.Inc()
			h.leave(s, change.Later(end, s.from))
		}
	}
	clear(h.touched)
	h.reached(end)
	h.disperse(end)
	h.placeAll()
	if batch.Len() > 0 {
		h.mu.Lock()
		copy(h.mu.events, h.events)
		h.mu.Unlock()
	}
}

// event matches one event and delivers it to its sessions. before is the position of the previous
// one: sessions whose filters cost too much leave the live path there, and consider the event
// themselves.
func (h *Hub) event(e *change.Event, p change.Partition, keyed bool, before change.Position) {
	if keyed {
		h.events[p]++
	}
	for _, c := range h.scans {
		c.note(e)
	}
	h.found = h.index.Match(e, h.found[:0], h)
	if len(h.leaving) > 0 {
		for _, s := range h.leaving {
			h.evict(s, before)
		}
		clear(h.leaving)
		h.leaving = h.leaving[:0]
	}
	if len(h.found) == 0 && len(h.leavers) == 0 {
		return
	}
	h.writer.Next(e)
	position := e.Position()
	for _, id := range h.found {
		sub := h.subscriptions[id]
		if sub == nil {
			continue // it has just left
		}
		s := sub.session
		if len(s.matched) == 0 {
			if !s.has(p, keyed) || !s.isAfter(position) {
				continue
			}
			h.getting = append(h.getting, s)
		}
		sub.hit = true
		s.matched = append(s.matched, sub)
	}
	for sub := range h.leavers.of(e) {
		s := sub.session
		if sub.hit || !s.has(p, keyed) || !s.isAfter(position) {
			continue
		}
		left, units := sub.left(e)
		if h.spend(s, units); !left {
			continue
		}
		if len(s.matched) == 0 && len(s.leaving) == 0 {
			h.getting = append(h.getting, s)
		}
		s.leaving = append(s.leaving, sub)
	}
	for _, s := range h.getting {
		for _, sub := range s.matched {
			sub.hit = false
		}
	}
	if len(h.getting) == 0 {
		return
	}
	ref := position.Ref()
	for _, s := range h.getting {
		opened := s.opened()
		switch {
		case s.tenant != nil && len(s.matched) > 1 && !h.affordsForms(s, e):
			s.forgetMatched() // before it belongs to its own loop
			h.evict(s, before)
		case h.budget.tight(h.pending) && !h.bound && !s.affords():
			s.forgetMatched()
			h.shed(s, before)
		default:
			h.writer.cost, h.writer.copied = 0, 0
			s.event(e, ref, p, keyed, s.matched, &h.writer)
			s.leave(e, ref, p, s.leaving, &h.writer)
			s.closeUnit(position)
			h.spend(s, h.writer.cost)
			h.sends(s, h.writer.copied)
			h.pending += s.opened() - opened
			h.touched[s] = struct{}{}
			s.forgetMatched()
		}
	}
	clear(h.getting)
	h.getting = h.getting[:0]
}

// forgetMatched clears the matches of the current event. Called by the owner.
func (s *Session) forgetMatched() {
	clear(s.matched)
	clear(s.leaving)
	s.matched, s.leaving = s.matched[:0], s.leaving[:0]
}

// shed removes a session from the live path before the current event, because its budget is
// exhausted. before is the position of the previous event.
func (h *Hub) shed(s *Session, before change.Position) {
	at := change.Later(before, s.position()).Clone()
	delete(h.touched, s)
	s.queue(at)
	h.metrics.left.Inc()
	h.leave(s, at)
}

// isAfter reports whether a live session has not yet considered the position.
func (s *Session) isAfter(at change.Position) bool {
	if s.from.IsZero() {
		return true
	}
	if s.from.Has(at) {
		return false
	}
	s.from = change.Position{} // it has reached the hub
	return true
}

// lost reports a loss to the live sessions.
func (h *Hub) lost(loss *oplog.Loss, batch *oplog.Batch) {
	at := loss.To
	if loss.From.Compare(loss.To) == 0 && batch.Len() > 0 {
		at = batch.Event(0).Position() // it has the position of the event
	}
	if loss.Reason != gap.Renamed { // a rename is also an event
		for _, c := range h.scans {
			c.spoil()
		}
	}
	for s := range h.live {
		if (s.from.IsZero() || !s.from.Has(at)) && s.tell(loss) {
			h.touched[s] = struct{}{}
		}
	}
}

// tell queues a loss of the log if it concerns the session, or ends the session with Config.Halt.
// It returns false if nothing was queued. Called by the owner.
func (s *Session) tell(loss *oplog.Loss) bool { return s.tellAt(loss, loss.To) }

// tellAt is tell, with the place of the session after the loss.
func (s *Session) tellAt(loss *oplog.Loss, to change.Position) bool {
	namespaces, some := s.readable(loss.Namespaces)
	switch {
	case !some, !s.concerned(loss):
		return false
	case s.cfg.Earliest && loss.Reason == gap.HistoryLost && !loss.From.After(s.cfg.Start.From()):
		return false // it asked for the beginning of the log
	case s.hub.cfg.Halt && loss.Reason != gap.Poison && loss.Reason != gap.Renamed:
		s.Close(fault.Newf(fault.LogHistoryLost, "changes from %s to %s may have been lost (%s)", loss.From, loss.To, loss.Reason))
		s.loss(lossOf(loss), to) // never received, so no checkpoint passes it
		return false
	}
	for _, sub := range s.byKey {
		sub.losses++
		sub.forgetAhead()
	}
	told := lossOf(loss)
	told.Namespaces = namespaces
	if loss.Reason == gap.Renamed {
		s.replaced(loss.Namespaces[0])
	}
	if attached := s.attached.Load(); attached != nil && len(*attached) == 0 && !s.cfg.Owner {
		// The session misses nothing, but partitions attached to it do; they begin before the loss
		// then, or have had it.
		s.hub.remember(loss, s.loser(loss))
		return false
	}
	s.compensate(loss, s.promise) // before the subscriber hears of it: it may resume after the loss
	s.loss(told, to)
	if loss.Reason == gap.Unread {
		s.compensate(loss, s.beginSnapshot) // it concerns no other session
		return true
	}
	s.recover(loss)
	return true
}

// recover begins the snapshots that compensate for a loss.
func (s *Session) recover(loss *oplog.Loss) {
	s.hub.remember(loss, s.loser(loss))
	s.compensate(loss, s.beginSnapshot)
}

// loser returns whose loss it is: "" for everybody's, else the subscriber or, without a name, its
// identity.
func (s *Session) loser(loss *oplog.Loss) string {
	if loss.Tail {
		return ""
	}
	return cmp.Or(s.cfg.Subscriber, "\x00"+s.cfg.Account)
}

const (
	// maxLosses bounds everybody's losses that are remembered for partitions that move, maxLost
	// those of each subscriber alone, maxLosers all of these; lossAge is for how long.
	maxLosses = 64
	maxLosers = 1024
	lossAge   = 10 * time.Minute
)

// A rememberedLoss is a loss of late. The loser is that of Session.loser.
type rememberedLoss struct {
	*oplog.Loss

	loser string
}

// Remember keeps a loss of late that this node has not met itself, for partitions that come from a
// session with another node: of a subscriber alone, or everybody's if the name is empty.
func (h *Hub) Remember(loss oplog.Loss, subscriber string) { h.remember(&loss, subscriber) }

// remember keeps a loss for partitions that come from a session with another node. Those of one
// subscriber push out none of others.
func (h *Hub) remember(loss *oplog.Loss, loser string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	its, others := 0, 0
	for _, l := range h.mu.losses {
		switch {
		case l.loser == loser && l.To.Compare(loss.To) == 0 && l.Reason == loss.Reason && slices.Equal(l.Namespaces, loss.Namespaces):
			return
		case l.loser == loser:
			its++
		case l.loser != "":
			others++
		}
	}
	h.mu.losses = append(h.mu.losses, rememberedLoss{loss, loser})
	oldest := func(is func(rememberedLoss) bool) {
		i := slices.IndexFunc(h.mu.losses, is)
		h.mu.losses = slices.Delete(h.mu.losses, i, i+1)
	}
	switch {
	case loser == "" && its >= maxLosses, loser != "" && its >= maxLost:
		oldest(func(l rememberedLoss) bool { return l.loser == loser })
	case loser != "" && its+others >= maxLosers:
		oldest(func(l rememberedLoss) bool { return l.loser != "" })
	}
}

// owes begins the snapshots that compensate for recent losses before the places of attached
// partitions: another node may have begun them, and its progress is unknown. Documents that were
// read before do not count for these partitions. Called by the owner.
func (s *Session) owes(places map[change.Partition]Place) {
	s.hub.mu.Lock()
	losses := slices.Clone(s.hub.mu.losses)
	s.hub.mu.Unlock()
	for _, loss := range losses {
		if loss.loser != "" && loss.loser != s.loser(loss.Loss) {
			continue
		}
		past := false
		for _, place := range places {
			past = past || !loss.To.After(place.From())
		}
		if past && time.Since(loss.Found) < lossAge && s.concerned(loss.Loss) {
			s.compensate(loss.Loss, s.acceptMore)
		}
	}
}

// compensate begins the snapshots that compensate for a loss, as begin does.
func (s *Session) compensate(loss *oplog.Loss, begin func(*Subscription, snapshot.Reason, []change.Namespace)) {
	for _, sub := range s.byKey {
		f, some, all := sub.Program.Filter(), []change.Namespace(nil), len(loss.Namespaces) == 0
		add := func(ns change.Namespace) {
			if (f.DB == "" || f.DB == ns.DB) && (f.Coll == "" || f.Coll == ns.Coll) && !slices.Contains(some, ns) {
				some = append(some, ns)
			}
		}
		for _, name := range loss.Namespaces {
			switch db, coll, _ := strings.Cut(name, "."); {
			case coll == "*":
				all = all || f.DB == "" || f.DB == db
			case sub.Recover:
				add(change.Namespace{DB: db, Coll: coll})
			}
		}
		for _, ns := range s.hub.cfg.Recover {
			if !sub.Recover && (len(loss.Namespaces) == 0 || slices.Contains(loss.Namespaces, ns.String()) || slices.Contains(loss.Namespaces, ns.DB+".*")) {
				add(ns)
			}
		}
		switch {
		case sub.Recover && all:
			begin(sub, snapshot.Loss, nil)
		case len(some) > 0:
			begin(sub, snapshot.Loss, some)
		}
	}
}

// concerned reports whether a loss may concern one of the session's subscriptions. Called by the
// owner.
func (s *Session) concerned(loss *oplog.Loss) bool {
	switch {
	case loss.Reason != gap.Renamed && loss.Reason != gap.Unread, len(loss.Namespaces) == 0:
		return true
	case loss.Reason == gap.Unread && len(s.byKey) == 0: // they come later
		return true
	}
	for _, ns := range loss.Namespaces {
		db, coll, _ := strings.Cut(ns, ".")
		for _, sub := range s.byKey {
			f := sub.Program.Filter()
			if (f.DB == "" || f.DB == db) && (f.Coll == "" || f.Coll == coll || coll == "*") {
				return true
			}
		}
	}
	return false
}

// ahead ends the live sessions, because they have read a log that no longer exists.
func (h *Hub) ahead(err error) {
	for s := range h.live {
		s.Close(fault.New(fault.LogAhead, err))
	}
	h.reached(change.Position{})
	for _, c := range h.scans {
		c.spoil()
	}
	h.placeAll()
}

// leave removes a session from the live path at a position. Its own loop owns it afterwards.
func (h *Hub) leave(s *Session, at change.Position) {
	h.takeOff(s, at)
	s.handOver()
}

// takeOff removes a session from the live path, at a position; the Hub's loop still owns it.
func (h *Hub) takeOff(s *Session, at change.Position) {
	delete(h.live, s)
	for _, sub := range s.byKey {
		h.exclude(sub)
	}
	s.from = change.Position{}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.considered, s.mu.follows = at, false
}

// handOver passes a session that is off the live path to its own loop. The caller must not use it
// afterwards.
func (s *Session) handOver() {
	s.mu.Lock()
	s.mu.live = false
	s.mu.Unlock()
	notify(s.stirred)
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
func (h *Hub) join(s *Session, at change.Position) (joined bool) {
	if h.at.IsZero() || !at.Covers(h.at) {
		return false
	}
	if t := s.tenant; t != nil && time.Now().Before(t.away) && (t.everything || s.evaluates()) {
		s.expense.away = t.away
		return false
	}
	h.live[s] = struct{}{}
	s.from = change.Position{}
	if !h.at.Covers(at) {
		s.from = at
	}
	s.mu.Lock()
	s.mu.live, s.mu.follows, s.mu.considered = true, true, at
	s.mu.Unlock()
	reading := false
	for _, sub := range s.byKey {
		reading = reading || len(sub.readers) > 0
		h.include(sub)
	}
	h.poke(s) // the loop now handles its mail
	h.metrics.joined.Inc()
	if reading {
		h.resume(s)
	}
	return true
}

// include and exclude maintain the index.
func (h *Hub) include(sub *Subscription) {
	h.subscriptions[sub.key] = sub
	h.index.Add(sub.key, sub.Program)
	if sub.sent != nil {
		h.leavers.add(sub)
	}
	h.advance(sub)
}

func (h *Hub) exclude(sub *Subscription) {
	h.index.Remove(sub.key)
	if sub.sent != nil {
		h.leavers.remove(sub)
	}
	delete(h.subscriptions, sub.key)
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
