package cluster

import "time"

// A trust says how long a claim may be relied on, and when to renew it, on a clock that counts suspension. It is reckoned
// from the moment at which a request was sent, never from that of its answer: the claim's life began then at the earliest.
type trust struct {
	ttl   time.Duration // the claim's life
	until time.Duration // the reading at which terms end
	due   time.Duration // the reading at which to renew
}

// granted returns the trust in a claim that a request sent then made, or prolonged, for ttl.
func granted(sent, ttl time.Duration) trust {
	return trust{ttl: ttl, until: sent + trustedFor(ttl), due: sent + renewEvery(ttl)}
}

// failed returns the trust after a renewal failed: the same, with another try soon.
func (t trust) failed(now time.Duration) trust {
	t.due = now + t.ttl/20
	return t
}

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
