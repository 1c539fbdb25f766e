package supervisor

import (
	"time"

	"github.com/mongostream/streamer/fault"
)

// Hard limits, which no configuration and no command exceeds.
const (
	maxInterval = 300 * time.Second
	maxMisses   = 10
)

// Settings are the settings of the supervisor: those that may be changed at runtime, within hard
// limits, and those that may not.
type Settings struct {
	Interval    time.Duration
	Misses      int
	AutoRestart bool
}

// Beyond these a component that fails is found later than the design expects.
const (
	usualInterval = 30 * time.Second
	usualMisses   = 3
)

// late reports whether a component that fails is found later than the design expects.
func (s Settings) late() bool { return s.Interval > usualInterval || s.Misses > usualMisses }

// A Change is an operator's change of the settings, for all nodes. Nil fields are as configured.
type Change struct {
	Interval    *float64 `json:"heartbeat_interval_s,omitempty"`
	Misses      *int     `json:"missed_heartbeats_to_alert,omitempty"`
	AutoRestart *bool    `json:"auto_restart,omitempty"`
	// PageOnFailure is locked: setting it to false is refused.
	PageOnFailure *bool  `json:"page_on_failure,omitempty"`
	By            string `json:"by,omitempty"`
}

// minInterval is the shortest interval: it is that of the configuration, too.
const minInterval = 500 * time.Millisecond

// Validate returns the fault ParameterLocked where a change is not within the limits.
func (c Change) Validate() error {
	switch {
	case c.PageOnFailure != nil && !*c.PageOnFailure:
		return fault.Newf(fault.ParameterLocked, "page_on_failure is locked: every component that is down is paged")
	case c.Interval != nil && (*c.Interval > maxInterval.Seconds() || *c.Interval < minInterval.Seconds()):
		return fault.Newf(fault.ParameterLocked, "heartbeat_interval must lie between %s and %s", minInterval, maxInterval)
	case c.Misses != nil && (*c.Misses > maxMisses || *c.Misses < 1):
		return fault.Newf(fault.ParameterLocked, "missed_heartbeats_to_alert must lie between 1 and %d", maxMisses)
	}
	return nil
}

// in returns the settings with a change, unless it is not within the limits.
func (s Settings) in(c Change) Settings {
	if c.Validate() != nil { // another process has written it
		return s
	}
	if c.Interval != nil {
		s.Interval = time.Duration(*c.Interval * float64(time.Second))
	}
	if c.Misses != nil {
		s.Misses = *c.Misses
	}
	if c.AutoRestart != nil {
		s.AutoRestart = *c.AutoRestart
	}
	return s
}

// locked are the locked settings as reports show them.
func locked() map[string]any {
	return map[string]any{
		"page_on_failure": true, "heartbeat_interval_max_s": maxInterval.Seconds(), "missed_heartbeats_to_alert_max": maxMisses,
	}
}
