package mongodb

import (
	"testing"
	"time"
)

// While nobody answers whether the oplog grows, the last answer counts for a minute, and nobody is
// asked at once again.
func TestGrowthIsBelievedForAMinute(t *testing.T) {
	begun := time.Now()
	last := growth{}.next(begun, true, true)
	for after := growingFor; after < 2*growingMost; after += growingFor {
		now := begun.Add(after)
		last = last.next(now, false, false)
		if want := after < growingMost; last.growing != want || !last.asked.Equal(now) {
			t.Errorf("%s after the answer: %+v, growing should be %t", after, last, want)
		}
	}
}
