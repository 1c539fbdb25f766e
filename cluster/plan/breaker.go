package plan

import "time"

// A breaker keeps partitions away from a member that fails to take them. Closed, it opens after
// some failures without a success between them; open, it is half-open after a while; half-open,
// successes close it, and a failure opens it again, for twice as long as before: each trial costs a
// partition the grace time. The zero breaker is closed.
type breaker struct {
	notClosed bool
	since     time.Duration // when it opened
	until     time.Duration // when it is or was half-open
	failures  int
	successes int // while half-open
	trials    int // that failed
}

// The states of a breaker.
const (
	BreakerClosed   = "closed"
	BreakerHalfOpen = "half_open"
	BreakerOpen     = "open"
)

// maxTrials is how many failed trials in a row make the next wait longer.
const maxTrials = 4

func (b *breaker) state(now time.Duration) string {
	switch {
	case !b.notClosed:
		return BreakerClosed
	case now < b.until:
		return BreakerOpen
	}
	return BreakerHalfOpen
}

// fail counts a failure and reports whether the breaker has opened by it.
func (b *breaker) fail(now, openFor time.Duration, most int) bool {
	b.failures++
	b.successes = 0
	switch b.state(now) {
	case BreakerClosed:
		if b.failures < most {
			return false
		}
		b.notClosed = true
		b.since = now
		b.until = now + openFor
		return true
	case BreakerHalfOpen:
		b.trials = min(b.trials+1, maxTrials)
		b.until = now + openFor<<b.trials
		return true
	}
	return false
}

// succeed counts a success and reports whether it closed the breaker. While the breaker is open,
// attempts that began earlier do not count.
func (b *breaker) succeed(now time.Duration, enough int) bool {
	switch b.state(now) {
	case BreakerClosed:
		b.failures = 0
	case BreakerHalfOpen:
		if b.successes++; b.successes >= enough {
			*b = breaker{}
			return true
		}
	}
	return false
}

// Fail counts failures of a member and gives it a rest. It reports whether its breaker has opened
// by them, and how many there were in all.
func (c *health) Fail(m *member, n int) (opened bool, failures int) {
	c.Rest(m)
	before := m.breaker.notClosed
	for range n {
		m.breaker.fail(c.now, c.cfg.OpenFor, c.cfg.Failures)
	}
	return m.breaker.notClosed && !before, m.breaker.failures
}

// Succeed counts a success of a member. It reports whether its breaker has closed by it, and for
// how long it was not.
func (c *health) Succeed(m *member) (shut bool, after time.Duration) {
	since := m.breaker.since
	return m.breaker.succeed(c.now, c.cfg.Successes), c.now - since
}

// Rest has a member given nothing, and nothing taken from it for balance, for a while: longer if it
// was not the first time lately.
func (c *health) Rest(m *member) {
	if m.cool > c.now {
		return
	}
	if c.now-m.cool >= calmFor {
		m.rests = 0
	}
	m.cool = c.now + c.cfg.OpenFor<<m.rests
	m.rests = min(m.rests+1, maxTrials)
}

// Resting says whether a member has its rest.
func (c *health) Resting(m *member) bool { return m.cool > c.now }
