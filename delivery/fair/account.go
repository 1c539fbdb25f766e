package fair

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/match"
)

const (
	// Suspension is for how long a suspended filter is refused.
	Suspension = 5 * time.Minute
	// maxSuspended bounds the suspended filters of an account that are remembered: the first that
	// is over goes.
	maxSuspended = 100
	// mostPages is how many pages an account may ask for at a time.
	mostPages = 100
)

// An Account is an identity whose sessions share a bound of costs.
type Account struct {
	Name string

	slot   chan struct{} // holds one: it compiles or evaluates one filter at a time, off the live path
	starts chan struct{} // holds one: its sessions begin one after the other
	pages  chan struct{} // holds one: it is given one page at a time
	asking atomic.Int32  // pages that it has asked for

	live  liveAccount
	crowd crowd

	// The following fields are guarded by the mutex of Accounts.
	users     int       // sessions, and filters being compiled
	kept      time.Time // until when it is remembered without users
	suspended map[match.Key]time.Time
}

// A crowd tracks an account's delivery off the live path, where its sessions take turns.
type crowd struct {
	sync.Mutex

	spent level
	until time.Time // at least; after that, as long as they deliver much
}

// Accounts are the accounts that have sessions, or suspended filters.
type Accounts struct {
	// slots hold as many as may compile, or evaluate filters and deliver much off the live path, at
	// a time: half of the cores, for which accounts wait in line.
	slots   chan struct{}
	starts  chan struct{} // as many beginnings of sessions at a time
	strain  *strain
	several atomic.Int32 // those that have users

	mu struct {
		sync.Mutex
		of map[string]*Account
	}
}

// NewAccounts returns Accounts for the cores of this process.
func NewAccounts() *Accounts {
	half := max(1, runtime.GOMAXPROCS(0)/2)
	t := &Accounts{slots: make(chan struct{}, half), starts: make(chan struct{}, half), strain: newStrain()}
	t.mu.of = make(map[string]*Account)
	return t
}

// Enter returns the account of a name until the caller calls Exit. An empty name is the node's own:
// it has no limits, and its account is nil.
func (t *Accounts) Enter(name string) *Account {
	if name == "" {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	of := t.mu.of[name]
	if of == nil {
		t.forget(time.Now())
		of = &Account{
			Name: name, slot: make(chan struct{}, 1), starts: make(chan struct{}, 1), pages: make(chan struct{}, 1),
			suspended: make(map[match.Key]time.Time),
		}
		t.mu.of[name] = of
	}
	if of.users++; of.users == 1 {
		t.several.Add(1)
	}
	return of
}

// Exit ends a use of an account, which may be nil.
func (t *Accounts) Exit(of *Account) {
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
		delete(t.mu.of, of.Name)
	}
}

// contended reports whether there is more than one account.
func (t *Accounts) contended() bool { return t.several.Load() > 1 }

// Strain returns how long a slot rests off the live path, in multiples of its use.
func (t *Accounts) Strain() float64 { return t.strain.now(time.Now()) }

// keep remembers an account for a while, so that connecting again evades nothing.
func (t *Accounts) keep(of *Account, until time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	of.kept = until
}

// forget removes the accounts that are not used and whose suspensions are over. The caller holds
// the mutex.
func (t *Accounts) forget(now time.Time) {
	for name, of := range t.mu.of {
		for key, until := range of.suspended {
			if now.After(until) {
				delete(of.suspended, key)
			}
		}
		if of.users == 0 && len(of.suspended) == 0 && !now.Before(of.kept) {
			delete(t.mu.of, name)
		}
	}
}

// Suspend refuses a filter for a while.
func (t *Accounts) Suspend(of *Account, key match.Key, now time.Time) {
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
	of.suspended[key] = now.Add(Suspension)
}

// Refusal returns why a filter is refused, nil if it is not.
func (t *Accounts) Refusal(of *Account, key match.Key) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if until := of.suspended[key]; time.Now().Before(until) {
		return fault.Newf(fault.SessionFilterCostly, "the filter is suspended until %s", until.UTC().Format(time.RFC3339))
	}
	return nil
}

// Page waits until an account may get a page of documents: one at a time. The caller calls done
// afterwards. It fails with AccessLimit if the account asks for too many at a time, or with the
// context's cause. A nil account has no limits.
func (of *Account) Page(ctx context.Context) (done func(), err error) {
	if of == nil {
		return func() {}, nil
	}
	if of.asking.Add(1) > mostPages {
		of.asking.Add(-1)
		return nil, fault.Newf(fault.AccessLimit, "%d pages are asked for at a time, and no more may be", mostPages)
	}
	select {
	case of.pages <- struct{}{}:
		return func() {
			<-of.pages
			of.asking.Add(-1)
		}, nil
	case <-ctx.Done():
		of.asking.Add(-1)
		return nil, context.Cause(ctx)
	}
}
