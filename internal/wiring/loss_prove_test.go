//go:build prove

package wiring

import (
	"testing"
	"time"
)

func TestProveStoreOfMarksThatIsAwayForAMinuteUnderLoad(t *testing.T) {
	storeAway(t, time.Minute)
}
