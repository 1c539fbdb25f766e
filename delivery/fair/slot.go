package fair

import (
	"context"
	"time"
)

const (
	// FreeUnits is the cost that a session may spend within about a window off the live path
	// without a slot: a twentieth of a core.
	FreeUnits = liveUnits / 5
	// SliceUnits is how much is spent before a slot goes to the next account.
	SliceUnits = UnitsPerSecond / 1000
	// startUnits is the cost of the start and the end of a session.
	startUnits = UnitsPerSecond / 1000
	// Under strain a slot rests at most this long, or as long as it was used: after the start of a
	// session, because many start at once when another node has ended; and after the compilation of
	// a filter or a slice of evaluations, whose cost the identity chooses.
	startRest, slotRest = 8 * time.Millisecond, 100 * time.Millisecond
)

// Acquire waits for the slot of an account and then for one of the node's. It returns false if one
// of the channels is closed first.
func (t *Accounts) Acquire(of *Account, over, gone <-chan struct{}) bool {
	return acquire(of.slot, t.slots, over, gone)
}

// acquire waits until an account's own slot is free, and then one of the node's.
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

// Release returns both slots after a cost was spent. While there are other accounts, that of the
// node rests as long, and longer while the node is strained, up to a bound: then work off the live
// path uses at most a quarter of the cores.
func (t *Accounts) Release(of *Account, units int) { t.ReleaseAfter(of, took(units)) }

// ReleaseAfter is Release after they were used for so long.
func (t *Accounts) ReleaseAfter(of *Account, used time.Duration) {
	<-of.slot
	t.rest(t.slots, used, slotRest)
}

// rest returns a slot of the node after its rest.
func (t *Accounts) rest(slots chan struct{}, used, longest time.Duration) {
	if !t.contended() {
		<-slots
		return
	}
	strained := time.Duration(float64(used) * t.strain.now(time.Now()))
	time.AfterFunc(max(used, min(strained, longest)), func() { <-slots })
}

// Start waits until a session of an account may begin: while there are several accounts, each has
// as many beginnings as every other one, and they take a quarter of the cores at most. It returns
// the context's cause if that ends first.
func (t *Accounts) Start(ctx context.Context, name string) error {
	of := t.Enter(name)
	if of == nil {
		return nil
	}
	defer t.Exit(of)
	if !t.contended() {
		return nil
	}
	if !acquire(of.starts, t.starts, nil, ctx.Done()) {
		return context.Cause(ctx)
	}
	<-of.starts
	t.rest(t.starts, took(startUnits), startRest)
	return nil
}

// TakesTurns reports whether the sessions of an account read one at a time off the live path.
func (t *Accounts) TakesTurns(of *Account, now time.Time) bool {
	if !t.contended() {
		return false
	}
	of.crowd.Lock()
	defer of.crowd.Unlock()
	return now.Before(of.crowd.until) || of.crowd.spent.add(now, 0, window) > FreeUnits
}

// Deliver adds the delivery of an account's session off the live path.
func (t *Accounts) Deliver(of *Account, units int) {
	if of == nil || units == 0 || !t.contended() {
		return
	}
	of.crowd.Lock()
	defer of.crowd.Unlock()
	of.crowd.spent.add(time.Now(), units, window)
}
