package fair

import (
	"runtime"
	"slices"
	"time"
)

const (
	// The cost that an account may spend on the live path in one reply of MongoDB: a base, and an
	// amount for each of its events. Sessions that need more leave the live path before the event
	// for which they need it.
	replyUnits      = UnitsPerSecond / 500
	replyEventUnits = UnitsPerSecond / 50_000
	// CostlyUnits is the most that one evaluation may cost on the live path. Off it, what costs
	// more counts towards suspension.
	CostlyUnits = UnitsPerSecond / 1000
	// liveUnits bounds the costs of all accounts on the live path within about a window: a quarter
	// of the Hub's loop. Above it, the one that spends most leaves.
	liveUnits = UnitsPerSecond / 10
	// Sessions that left the live path because of their costs stay off it for leastAway, and twice
	// as long each time, up to mostAway.
	leastAway, mostAway = 10 * time.Second, 10 * time.Minute
	// WakeUnits is the cost of delivering a reply of MongoDB to a session: a writer wakes up,
	// frames all changes, and hands them to the system.
	WakeUnits = UnitsPerSecond / 40_000
	// EventUnits is the cost of delivering an event, besides its bytes.
	EventUnits = UnitsPerSecond / 1_000_000
	// CopiedBytes are the bytes that are copied for a unit, by the Hub and by a transport.
	CopiedBytes = 16
)

// deliverUnits bounds the costs of all deliveries on the live path within about a window while
// several accounts are on it: a quarter of the cores. Above it, the account whose deliveries cost
// most leaves.
func deliverUnits() float64 {
	return window.Seconds() * UnitsPerSecond * float64(runtime.GOMAXPROCS(0)) / 4
}

// A liveAccount has the costs of an account on the live path. It belongs to the owner of Live.
type liveAccount struct {
	spent      level // on filters and encodings
	reply      int   // of it, in the current reply
	deliveries level // of its deliveries
	delivering int   // of it, in the current reply

	away time.Time     // until when its sessions with costly filters stay off the live path
	hold time.Duration // how long that is
	// everything says that sessions without costly filters stay off it too.
	everything bool
}

// Live keeps the costs of the live path: of filters and encodings, and of deliveries. It says which
// account has to leave. It has one owner, whose calls between Begin and End concern one reply.
type Live struct {
	accounts *Accounts
	now      time.Time // when the current reply came
	reply    uint64    // its number

	allowed  int        // the cost that an account may spend in it
	spent    int        // by all of them in it
	level    level      // spent before it
	spenders []*Account // in it

	deliveries level      // of all deliveries
	senders    []*Account // in the current reply
}

// NewLive returns the costs of a live path.
func NewLive(accounts *Accounts) *Live { return &Live{accounts: accounts} }

// Begin begins a reply of so many events.
func (v *Live) Begin(now time.Time, events int) {
	v.reply++
	v.now = now
	v.level.add(now, 0, window)
	v.accounts.strain.now(now) // it is looked often enough
	v.allowed = replyUnits + events*replyEventUnits
}

// Left returns the cost that an account may still spend in the reply.
func (v *Live) Left(of *Account) int { return v.allowed - of.live.reply }

// Charge adds the costs of a session's filters and encodings to its account.
func (v *Live) Charge(of *Account, x *Expense, units int) {
	if of == nil || units == 0 {
		return
	}
	if of.live.reply == 0 {
		v.spenders = append(v.spenders, of)
	}
	if x.reply != v.reply {
		x.reply = v.reply
		x.spent = 0
	}
	of.live.reply += units
	x.spent += units
	v.spent += units
}

// Deliver adds the cost of a delivery.
func (v *Live) Deliver(of *Account, units int) {
	if of == nil {
		return
	}
	if of.live.delivering == 0 {
		v.senders = append(v.senders, of)
	}
	of.live.delivering += units
}

// Exceeds reports whether all accounts together spend too much on filters and encodings.
func (v *Live) Exceeds() bool { return v.spent > 0 && v.level.units+float64(v.spent) > liveUnits }

