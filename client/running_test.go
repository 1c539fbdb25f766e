package client

import (
	"testing"
	"time"
)

// A process whose machine was suspended has run since it started; whose clock was set back has not
// run for less.
func TestRunningForCountsSuspendedTime(t *testing.T) {
	now := time.Now()
	for name, test := range map[string]struct{ startedAt, want time.Duration }{
		"as it is":       {5 * time.Minute, 5 * time.Minute},
		"suspended":      {time.Hour, time.Hour},
		"clock set back": {-time.Hour, 5 * time.Minute},
	} {
		c := &Client{started: now.Add(-5 * time.Minute), startedAt: now.Add(-test.startedAt).Round(0)}
		if got := c.runningFor(now); got.Round(time.Second) != test.want {
			t.Errorf("%s: %s", name, got)
		}
	}
}
