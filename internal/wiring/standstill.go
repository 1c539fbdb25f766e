package wiring

import "time"

// A standstill is a stretch of time in which no sign of another part could come, because the node
// itself or the store that carries the signs was frozen.
type standstill struct{ from, to time.Time }

// standstills are the newest ones, in their order.
type standstills []standstill

// forgetAfter is how long before the newest one a standstill may have ended to be remembered:
// longer than anything may be silent.
const forgetAfter = 5 * time.Minute

// note adds a stretch, which may continue the last one.
func (s *standstills) note(from, to time.Time) {
	for len(*s) > 0 && to.Sub((*s)[0].to) > forgetAfter {
		*s = (*s)[1:]
	}
	switch n := len(*s); {
	case !to.After(from):
	case n > 0 && !from.After((*s)[n-1].to):
		if last := &(*s)[n-1]; to.After(last.to) {
			last.to = to
		}
	default:
		*s = append(*s, standstill{from, to})
	}
}

// within returns how much of the time between two moments was standstill.
func (s standstills) within(from, to time.Time) (d time.Duration) {
	for _, x := range s {
		begin, end := x.from, x.to
		if from.After(begin) {
			begin = from
		}
		if to.Before(end) {
			end = to
		}
		d += max(0, end.Sub(begin))
	}
	return d
}
