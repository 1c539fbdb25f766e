package checkpoint

import (
	"cmp"
	"time"
)

// A Policy says when checkpoints are due.
type Policy struct {
	// Interval is how long a subscriber that acknowledged something waits for its checkpoint at most. Defaults to 5 s.
	Interval time.Duration
	// EventCount is the number of acknowledged events after which a checkpoint is due at once. Defaults to 1000.
	EventCount int
	// IdleInterval is how long a checkpoint waits that has moved without events; it must be well within the oplog's reach.
	// Defaults to 1 minute.
	IdleInterval time.Duration
	// MaxUnsaved is how many events a shared subscriber may acknowledge since its last saved checkpoint before it waits for the next one: what
	// a crash repeats stays bounded while the store is away. Defaults to 1,000,000.
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

// due returns when a checkpoint is to be saved that was last saved at saved and has so many new events; idle is how long one without
// any waits.
func (p Policy) due(saved time.Time, events uint64, idle time.Duration) time.Time {
	switch {
	case events >= uint64(p.EventCount):
		return saved
	case events > 0:
		return saved.Add(p.Interval)
	}
	return saved.Add(idle)
}

// reason says why a checkpoint with so many new events is saved.
func (p Policy) reason(events uint64) Reason {
	if events > 0 {
		return ReasonInterval
	}
	return ReasonIdle
}
