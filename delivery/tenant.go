package delivery

import (
	"context"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/match"
)

// What filters may cost, in units of match.MaxCost. A second of a core is about unitsPerSecond of
// them.
const (
	unitsPerSecond = 100_000_000

	// The cost that an identity may spend on the live path in one reply of MongoDB: a base, and an
	// amount for each of its events. Sessions that need more leave the live path before the event
	// for which they need it.
	replyUnits      = unitsPerSecond / 500
	replyEventUnits = unitsPerSecond / 50_000
	// costlyUnits is the most that one evaluation may cost on the live path. Off it, what costs
	// more counts towards suspension.
	costlyUnits = unitsPerSecond / 1000
	// liveUnits is what all identities together may spend on the live path within about liveWindow:
	// a quarter of the Hub's loop. Above it, the one that spends most leaves.
	liveUnits  = unitsPerSecond / 10
	liveWindow = 400 * time.Millisecond
	// freeUnits is the cost that a session may spend within about liveWindow off the live path
	// without a slot: a twentieth of a core.
	freeUnits = liveUnits / 5
	// startUnits is the cost of the start and the end of a session.
	startUnits = unitsPerSecond / 1000
	// Under strain a slot rests at most this long, or as long as it was used: after the start of a
	// session, because many start at once when another node has ended; and after the compilation of
	// a filter or a slice of evaluations, whose cost the identity chooses.
	startRest, slotRest = 8 * time.Millisecond, 100 * time.Millisecond
	// sliceUnits is how much is spent before a slot goes to the next identity.
	sliceUnits = unitsPerSecond / 1000
	// pageUnits is the cost that an identity may spend on a page of documents of a snapshot. A
	// session that needs more leaves the live path, and is suspended when it has done so maxPages
	// times: its snapshot would never be complete.
	pageUnits = unitsPerSecond
	maxPages  = 3
	// mostPages is how many pages an identity may ask for at a time.
	mostPages = 100
	// suspendUnits bounds the cost of a session's costly evaluations within about suspendWindow.
	suspendUnits  = 2 * unitsPerSecond
	suspendWindow = time.Minute
	// suspension is for how long a suspended filter is refused.
	suspension = 5 * time.Minute
	// maxSuspended bounds the suspended filters of an identity that are remembered: the first that
	// is over goes.
	maxSuspended = 100
	// A session that left the live path because of its filters stays off it for leastAway, and
	// twice as long each time, up to mostAway.
	leastAway, mostAway = 10 * time.Second, 10 * time.Minute
)

// A level is the recently spent cost: it decays with a window.
type level struct {
	units float64
	at    time.Time
}

// add decays the level, adds to it and returns it.
func (l *level) add(now time.Time, units int, window time.Duration) float64 {
	if past := now.Sub(l.at); past > 0 {
		l.units *= math.Exp(-past.Seconds() / window.Seconds())
		l.at = now
	}
	l.units += float64(units)
	return l.units
}

// A tenant is an identity whose sessions share what their filters may cost.
type tenant struct {
	account string
	slot    chan struct{} // holds one: an identity compiles or evaluates one filter at a time, off the live path
	starts  chan struct{} // holds one: its sessions begin one after the other
	pages   chan struct{} // holds one: it is given one page at a time
	asking  atomic.Int32  // pages that it has asked for

	// The following fields belong to the Hub's loop.
	live  level         // spent on the live path
	reply int           // of it, in the current reply
	away  time.Time     // until when its sessions with costly filters stay off the live path
	hold  time.Duration // how long that is
	sent  level         // what its deliveries have cost
	sends int           // in the current reply
	// everything says that sessions without costly filters stay off it too.
	everything bool

	crowd crowd

	// The following fields are guarded by the mutex of tenants.
	users     int       // sessions, and filters being compiled
	kept      time.Time // until when it is remembered without users
	suspended map[match.Key]time.Time
}

// tenants are the identities that have sessions, or suspended filters.
type tenants struct {
	// slots hold as many as may compile, or evaluate filters and deliver much off the live path, at
	// a time: half of the cores, for which identities wait in line.
	slots    chan struct{}
	starts   chan struct{} // as many beginnings of sessions at a time
	compiler *match.Compiler
	strain   *strain
	several  atomic.Int32 // those that have users

	mu struct {
		sync.Mutex
		of map[string]*tenant
	}
}

// programBytes bounds the programs that are remembered for subscriptions to come.
const programBytes = 32 << 20

func newTenants() *tenants {
	half := max(1, runtime.GOMAXPROCS(0)/2)
	t := &tenants{
		slots: make(chan struct{}, half), starts: make(chan struct{}, half), compiler: match.NewCompiler(programBytes), strain: newStrain(),
	}
	t.mu.of = make(map[string]*tenant)
	return t
}

