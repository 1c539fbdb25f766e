package delivery

import (
	"runtime"
	"sync"
	"time"

	"github.com/mongostream/streamer/change"
)

// What deliveries cost, in units as filters do. An event is copied by the Hub and by its transport;
// and each reply of MongoDB wakes a writer, which frames what there is and hands it to the system.
const (
	wakeUnits   = unitsPerSecond / 40_000
	eventUnits  = unitsPerSecond / 1_000_000
	copiedBytes = 16 // bytes for a unit
)

// deliverUnits is what all deliveries on the live path may cost within about liveWindow while
// several identities are on it: a quarter of the cores. Above it, the identity whose deliveries
// cost most leaves.
func deliverUnits() float64 {
	return liveWindow.Seconds() * unitsPerSecond * float64(runtime.GOMAXPROCS(0)) / 4
}

// A crowd tracks an identity's delivery off the live path, where its sessions take turns.
type crowd struct {
	sync.Mutex

	spent level
	until time.Time // at least; after that, as long as they deliver much
}

// sends adds a session's delivery in the current reply.
func (l *loop) sends(s *stream, units int) {
	t := s.tenant
	if t == nil {
		return
	}
	if t.sends == 0 {
		l.costs.senders = append(l.costs.senders, t)
	}
	if _, before := l.touched[s]; !before {
		units += wakeUnits
	}
	t.sends += units
}

// disperse ends a reply: the identities whose deliveries cost most leave the live path while all of
// them together cost too much. All live sessions have considered everything up to at. An identity
// that has the live path for itself stays.
func (l *loop) disperse(at change.Position) {
	for _, t := range l.costs.senders {
		t.sent.add(l.costs.now, t.sends, liveWindow)
		l.costs.sent.add(l.costs.now, t.sends, liveWindow)
		t.sends = 0
	}
	clear(l.costs.senders)
	l.costs.senders = l.costs.senders[:0]
	if l.costs.sent.units <= deliverUnits() {
		return
	}
	live := make(map[*tenant]struct{})
	l.costs.sent.units = 0 // counted again, without those who have left
	for _, s := range l.live {
		if _, counted := live[s.tenant]; s.tenant != nil && !counted {
			live[s.tenant] = struct{}{}
			l.costs.sent.units += s.tenant.sent.add(l.costs.now, 0, liveWindow)
		}
	}
	for l.costs.sent.units > deliverUnits() && len(live) > 1 {
		var most *tenant
		for t := range live {
			if most == nil || t.sent.units > most.sent.units {
				most = t
			}
		}
		delete(live, most)
		l.costs.sent.units -= most.sent.units
		l.takeTurns(most, at)
	}
}

// takeTurns takes all sessions of an identity off the live path, where they take turns.
func (l *loop) takeTurns(t *tenant, at change.Position) {
	l.banish(t)
	t.everything = true
	t.crowd.Lock()
	t.crowd.until = t.away
	t.crowd.Unlock()
	for _, s := range l.live {
		if s.tenant == t {
			s.expense.away = t.away
			l.metrics.crowding.Inc()
			l.leave(s, change.Later(at, s.from).Clone())
		}
	}
}

// takesTurns reports whether the sessions of an identity read one at a time off the live path.
func (t *tenants) takesTurns(of *tenant, now time.Time) bool {
	if !t.contended() {
		return false
	}
	of.crowd.Lock()
	defer of.crowd.Unlock()
	return now.Before(of.crowd.until) || of.crowd.spent.add(now, 0, liveWindow) > freeUnits
}

// delivers adds the delivery of an identity's session off the live path.
func (t *tenants) delivers(of *tenant, units int) {
	if of == nil || units == 0 || !t.contended() {
		return
	}
	of.crowd.Lock()
	defer of.crowd.Unlock()
	of.crowd.spent.add(time.Now(), units, liveWindow)
}

// turn waits for the session's turn off the live path, if it has to take turns, and for another one
// when it has spent its slice. It returns false if the session or its context is over.
func (c *catchup) turn() bool {
	s := c.session
	switch {
	case s.tenant == nil:
		return true
	case c.ended || c.over():
		c.ended = true
		return false
	case c.slot && c.slice > 0:
		return true
	case !c.slot && !s.expense.slot && c.spent <= freeUnits && !s.hub.tenants.takesTurns(s.tenant, time.Now()):
		return true
	}
	c.giveBack()
	if !s.hub.tenants.acquire(s.tenant, s.done, c.gone) {
		c.ended = true
		return false
	}
	c.slot, c.slice = true, sliceUnits
	s.fill(true)
	return true
}

// giveBack ends the session's turn: its queued events are sent.
func (c *catchup) giveBack() {
	if !c.slot {
		return
	}
	c.slot = false
	c.session.fill(false)
	c.session.hub.tenants.release(c.session.tenant, costing(sliceUnits-c.slice+wakeUnits))
}

// fill says that the session queues more in this turn: its transport waits for all of that, which
// costs less than piece by piece.
func (s *Session) fill(on bool) {
	s.mu.Lock()
	s.mu.fills = on
	more := !on && len(s.mu.queue) > 0
	s.mu.Unlock()
	if more {
		notify(s.received)
	}
}
