package leader

import (
	"testing"
	"time"
)

func TestRoundsFollowEachOtherAsConfigured(t *testing.T) {
	c := Config{RoundFloor: 200 * time.Millisecond, Debounce: 3 * time.Second}
	for took, want := range map[time.Duration]time.Duration{time.Millisecond: 200 * time.Millisecond, 100 * time.Millisecond: 900 * time.Millisecond, time.Second: 3 * time.Second} {
		if got := c.rest(took); got != want {
			t.Errorf("a pause of %v after a round of %v, want %v", got, took, want)
		}
	}
}
