package config

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// The words of start_from.
const (
	startNow    = "now"
	startOldest = "beginning-of-oplog"
)

// FutureSlack is how far a start may be in the future: clocks differ, and an idle MongoDB lags them
// by up to 10 s.
const FutureSlack = 15 * time.Second

// refuseFutureStarts complains of starts that are in the future by the clock of this machine.
func (c *Config) refuseFutureStarts(t *table, now time.Time) {
	refuse := func(path string, at time.Time) {
		if ahead := at.Sub(now); !at.IsZero() && ahead > FutureSlack {
			t.refuseValue(path, fmt.Errorf("%s is %s in the future: give a time of the past, in UTC or with its offset", at.Format(time.RFC3339), ahead.Round(time.Second)))
		}
	}
	refuse("start_from", c.StartFrom.At)
	for i := range c.Sinks {
		refuse(fmt.Sprintf("sinks[%d].start", i), c.Sinks[i].Start.At)
	}
}

// StartFrom says where the very first start begins to read; later ones go by the marks. The zero
// value means now.
type StartFrom struct {
	// Oldest means the oldest entry that the oplog holds.
	Oldest bool
	// At means the first change at or after this time.
	At time.Time
}

// UnmarshalText reads now, beginning-of-oplog, or a time of RFC 3339.
func (s *StartFrom) UnmarshalText(text []byte) error {
	switch string(text) {
	case startNow:
		*s = StartFrom{}
		return nil
	case startOldest:
		*s = StartFrom{Oldest: true}
		return nil
	}
	at, err := time.Parse(time.RFC3339, string(text))
	if err != nil {
		return errors.New("must be " + startNow + ", " + startOldest + ", or a time such as 2026-01-31T12:00:00Z")
	}
	if at.Unix() <= 0 || at.Unix() > math.MaxUint32 {
		return errors.New("must lie between 1970 and 2106: MongoDB's log knows no other times")
	}
	*s = StartFrom{At: at}
	return nil
}

// String is the inverse of UnmarshalText.
func (s StartFrom) String() string {
	switch {
	case s.Oldest:
		return startOldest
	case s.At.IsZero():
		return startNow
	default:
		return s.At.Format(time.RFC3339Nano)
	}
}