// enter returns the tenant of an account until the caller calls exit. A nil account is the node's
// own, has no limits, and has no tenant.
func (t *tenants) enter(account string) *tenant {
	if account == "" {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	of := t.mu.of[account]
	if of == nil {
		t.forget(time.Now())
		of = &tenant{
			account: account, slot: make(chan struct{}, 1), starts: make(chan struct{}, 1), pages: make(chan struct{}, 1),
			suspended: make(map[match.Key]time.Time),
		}
		t.mu.of[account] = of
	}
	if of.users++; of.users == 1 {
		t.several.Add(1)
	}
	return of
}

func (t *tenants) exit(of *tenant) {
	if of == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if of.users--; of.users > 0 {
		return
	}
	t.several.Add(-1)
	if len(of.suspended) == 0 && !time.Now().Before(of.kept) {
		delete(t.mu.of, of.account)
	}
}

// contended reports whether there is more than one identity.
func (t *tenants) contended() bool { return t.several.Load() > 1 }

// keep remembers a tenant for a while, so that connecting again evades nothing.
func (t *tenants) keep(of *tenant, until time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	of.kept = until
}

// forget removes the tenants that are not used and whose suspensions are over. The caller holds the
// mutex.
func (t *tenants) forget(now time.Time) {
	for account, of := range t.mu.of {
		for key, until := range of.suspended {
			if now.After(until) {
				delete(of.suspended, key)
			}
		}
		if of.users == 0 && len(of.suspended) == 0 && !now.Before(of.kept) {
			delete(t.mu.of, account)
		}
	}
}

// suspend refuses a filter for a while.
func (t *tenants) suspend(of *tenant, key match.Key, until time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(of.suspended) >= maxSuspended {
		var first match.Key
		for other, end := range of.suspended {
			if ends, ok := of.suspended[first]; !ok || end.Before(ends) {
				first = other
			}
		}
		delete(of.suspended, first)
	}
	of.suspended[key] = until
}

// refusal returns why a filter is refused, nil if it is not.
func (t *tenants) refusal(of *tenant, key match.Key) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if until := of.suspended[key]; time.Now().Before(until) {
		return fault.Newf(fault.SessionFilterCostly, "the filter is suspended until %s", until.UTC().Format(time.RFC3339))
	}
	return nil
}

// acquire waits for the slot of an identity and then for one of the node's. It returns false if the
// session or the context is over first.
func (t *tenants) acquire(of *tenant, over, gone <-chan struct{}) bool {
	return acquire(of.slot, t.slots, over, gone)
}

// acquire waits until an identity's own slot is free, and then one of the node's.
func acquire(own, slots chan struct{}, over, gone <-chan struct{}) bool {
	select {
	case own <- struct{}{}:
	case <-over:
		return false
	case <-gone:
		return false
	}
	select {
	case slots <- struct{}{}:
		return true
	case <-over:
	case <-gone:
	}
	<-own
	return false
}

// release returns both slots after it was used for so long, by its cost. While there are other
// identities, that of the node rests as long, and longer while the node is strained, up to a bound:
// then work off the live path uses at most a quarter of the cores.
func (t *tenants) release(of *tenant, used time.Duration) {
	<-of.slot
	t.rest(t.slots, used, slotRest)
}

// rest returns a slot of the node after its rest.
func (t *tenants) rest(slots chan struct{}, used, longest time.Duration) {
	if !t.contended() {
		<-slots
		return
	}
	strained := time.Duration(float64(used) * t.strain.now(time.Now()))
	time.AfterFunc(max(used, min(strained, longest)), func() { <-slots })
}

// costing returns how long it takes to spend units.
func costing(units int) time.Duration { return time.Duration(units) * time.Second / unitsPerSecond }

// Admit waits until a session of an account may begin, as tenants.start says.
func (h *Hub) Admit(ctx context.Context, account string) error { return h.tenants.start(ctx, account) }

// start waits until a session of an account may begin: while there are several identities, each has
// as many beginnings as every other one, and they take a quarter of the cores at most. It returns
// the context's cause if that ends first.
func (t *tenants) start(ctx context.Context, account string) error {
	of := t.enter(account)
	if of == nil {
		return nil
	}
	defer t.exit(of)
	if !t.contended() {
		return nil
	}
	if !acquire(of.starts, t.starts, nil, ctx.Done()) {
		return context.Cause(ctx)
	}
	<-of.starts
	t.rest(t.starts, costing(startUnits), startRest)
	return nil
}

// An expense is the cost of a session's evaluations. It belongs to the session's owner.
type expense struct {
	reply  uint64    // the Hub's reply in which
	spent  int       // has been spent on the live path
	level  level     // spent off the live path
	costly level     // spent for costly evaluations
	slot   bool      // off the live path it needs a slot
	away   time.Time // until when it stays off the live path
	pages  int       // of snapshots that have cost too much
}

