package member

import (
	"errors"
	"fmt"
	"time"
)

// A leaseDeadline says how long a claim may be relied on, and when to renew it, on a clock that
// counts suspension. It is reckoned from the moment at which a request was sent, never from that of
// its answer: the claim's life began then at the earliest.
type leaseDeadline struct {
	TTL   time.Duration // the claim's life
	Sent  time.Duration // the reading when the request was sent that it lives by
	Until time.Duration // the reading at which terms end
	Due   time.Duration // the reading at which to renew
}

// granted returns the trust in a claim that a request sent then made, or prolonged, for ttl.
func granted(sent, ttl time.Duration) leaseDeadline {
	return leaseDeadline{TTL: ttl, Sent: sent, Until: sent + trustedFor(ttl), Due: sent + renewEvery(ttl)}
}

// Failed returns the trust after a renewal failed: the same, with another try soon.
func (t leaseDeadline) Failed(now time.Duration) leaseDeadline {
	t.Due = now + t.TTL/20
	return t
}

// Unanswered returns the trust of an owner who goes on alone while nobody answers: that it looks at
// the clock now shows that it has not stood still, and it may be relied on as long again.
func (t leaseDeadline) Unanswered(now time.Duration) leaseDeadline {
	t.Until = max(t.Until, now+trustedFor(t.TTL))
	return t
}

// RanOut reports whether the claim may have ended by itself: nobody who answered has prolonged it
// for the whole of its life.
func (t leaseDeadline) RanOut(now time.Duration) bool { return now >= t.Sent+t.TTL }

// Over reports whether the claim may have run out.
func (t leaseDeadline) Over(now time.Duration) bool { return now >= t.Until }

// Pause returns how long to wait before looking at the clock again: until something is to be done,
// but not for long, because timers stand still while the machine is suspended.
func (t leaseDeadline) Pause(now time.Duration, renewing bool) time.Duration {
	next := t.Until
	if !renewing {
		next = min(next, t.Due)
	}
	return min(next-now, t.TTL/20)
}

// renewEvery is how often a claim is renewed, and how long an answer is waited for.
func renewEvery(ttl time.Duration) time.Duration { return ttl / 5 }

// trustedFor is how long a claim is relied on. It leaves a third of its life for terms to end in.
func trustedFor(ttl time.Duration) time.Duration { return ttl - ttl/3 }

// notRenewed says that a claim was not renewed in time: the last renewal had that failure, nil for
// no answer.
func notRenewed(failure error) error {
	if failure == nil {
		return errors.New("the claim was not renewed in time: no answer, or the process stood still")
	}
	return fmt.Errorf("the claim was not renewed in time: %w", failure)
}
