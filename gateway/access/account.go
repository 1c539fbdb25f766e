package access

import (
	"cmp"
	"context"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/internal/retry"
	"github.com/mongostream/streamer/match"
)

// The burst after an idle time: one second's worth, but at least one full batch.
const (
	minEventBurst = 256
	minByteBurst  = 256 << 10
)

// Refusals of an identity's clients have a burst and then a rate a second. Further refusals are
// delayed, up to holdLongest, and at most maxHeld at a time. This slows down clients that retry at
// once.
const (
	heldPerSecond, heldBurst = 10, 20
	holdLongest              = 2 * time.Second
	maxHeld                  = 200
)

// A Use is the purpose of a connection.
type Use int

// The uses.
const (
	Request Use = iota // of HTTP, answered at once
	Session            // over gRPC
	Events             // an event stream
	Notices            // a stream of notices
	uses
)

// Defaults are the limits for identities without their own: how much each may have open at a time,
// and open per second. 0 means no limit. They do not apply to the anonymous identity, which all
// clients share.
type Defaults struct{ Sessions, Events, Notices, Connections, StartsPerSecond int }

// Accounts hold the state that the connections of each identity share.
type Accounts struct {
	// MaxFilterBytes bounds the memory of the filters of an identity, and of the texts that its
	// clients have chosen, as estimated. Defaults to 64 MiB. Set it before Open.
	MaxFilterBytes int
	defaults       Defaults

	mu struct {
		sync.Mutex
		open map[string]*account // by the identity's key; bounded by the connections
		// resting are unused accounts that have not recovered their full burst, so that
		// reconnecting does not evade a limit.
		resting map[string]*account
	}
}

// NewAccounts returns the accounts of a node, which gRPC and SSE share.
func NewAccounts(d Defaults) *Accounts {
	a := &Accounts{defaults: d}
	a.mu.open, a.mu.resting = map[string]*account{}, map[string]*account{}
	return a
}

// An account is shared by the connections of one identity.
type account struct {
	key  string
	pace struct {
		sync.Mutex            // a single request must fit the burst, which may change
		events, bytes, starts *rate.Limiter
		refusals              *rate.Limiter
	}

	// Under the lock of Accounts:
	quota         quota
	shares        int
	open          [uses]int
	connections   map[string]int // shares by remote address; those without one are not counted
	subscriptions int
	programs      map[*match.Program]int // how often they are used
	filterBytes   int                    // of programs, and of texts
	held          int                    // refusals that wait
}

// A quota bounds how much an identity may have open; 0 means no limit.
type quota struct {
	each                                 [uses]int
	sessions, connections, subscriptions int // sessions over gRPC and SSE together
	starts                               int // per second
}

// quotaOf returns the quota of an identity. A limit of its own replaces the defaults.
func (a *Accounts) quotaOf(i *Identity) quota {
	d := a.defaults
	if i.key == anonymousKey {
		d = Defaults{}
	}
	q := quota{
		sessions: i.MaxSessions, connections: cmp.Or(i.MaxConnections, d.Connections), subscriptions: i.MaxSubscriptions,
		starts: cmp.Or(i.StartsPerSecond, d.StartsPerSecond),
	}
	q.each[Notices] = cmp.Or(i.MaxNotices, d.Notices)
	if q.sessions == 0 {
		q.each[Session], q.each[Events] = d.Sessions, d.Events
	}
	return q
}

// refuse returns why an account may not have one more use of a connection, or nil. The caller holds
// the lock of Accounts.
func (a *account) refuse(name string, use Use, address string) error {
	sessions := a.open[Session] + a.open[Events]
	exceeded := func(limit, used int, what string) error {
		if limit == 0 || used < limit {
			return nil
		}
		return fault.Newf(fault.AccessLimit, "%q has %d %s and may have no more", name, used, what)
	}
	if use == Session || use == Events {
		if err := exceeded(a.quota.sessions, sessions, "sessions and event streams"); err != nil {
			return err
		}
	}
	if err := exceeded(a.quota.each[use], a.open[use], [uses]string{"requests", "sessions", "event streams", "streams of notices"}[use]); err != nil {
		return err
	}
	if _, there := a.connections[address]; !there {
		if err := exceeded(a.quota.connections, len(a.connections), "connections"); err != nil {
			return err
		}
	}
	a.pace.Lock()
	defer a.pace.Unlock()
	if !a.pace.starts.Allow() {
		return fault.Newf(fault.AccessLimit, "%q starts more than %d sessions and requests per second", name, a.quota.starts)
	}
	return nil
}

// An Account is one connection's share of the account of its identity. Its methods are safe for
// concurrent use.
type Account struct {
	of      *Accounts
	shared  *account
	name    string
	use     Use
	address string
	claimed int // subscriptions of this connection, guarded by Accounts
	closed  bool
	// programs are those of this connection, and texts the bytes of its texts: held beside those of
	// subscriptions. Guarded by Accounts.
	programs    map[*match.Program]int
	texts, held int
}