// costs are what identities spend on the live path: on filters and encodings, and on deliveries.
type costs struct {
	now   time.Time // when the current reply came
	reply uint64    // its number

	allowed  int       // the cost that an identity may spend in it
	spent    int       // by all of them in it
	level    level     // spent before it
	spenders []*tenant // in it
	asked    *Subscription
	granted  int       // for the evaluation of asked
	leaving  []*stream // before the current event

	sent    level     // what all deliveries have cost
	senders []*tenant // in the current reply
}

// spend adds the cost of the current reply on the live path.
func (l *loop) spend(s *stream, units int) {
	t := s.tenant
	if t == nil || units == 0 {
		return
	}
	if t.reply == 0 {
		l.costs.spenders = append(l.costs.spenders, t)
	}
	if s.expense.reply != l.costs.reply {
		s.expense.reply, s.expense.spent = l.costs.reply, 0
	}
	t.reply, s.expense.spent, l.costs.spent = t.reply+units, s.expense.spent+units, l.costs.spent+units
}

// Grant implements match.Meter for the live path. A session whose filters may not be evaluated now
// leaves it before the current event.
func (l *loop) Grant(id match.ID) int {
	l.costs.asked = l.subscriptions[id]
	t := l.costs.asked.session.tenant
	if t == nil || l.bound {
		l.costs.granted = match.MaxCost
		return l.costs.granted
	}
	if l.costs.granted = min(l.costs.allowed-t.reply, costlyUnits); l.costs.granted <= 0 {
		l.costs.leaving = append(l.costs.leaving, l.costs.asked.stream)
	}
	return l.costs.granted
}

// Spent implements match.Meter.
func (l *loop) Spent(_ match.ID, units int, err error) {
	s := l.costs.asked.stream
	l.spend(s, units)
	switch {
	case err == nil:
	case l.costs.granted < match.MaxCost && fault.Of(err) == fault.FilterCost:
		l.costs.leaving = append(l.costs.leaving, s)
	default:
		l.fail(l.costs.asked, err)
	}
}

var _ match.Meter = (*loop)(nil)

// affordsForms reports whether a session may have an event encoded in all the forms of its matching
// subscriptions on the live path. One form is always affordable.
func (l *loop) affordsForms(s *stream, e *change.Event) bool {
	if len(s.groups) == 1 || l.bound {
		return true
	}
	forms := 0
	for _, sub := range s.matched {
		if sub.group.ids == nil {
			sub.group.ids = sub.ids
			forms++
		}
	}
	for _, sub := range s.matched {
		sub.group.ids = nil
	}
	return forms == 1 || forms*(1+len(e.Raw())/encodedBytes) <= l.costs.allowed-s.tenant.reply
}

// opens begins a reply of n events.
func (l *loop) opens(events int) {
	l.costs.reply++
	l.costs.now = time.Now()
	l.costs.level.add(l.costs.now, 0, liveWindow)
	l.tenants.strain.now(l.costs.now) // it is looked often enough
	l.costs.allowed = replyUnits + events*replyEventUnits
}

// closes ends a reply and remembers its cost for a while.
func (l *loop) closes() {
	for _, t := range l.costs.spenders {
		t.live.add(l.costs.now, t.reply, liveWindow)
		t.reply = 0
	}
	clear(l.costs.spenders)
	l.costs.spenders = l.costs.spenders[:0]
	l.costs.level.add(l.costs.now, l.costs.spent, liveWindow)
	l.costs.spent = 0
}

// relieve takes sessions off the live path while all of it costs too much: those of the identity
// that spends most. at is the position of the event that they have considered last.
func (l *loop) relieve(at change.Position) {
	for l.costs.level.units+float64(l.costs.spent) > liveUnits {
		var most *tenant
		var units float64
		for _, t := range l.costs.spenders {
			if u := t.live.add(l.costs.now, 0, liveWindow) + float64(t.reply); most == nil || u > units {
				most, units = t, u
			}
		}
		if most == nil {
			return // they have left before
		}
		l.costs.level.units -= most.live.units
		l.costs.spent -= most.reply
		l.costs.spenders = slices.DeleteFunc(l.costs.spenders, func(t *tenant) bool { return t == most })
		mean := most.reply / max(1, l.sessionsOf(most))
		for _, s := range l.live {
			if s.tenant == most && s.expense.reply == l.costs.reply && s.expense.spent > 0 && s.expense.spent >= mean/2 {
				l.evict(s, at)
			}
		}
		most.live.units, most.reply = 0, 0
	}
}

