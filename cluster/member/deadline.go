package member

import (
	"errors"
	"fmt"
	"time"
)

// A leaseDeadline says how long a node may rely on a claim, and when to renew it, on a clock that
// includes suspension. It counts from the moment at which a request was sent, never from that of
// the reply, because the claim may have started then.
type leaseDeadline struct {
	TTL   time.Duration // the claim's life
	Sent  time.Duration // the reading when the request that granted it was sent
	Until time.Duration // the reading at which terms end
	Due   time.Duration // the reading at which to renew
}

// granted returns the deadline of a claim that a request, sent at that time, made or extended by
// ttl.
func granted(sent, ttl time.Duration) leaseDeadline {
	return leaseDeadline{TTL: ttl, Sent: sent, Until: sent + trustedFor(ttl), Due: sent + renewEvery(ttl)}
}

// Failed returns the deadline after a failed renewal: the same, with another attempt soon.
func (t leaseDeadline) Failed(now time.Duration) leaseDeadline {
	t.Due = now + t.TTL/20
	return t
}

// Unanswered returns the deadline of a single node whose store does not answer. The node reads the
// clock now, which shows that it was not frozen, so it may rely on the claim for the same time
// again.
func (t leaseDeadline) Unanswered(now time.Duration) leaseDeadline {
	t.Until = max(t.Until, now+trustedFor(t.TTL))
	return t
}

// RanOut reports whether the claim may have expired: no renewal has succeeded for its whole TTL.
func (t leaseDeadline) RanOut(now time.Duration) bool { return now >= t.Sent+t.TTL }

// Over reports whether the terms must end.
func (t leaseDeadline) Over(now time.Duration) bool { return now >= t.Until }

// Pause returns how long to wait before the next look at the clock: until something is due, but not
// long, because timers stop while the machine is suspended.
func (t leaseDeadline) Pause(now time.Duration, renewing bool) time.Duration {
	next := t.Until
	if !renewing {
		next = min(next, t.Due)
	}
	return min(next-now, t.TTL/20)
}

// renewEvery is the interval of renewals, and the timeout of each.
func renewEvery(ttl time.Duration) time.Duration { return ttl / 5 }

// trustedFor is how long a node relies on a claim. It leaves a third of the TTL for terms to end
// in.
func trustedFor(ttl time.Duration) time.Duration { return ttl - ttl/3 }

// notRenewed is the error for a claim that was not renewed in time. failure is the last renewal's
// error, nil for no reply.
func notRenewed(failure error) error {
	if failure == nil {
		return errors.New("the claim was not renewed in time: no answer, or the process stood still")
	}
	return fmt.Errorf("the claim was not renewed in time: %w", failure)
}
