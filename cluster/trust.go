package cluster

import "time"

// A trust says how long a claim may be relied on, and when to renew it, on a clock that counts suspension. It is reckoned
// from the moment at which a request was sent, never from that of its answer: the claim's life began then at the earliest.
type trust struct {
	ttl   time.Duration // the claim's life
	sent  time.Duration // the reading when the request was sent that it lives by
	until time.Duration // the reading at which terms end
	due   time.Duration // the reading at which to renew
}

// granted returns the trust in a claim that a request sent then made, or prolonged, for ttl.
func granted(sent, ttl time.Duration) trust {
	return trust{ttl: ttl, sent: sent, until: sent + trustedFor(ttl), due: sent + renewEvery(ttl)}
}

// failed returns the trust after a renewal failed: the same, with another try soon.
func (t trust) failed(now time.Duration) trust {
	t.due = now + t.ttl/20
	return t
}

// unanswered returns the trust after a renewal that was sent then has had no answer, for an owner who may go on without one: that it
// was sent shows that the process has not stood still since.
func (t trust) unanswered(sent, now time.Duration) trust {
	t = t.failed(now)
	t.until = max(t.until, sent+trustedFor(t.ttl))
	return t
}

// ranOut reports whether the claim may have ended by itself: nobody who answered has prolonged it for the whole of its life.
func (t trust) ranOut(now time.Duration) bool { return now >= t.sent+t.ttl }

// over reports whether the claim may have run out.
func (t trust) over(now time.Duration) bool { return now >= t.until }

// pause returns how long to wait before looking at the clock again: until something is to be done, but not for long, because
// timers stand still while the machine is suspended.
func (t trust) pause(now time.Duration, renewing bool) time.Duration {
	next := t.until
	if !renewing {
		next = min(next, t.due)
	}
	return min(next-now, t.ttl/20)
}

// renewEvery is how often a claim is renewed, and how long an answer is waited for.
func renewEvery(ttl time.Duration) time.Duration { return ttl / 5 }

// trustedFor is how long a claim is relied on. It leaves a third of its life for terms to end in.
func trustedFor(ttl time.Duration) time.Duration { return ttl - ttl/3 }