// sessionsOf counts the live sessions of a tenant that have spent anything in the current reply.
func (l *loop) sessionsOf(t *tenant) (n int) {
	for _, s := range l.live {
		if s.tenant == t && s.expense.reply == l.costs.reply && s.expense.spent > 0 {
			n++
		}
	}
	return n
}

// evict takes a session off the live path, because its filters cost too much there. It has
// considered everything up to at, or where it began.
func (l *loop) evict(s *stream, at change.Position) {
	if _, live := l.live[s.Session]; !live {
		return
	}
	l.banish(s.tenant)
	s.expense.away, s.expense.slot = s.tenant.away, true
	s.expense.level = level{units: freeUnits, at: l.costs.now}
	at = change.Later(change.Later(at, s.from), s.position()).Clone()
	s.queue(at)
	delete(l.touched, s)
	l.metrics.costly.Inc()
	l.leave(s, at)
}

// banish keeps an identity off the live path for a while, longer each time.
func (l *loop) banish(t *tenant) {
	if l.costs.now.Before(t.away) {
		return
	}
	if l.costs.now.Sub(t.away) > mostAway {
		t.hold = 0
	}
	t.hold = min(max(leastAway, 2*t.hold), mostAway)
	t.away, t.everything = l.costs.now.Add(t.hold), false
	l.tenants.keep(t, t.away.Add(mostAway))
}

// evaluates reports whether a subscription of the session has more than comparisons that cost
// little.
func (s *stream) evaluates() bool {
	for _, sub := range s.byKey {
		if !sub.Program.IsDecided() {
			return true
		}
	}
	return false
}

// isAway reports whether the session must stay off the live path, because its filters cost too
// much.
func (s *stream) isAway(now time.Time) bool { return s.awayFor(now) > 0 }

// awayFor returns for how long that is, if it spends nothing more.
func (s *stream) awayFor(now time.Time) time.Duration {
	if s.tenant == nil || !s.expense.slot && s.expense.away.IsZero() {
		return 0
	}
	hold := s.expense.away.Sub(now)
	if level := s.expense.level.add(now, 0, liveWindow); level > freeUnits/2 {
		decays := math.Log(level/(freeUnits/2)) * float64(liveWindow)
		return max(hold, time.Duration(decays)+1)
	}
	s.expense.slot = false
	return max(hold, 0)
}

// suspend ends a session because one of its filters keeps costing too much, after a notice. Nothing
// is lost: the session ends where it is. The same filter is refused for a while.
func (h *Hub) suspend(sub *Subscription) {
	s := sub.session
	now := time.Now()
	h.tenants.suspend(s.tenant, sub.Program.Filter().Key(), now.Add(suspension))
	h.metrics.suspended.Inc()
	cause := fault.Newf(fault.SessionFilterCostly, "the filter of subscription %q costs too much: it is suspended for %s", sub.ID, suspension)
	s.mu.Lock()
	s.mu.notices = append(s.mu.notices, Notice{ // however many there are
		Kind: "filter_suspended", Text: cause.Err.Error(), Subscription: sub.ID, Code: cause.Code, At: now,
	})
	s.mu.Unlock()
	h.logger.Warn("filter suspended", "code", cause.Code, "account", s.tenant.account, "subscriber", s.cfg.Subscriber, "subscription", sub.ID)
	s.Close(cause)
}

// Compile compiles a filter for an identity, like match.Compile, for a namespace that
// CheckNamespace accepts; missing is the text of that check. Equal filters share a program. An
// identity compiles one filter at a time, and all of them together use half of the cores at most,
// so Compile may block; it returns the context's cause if that ends first. A filter that was
// recently suspended for the identity is refused with the fault SessionFilterCostly. It looks up
// namespaces that are not among the names.
func (h *Hub) Compile(ctx context.Context, account string, f match.Filter, names Names) (p *match.Program, missing string, err error) {
	if missing, err = h.CheckNamespace(ctx, change.Namespace{DB: f.DB, Coll: f.Coll}, names); err != nil {
		return nil, "", err
	}
	p, err = h.compile(ctx, account, f)
	return p, missing, err
}

func (h *Hub) compile(ctx context.Context, account string, f match.Filter) (*match.Program, error) {
	of := h.tenants.enter(account)
	if of == nil {
		return h.tenants.compiler.Compile(f)
	}
	defer h.tenants.exit(of)
	if err := h.tenants.refusal(of, f.Key()); err != nil {
		return nil, err
	}
	if p, ok := h.tenants.compiler.Known(f); ok {
		return p, nil
	}
	if !h.tenants.acquire(of, nil, ctx.Done()) {
		return nil, context.Cause(ctx)
	}
	begun := time.Now()
	defer func() { h.tenants.release(of, time.Since(begun)) }()
	return h.tenants.compiler.Compile(f)
}
