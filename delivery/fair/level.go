package fair

import (
	"math"
	"time"
)

// UnitsPerSecond is about how many units of match.MaxCost a core spends in a second. All costs are
// in these units.
const UnitsPerSecond = 100_000_000

// window is how long a cost counts: it decays by a factor of e in it.
const window = 400 * time.Millisecond

// A level is the recently spent cost: it decays with a window.
type level struct {
	units float64
	at    time.Time
}

// add decays the level, adds to it and returns it.
func (l *level) add(now time.Time, units int, window time.Duration) float64 {
	if past := now.Sub(l.at); past > 0 {
		l.units *= math.Exp(-past.Seconds() / window.Seconds())
		l.at = now
	}
	l.units += float64(units)
	return l.units
}

// took returns how long it takes to spend units.
func took(units int) time.Duration { return time.Duration(units) * time.Second / UnitsPerSecond }