// Expel takes the account that spends most out of the costs, and returns it and its costs in
// this reply; nil if all have left. Its sessions leave the live path, and Expelled then forgets the
// costs.
func (v *Live) Expel() (most *Account, reply int) {
	var units float64
	for _, of := range v.spenders {
		if u := of.live.spent.add(v.now, 0, window) + float64(of.live.reply); most == nil || u > units {
			most = of
			units = u
		}
	}
	if most == nil {
		return nil, 0
	}
	v.level.units -= most.live.spent.units
	v.spent -= most.live.reply
	v.spenders = slices.DeleteFunc(v.spenders, func(of *Account) bool { return of == most })
	return most, most.live.reply
}

// Expelled forgets the costs of an account, once its sessions have left.
func (v *Live) Expelled(of *Account) { of.live.spent.units, of.live.reply = 0, 0 }

// SpentNow returns the costs of a session in the current reply.
func (v *Live) SpentNow(x *Expense) int {
	if x.reply != v.reply {
		return 0
	}
	return x.spent
}

// End ends a reply and remembers its cost for a while.
func (v *Live) End() {
	for _, of := range v.spenders {
		of.live.spent.add(v.now, of.live.reply, window)
		of.live.reply = 0
	}
	clear(v.spenders)
	v.spenders = v.spenders[:0]
	v.level.add(v.now, v.spent, window)
	v.spent = 0
}

// EndDeliveries ends the deliveries of a reply, and reports whether they cost too much.
func (v *Live) EndDeliveries() (crowded bool) {
	for _, of := range v.senders {
		of.live.deliveries.add(v.now, of.live.delivering, window)
		v.deliveries.add(v.now, of.live.delivering, window)
		of.live.delivering = 0
	}
	clear(v.senders)
	v.senders = v.senders[:0]
	return v.deliveries.units > deliverUnits()
}

// A Banished account stays off the live path for a while.
type Banished struct {
	*Account

	Until time.Time
}

// Disperse returns the accounts, of those that have live sessions, that have to leave: those whose
// deliveries cost most, while all of them together cost too much. One that has the live path for
// itself stays. The sessions of the others take turns off the live path.
func (v *Live) Disperse(live map[*Account]struct{}) (leave []Banished) {
	v.deliveries.units = 0 // counted again, without those who have left
	for of := range live {
		v.deliveries.units += of.live.deliveries.add(v.now, 0, window)
	}
	for v.deliveries.units > deliverUnits() && len(live) > 1 {
		var most *Account
		for of := range live {
			if most == nil || of.live.deliveries.units > most.live.deliveries.units {
				most = of
			}
		}
		delete(live, most)
		v.deliveries.units -= most.live.deliveries.units
		until := v.Banish(most, v.now)
		most.live.everything = true
		most.crowd.Lock()
		most.crowd.until = until
		most.crowd.Unlock()
		leave = append(leave, Banished{most, until})
	}
	return leave
}

// Banish keeps an account off the live path for a while, longer each time, and returns until when.
func (v *Live) Banish(of *Account, now time.Time) time.Time {
	a := &of.live
	if now.Before(a.away) {
		return a.away
	}
	if now.Sub(a.away) > mostAway {
		a.hold = 0
	}
	a.hold = min(max(leastAway, 2*a.hold), mostAway)
	a.away = now.Add(a.hold)
	a.everything = false
	v.accounts.keep(of, a.away.Add(mostAway))
	return a.away
}

// Now returns when the current reply came.
func (v *Live) Now() time.Time { return v.now }

// Admits reports whether a session of an account may be on the live path; evaluates says whether it
// has filters that cost more than comparisons. It returns until when it may not.
func (v *Live) Admits(of *Account, now time.Time, evaluates func() bool) (away time.Time, admits bool) {
	isAway := of != nil && now.Before(of.live.away)
	if !isAway || !of.live.everything && !evaluates() {
		return time.Time{}, true
	}
	return of.live.away, false
}