// Open returns a share for a use of the connection from a remote address, or the fault AccessLimit
// if the identity has reached its limit or starts too many per second. The limits of i replace
// those of earlier connections of the identity.
func (a *Accounts) Open(i *Identity, use Use, address string) (*Account, error) {
	if i == nil {
		return nil, fault.Newf(fault.AccessForbidden, "the peer is not authenticated")
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.forget()
	shared := a.shared(i)
	shared.quota = a.quotaOf(i)
	shared.limit(i)
	if err := shared.refuse(i.Name, use, address); err != nil {
		return nil, err
	}
	a.mu.open[shared.key] = shared
	delete(a.mu.resting, shared.key)
	shared.shares++
	shared.open[use]++
	if address != "" {
		shared.connections[address]++
	}
	return &Account{of: a, shared: shared, name: i.Name, use: use, address: address, programs: make(map[*match.Program]int)}, nil
}

// shared returns the account of an identity, a new one if there is none. The caller holds the lock.
func (a *Accounts) shared(i *Identity) *account {
	key := cmp.Or(i.key, "named:"+i.Name)
	if known := cmp.Or(a.mu.open[key], a.mu.resting[key]); known != nil {
		return known
	}
	shared := &account{key: key, connections: map[string]int{}, programs: make(map[*match.Program]int)}
	shared.pace.events, shared.pace.bytes, shared.pace.starts = unlimited(), unlimited(), unlimited()
	shared.pace.refusals = rate.NewLimiter(heldPerSecond, heldBurst)
	return shared
}

// Refused delays a refusal of a client if clients of its identity have had many recently. It
// returns early when the context ends. It does not delay the anonymous identity, which all clients
// share.
func (a *Accounts) Refused(ctx context.Context, i *Identity) {
	if i == nil || i.key == anonymousKey {
		return
	}
	a.mu.Lock()
	shared := a.shared(i)
	if a.mu.open[shared.key] == nil {
		a.mu.resting[shared.key] = shared // refusals count although nothing is open
	}
	if shared.held >= maxHeld {
		a.mu.Unlock()
		return
	}
	shared.held++
	a.mu.Unlock()
	_ = retry.Sleep(ctx, shared.hold(time.Now())) // the client may have gone
	a.mu.Lock()
	shared.held--
	a.mu.Unlock()
}

// hold returns how long a refusal waits.
func (a *account) hold(now time.Time) time.Duration {
	a.pace.Lock()
	defer a.pace.Unlock()
	turn := a.pace.refusals.ReserveN(now, 1)
	wait := turn.DelayFrom(now)
	if wait > holdLongest {
		turn.CancelAt(now)
	}
	return min(wait, holdLongest)
}

// Key identifies the identity: its connections have equal keys.
func (a *Account) Key() string { return a.shared.key }

// Subscribe claims n more subscriptions, or none where they would be too many.
func (a *Account) Subscribe(n int) error {
	a.of.mu.Lock()
	defer a.of.mu.Unlock()
	most := a.shared.quota.subscriptions
	if most > 0 && n > most-a.shared.subscriptions {
		return fault.Newf(fault.AccessLimit, "%q has %d subscriptions and may have %d, not %d more", a.name, a.shared.subscriptions, most, n)
	}
	a.claimed += n
	a.shared.subscriptions += n
	return nil
}

// Unsubscribe gives n subscriptions of this connection back.
func (a *Account) Unsubscribe(n int) {
	a.of.mu.Lock()
	defer a.of.mu.Unlock()
	n = min(n, a.claimed)
	a.claimed -= n
	a.shared.subscriptions -= n
}

// Keep counts the memory of a program and of the texts of a subscription until Drop or Close, or
// refuses them. A program that the identity uses several times counts once.
func (a *Account) Keep(p *match.Program, texts int) error {
	a.of.mu.Lock()
	defer a.of.mu.Unlock()
	more := texts
	if a.shared.programs[p] == 0 {
		more += p.Size()
	}
	if err := a.charge(more); err != nil {
		return err
	}
	a.texts += texts
	a.shared.programs[p]++
	a.programs[p]++
	return nil
}

// Hold sets the memory of the texts that the connection keeps beside its subscriptions, or refuses
// it.
func (a *Account) Hold(texts int) error {
	a.of.mu.Lock()
	defer a.of.mu.Unlock()
	if err := a.charge(texts - a.held); err != nil {
		return err
	}
	a.held = texts
	return nil
}

// charge counts more memory, or refuses it. The caller holds the lock.
func (a *Account) charge(more int) error {
	most := cmp.Or(a.of.MaxFilterBytes, 64<<20)
	if more > 0 && more > most-a.shared.filterBytes {
		return fault.Newf(fault.AccessLimit, "the filters and names of %q take %d KiB and may take %d, not %d more", a.name, a.shared.filterBytes>>10, most>>10, more>>10+1)
	}
	a.shared.filterBytes += more
	return nil
}

// Drop ends one use of a program by this connection, and of the texts of its subscription.
func (a *Account) Drop(p *match.Program, texts int) {
	a.of.mu.Lock()
	defer a.of.mu.Unlock()
	if a.programs[p] > 0 {
		a.drop(p, 1)
		a.texts -= texts
		a.shared.filterBytes -= texts
	}
}

// drop ends uses of a program. The caller holds the lock.
func (a *Account) drop(p *match.Program, uses int) {
	if a.programs[p] -= uses; a.programs[p] == 0 {
		delete(a.programs, p)
	}
	if a.shared.programs[p] -= uses; a.shared.programs[p] == 0 {
		delete(a.shared.programs, p)
		a.shared.filterBytes -= p.Size()
	}
}

// Close gives everything back. Closing twice does nothing.
func (a *Account) Close() {
	a.of.mu.Lock()
	defer a.of.mu.Unlock()
	if a.closed {
		return
	}
	a.closed = true
	a.shared.subscriptions -= a.claimed
	a.claimed = 0
	for p, uses := range a.programs {
		a.drop(p, uses)
	}
	a.shared.filterBytes -= a.texts + a.held
	a.shared.open[a.use]--
	if a.shared.connections[a.address]--; a.shared.connections[a.address] <= 0 {
		delete(a.shared.connections, a.address)
	}
	if a.shared.shares--; a.shared.shares == 0 {
		delete(a.of.mu.open, a.shared.key)
		a.of.mu.resting[a.shared.key] = a.shared
		a.of.forget()
	}
}

// forget removes unused accounts that have recovered their full burst. The caller holds the lock.
func (a *Accounts) forget() {
	for key, shared := range a.mu.resting {
		if shared.rested() {
			delete(a.mu.resting, key)
		}
	}
}

// rested reports whether the account has its full burst.
func (a *account) rested() bool {
	a.pace.Lock()
	defer a.pace.Unlock()
	for _, l := range []*rate.Limiter{a.pace.events, a.pace.bytes, a.pace.starts, a.pace.refusals} {
		if l.Limit() != rate.Inf && l.Tokens() < float64(l.Burst()) {
			return false
		}
	}
	return true
}

// Reserve records events and bytes as sent and returns how long to wait before sending them. More
// than a burst waits longer; nothing is refused.
func (a *Account) Reserve(events, bytes int) time.Duration {
	pace := &a.shared.pace
	pace.Lock()
	defer pace.Unlock()
	now := time.Now()
	return max(reserve(pace.events, events, now), reserve(pace.bytes, bytes, now))
}

// Wait reserves and waits. It returns ctx's cause if ctx ends first.
func (a *Account) Wait(ctx context.Context, events, bytes int) error {
	return retry.Sleep(ctx, a.Reserve(events, bytes))
}

// limit sets the rates. The tokens of the old limiters are kept, up to the new burst. All sessions
// may start at once, as after a restart.
func (a *account) limit(i *Identity) {
	a.pace.Lock()
	defer a.pace.Unlock()
	a.pace.events = limited(a.pace.events, i.EventsPerSecond, minEventBurst)
	a.pace.bytes = limited(a.pace.bytes, i.BytesPerSecond, minByteBurst)
	a.pace.starts = limited(a.pace.starts, a.quota.starts, a.quota.sessions+a.quota.each[Session]+a.quota.each[Events])
}

func unlimited() *rate.Limiter { return rate.NewLimiter(rate.Inf, 0) }

// limited returns a limiter with a new limit. A limiter without a limit is replaced by one with a
// full burst.
func limited(l *rate.Limiter, perSecond, least int) *rate.Limiter {
	limit := rate.Limit(perSecond)
	burst := max(perSecond, least)
	switch {
	case perSecond == 0:
		return unlimited()
	case l.Limit() == rate.Inf:
		return rate.NewLimiter(limit, burst)
	case l.Limit() != limit || l.Burst() != burst:
		l.SetLimit(limit)
		l.SetBurst(burst)
	}
	return l
}

// reserve takes n tokens in pieces that fit the burst; the last piece waits the longest. n is
// bounded by the size of a batch.
func reserve(l *rate.Limiter, n int, now time.Time) (wait time.Duration) {
	if l.Limit() == rate.Inf {
		return 0
	}
	for n > 0 {
		piece := min(n, l.Burst())
		wait = l.ReserveN(now, piece).DelayFrom(now)
		n -= piece
	}
	return wait
}
