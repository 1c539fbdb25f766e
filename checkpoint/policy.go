package checkpoint

import (
	"cmp"
	"time"
)

// A Policy says when checkpoints are due.
type Policy struct {
	// Interval bounds how long an acknowledgement waits for its checkpoint. Defaults to 5 s.
	Interval time.Duration
	// EventCount is the number of acknowledged events of a key after which its checkpoint is due at
	// once. Defaults to 1000.
	EventCount int
	// IdleInterval bounds how long a checkpoint that advances without events waits; it must be well
	// within the oplog window. Defaults to 1 minute.
	IdleInterval time.Duration
	// MaxUnsaved bounds the events that a shared subscriber may acknowledge without a saved
	// checkpoint, and so the redelivery after a crash while the store is unavailable. Defaults to
	// 1,000,000.
	MaxUnsaved int
	// MinInterval is the least time between the beginnings of two rounds, however many events are
	// acknowledged meanwhile. It is at most Interval. Defaults to 100 ms.
	MinInterval time.Duration
	// IdentityRate bounds the cost of an identity's large checkpoints for the store, in bytes a
	// second; beyond it, they are saved later. Defaults to 64 KiB.
	IdentityRate int64
}

// retryAfter is the pause after a round that the store failed.
const retryAfter = 2 * time.Second

// rowRest is the pause before a checkpoint that could not be saved, whatever the store does, is
// tried again.
const rowRest = 30 * time.Second

func (p Policy) withDefaults() Policy {
	p.Interval = cmp.Or(p.Interval, 5*time.Second)
	p.EventCount = cmp.Or(p.EventCount, 1000)
	p.IdleInterval = cmp.Or(p.IdleInterval, time.Minute)
	p.MaxUnsaved = cmp.Or(p.MaxUnsaved, 1_000_000)
	p.IdentityRate = cmp.Or(p.IdentityRate, 64<<10)
	p.MinInterval = min(cmp.Or(p.MinInterval, 100*time.Millisecond), p.Interval)
	return p
}

// due returns when a checkpoint last saved at saved, with a number of new events, must be saved;
// idle applies without events.
func (p Policy) due(saved time.Time, events uint64, idle time.Duration) time.Time {
	switch {
	case events >= uint64(p.EventCount):
		return saved
	case events > 0:
		return saved.Add(p.Interval)
	}
	return saved.Add(idle)
}

// joins reports whether a checkpoint joins a round that another one has begun. If it does so early
// enough, it needs neither its own transaction nor additional rows.
func (p Policy) joins(saved, now time.Time, events uint64) bool {
	return events > 0 && now.Sub(saved) >= p.Interval/2
}

// reason returns the reason for saving a checkpoint with a number of new events.
func (p Policy) reason(events uint64) Reason {
	if events > 0 {
		return ReasonInterval
	}
	return ReasonIdle
}
