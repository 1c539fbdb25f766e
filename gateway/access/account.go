package access

import (
	"cmp"
	"context"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/internal/retry"
)

// What may be sent at once after a rest: a second's worth, at least one full batch.
const (
	minEventBurst = 256
	minByteBurst  = 256 << 10
)

// Accounts are what the connections of each identity use together.
type Accounts struct {
	mu struct {
		sync.Mutex
		open map[string]*account // by the identity's key; bounded by the connections
		// resting are those that nobody uses but that have not paid for what they were sent: reconnecting is no way around a limit.
		resting map[string]*account
	}
}

// NewAccounts makes accounts, one set for a node: gRPC and SSE share it.
func NewAccounts() *Accounts {
	a := &Accounts{}
	a.mu.open, a.mu.resting = map[string]*account{}, map[string]*account{}
	return a
}

// An account is what the connections of one identity share.
type account struct {
	key  string
	pace struct {
		sync.Mutex    // what is taken must fit the burst, which may change
		events, bytes *rate.Limiter
	}

	// Under the lock of Accounts:
	shares           int
	subscriptions    int
	maxSubscriptions int
}

// An Account is one connection's share in its identity's. Its methods may be called from anywhere at once.
type Account struct {
	of      *Accounts
	shared  *account
	name    string
	claimed int // subscriptions of this connection, under the lock of Accounts
	closed  bool
}

// Open returns a share for a connection. Where the identity is known already with other limits, those of i hold from now on.
func (a *Accounts) Open(i *Identity) *Account {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.forget()
	key := cmp.Or(i.key, "named:"+i.Name)
	shared := cmp.Or(a.mu.open[key], a.mu.resting[key])
	if shared == nil {
		shared = &account{key: key}
		shared.pace.events, shared.pace.bytes = rate.NewLimiter(rate.Inf, 0), rate.NewLimiter(rate.Inf, 0)
	}
	a.mu.open[key] = shared
	delete(a.mu.resting, key)
	shared.shares++
	shared.maxSubscriptions = i.MaxSubscriptions
	shared.limit(i.EventsPerSecond, i.BytesPerSecond)
	return &Account{of: a, shared: shared, name: i.Name}
}

// Subscribe claims n more subscriptions, or none where they would be too many.
func (a *Account) Subscribe(n int) error {
	a.of.mu.Lock()
	defer a.of.mu.Unlock()
	most := a.shared.maxSubscriptions
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
	if a.shared.shares--; a.shared.shares == 0 {
		delete(a.of.mu.open, a.shared.key)
		a.of.mu.resting[a.shared.key] = a.shared
		a.of.forget()
	}
}

// forget lets go of accounts that nobody uses and that would begin anew as they are. The caller holds the lock.
func (a *Accounts) forget() {
	for key, shared := range a.mu.resting {
		if shared.rested() {
			delete(a.mu.resting, key)
		}
	}
}

// rested reports whether the account may send as much at once as a new one.
func (a *account) rested() bool {
	a.pace.Lock()
	defer a.pace.Unlock()
	for _, l := range []*rate.Limiter{a.pace.events, a.pace.bytes} {
		if l.Limit() != rate.Inf && l.Tokens() < float64(l.Burst()) {
			return false
		}
	}
	return true
}

// Reserve notes events and bytes as sent and returns how long to wait before sending them. Whoever sends more than may be sent in
// a burst waits the longer for it; nothing is ever refused.
func (a *Account) Reserve(events, bytes int) time.Duration {
	pace := &a.shared.pace
	pace.Lock()
	defer pace.Unlock()
	now := time.Now()
	return max(reserve(pace.events, events, now), reserve(pace.bytes, bytes, now))
}

// Wait reserves and waits. It returns ctx's cause where ctx ends first.
func (a *Account) Wait(ctx context.Context, events, bytes int) error {
	return retry.Sleep(ctx, a.Reserve(events, bytes))
}

// limit sets what may be sent; what is left of the old limits' rest or debt stays, within the new burst.
func (a *account) limit(events, bytes int) {
	a.pace.Lock()
	defer a.pace.Unlock()
	a.pace.events = limited(a.pace.events, events, minEventBurst)
	a.pace.bytes = limited(a.pace.bytes, bytes, minByteBurst)
}

// limited gives a limiter another limit. One that had none has no past either, so it is replaced by one that is rested.
func limited(l *rate.Limiter, perSecond, least int) *rate.Limiter {
	limit, burst := rate.Limit(perSecond), max(perSecond, least)
	switch {
	case perSecond == 0:
		return rate.NewLimiter(rate.Inf, 0)
	case l.Limit() == rate.Inf:
		return rate.NewLimiter(limit, burst)
	case l.Limit() != limit:
		l.SetLimit(limit)
		l.SetBurst(burst)
	}
	return l
}

// reserve takes n from the limiter in pieces that fit its burst; the last one's wait is the longest. n is bounded by what one batch
// holds, so the pieces are few.
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
