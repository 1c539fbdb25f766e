package delivery

import (
	"time"

	"github.com/mongostream/streamer/delivery/fair"
)

// turn waits for the session's turn off the live path, if it has to take turns, and for another one
// when it has spent its slice. It returns false if the session or its context is over.
func (c *catchup) turn() bool {
	s := c.session
	switch {
	case s.account == nil:
		return true
	case c.ended || c.over():
		c.ended = true
		return false
	case c.slot && c.slice > 0:
		return true
	case !c.slot && !s.expense.NeedsSlot() && c.spent <= fair.FreeUnits && !s.hub.accounts.TakesTurns(s.account, time.Now()):
		return true
	}
	c.giveBack()
	if !s.hub.accounts.Acquire(s.account, s.done, c.gone) {
		c.ended = true
		return false
	}
	c.slot, c.slice = true, fair.SliceUnits
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
	c.session.hub.accounts.Release(c.session.account, fair.SliceUnits-c.slice+fair.WakeUnits)
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
