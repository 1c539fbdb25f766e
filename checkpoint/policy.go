package checkpoint

import (
	"cmp"
	"time"
)

// A Policy says when partitions are due.
type Policy struct {
	// Interval is how long a partition on which something happened waits for its mark at most. Defaults to 5 s.
	Interval time.Duration
	// EventCount is the number of events after which a partition is due at once. Defaults to 1000.
	EventCount int
	// IdleInterval is how long a partition on which nothing happened waits; it must be well within the oplog's reach.
	// Defaults to 1 minute.
	IdleInterval time.Duration
	// MaxUnsaved is how many events a partition may pass since its last saved mark before it waits for the next one: what a crash
	// repeats stays bounded while the store is away. Defaults to 1,000,000.
	MaxUnsaved int
	// MinGap is the least time between two rounds, whatever is due. Defaults to 2 s.
	MinGap time.Duration
}

func (p Policy) withDefaults() Policy {
	p.Interval = cmp.Or(p.Interval, 5*time.Second)
	p.EventCount = cmp.Or(p.EventCount, 1000)
	p.IdleInterval = cmp.Or(p.IdleInterval, time.Minute)
	p.MaxUnsaved = cmp.Or(p.MaxUnsaved, 1_000_000)
	p.MinGap = cmp.Or(p.MinGap, 2*time.Second)
	return p
}

// due returns when a partition is to be saved that was last saved at saved and has passed so many events since; idle is how long one
// without any waits.
func (p Policy) due(saved time.Time, events int, idle time.Duration) time.Time {
	switch {
	case events >= p.EventCount:
		return saved
	case events > 0:
		return saved.Add(p.Interval)
	}
	return saved.Add(idle)
}

// joins reports whether a partition that is not due goes along in a round that takes place anyway: saving it costs no
// transaction of its own, and it will not need one soon.
func (p Policy) joins(events int) bool { return events > 0 }

// reason says why a partition with so many events is saved.
func (p Policy) reason(events int) Reason {
	if events > 0 {
		return ReasonInterval
	}
	return ReasonIdle
}
