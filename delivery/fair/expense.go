package fair

import (
	"math"
	"time"
)

const (
	// maxPages is how often a filter may cost more than PageUnits on a page of documents.
	maxPages = 3
	// suspendUnits bounds the cost of a session's costly evaluations within about suspendWindow.
	suspendUnits  = 2 * UnitsPerSecond
	suspendWindow = time.Minute
	// PageUnits is the cost that an account may spend on a page of documents of a snapshot. A
	// session that needs more leaves the live path, and is suspended when it has done so maxPages
	// times: its snapshot would never be complete.
	PageUnits = UnitsPerSecond
)

// An Expense is the cost of one session of an account. It belongs to the owner of the session.
type Expense struct {
	reply  uint64    // the reply in which
	spent  int       // has been spent on the live path
	level  level     // spent off the live path
	costly level     // spent for costly evaluations
	slot   bool      // off the live path it needs a slot
	away   time.Time // until when it stays off the live path
	pages  int       // of snapshots that have cost too much
}

// NeedsSlot reports whether the session needs a slot off the live path.
func (x *Expense) NeedsSlot() bool { return x.slot }

// LeftLive says that the session stays off the live path until then.
func (x *Expense) LeftLive(until time.Time) { x.away = until }

// Evicted says that the session has left the live path because its filters cost too much there, and
// stays off it until then.
func (x *Expense) Evicted(until, now time.Time) {
	x.away = until
	x.slot = true
	x.level = level{units: FreeUnits, at: now}
}

// PageEvicted is Evicted for filters that cost too much on a page. It reports whether the session
// has to end.
func (x *Expense) PageEvicted(until, now time.Time) (suspends bool) {
	x.Evicted(until, now)
	x.pages++
	return x.pages >= maxPages
}

// AwayFor returns for how long the session stays off the live path, if it spends nothing more.
func (x *Expense) AwayFor(now time.Time) time.Duration {
	if !x.slot && x.away.IsZero() {
		return 0
	}
	hold := x.away.Sub(now)
	if level := x.level.add(now, 0, window); level > FreeUnits/2 {
		decays := math.Log(level/(FreeUnits/2)) * float64(window)
		return max(hold, time.Duration(decays)+1)
	}
	x.slot = false
	return max(hold, 0)
}

// Spend adds the session's costs off the live path.
func (x *Expense) Spend(now time.Time, units int) {
	if x.level.add(now, units, window) > FreeUnits {
		x.slot = true
	}
}

// Evaluated adds the cost of one evaluation off the live path. It reports whether those that are
// costly have cost so much that the session has to end.
func (x *Expense) Evaluated(now time.Time, units int) (suspends bool) {
	return units > CostlyUnits && x.costly.add(now, units, suspendWindow) > suspendUnits
}
