//go:build prove

package process

import (
	"fmt"
	"testing"
	"time"
)

// Fifty kills in fleets that are new after each five: who dies again and again is given little.
func TestProvePartitionsOfKilledOwnersAreDeliveredAgainInTime(t *testing.T) {
	t.Parallel()
	for series := range 10 {
		t.Run(fmt.Sprint(series), func(t *testing.T) {
			t.Parallel()
			kills(t, "etcd", 5)
		})
	}
}

func TestProveNobodyHandsOutAnythingWhileEtcdIsAwayForLong(t *testing.T) {
	t.Parallel()
	const way = "nothing arrives"
	away(t, 5*time.Minute, map[string][]string{way: toxics()[way]})
}

// Each fault of one member of etcd lasts for a minute.
func TestProveFaultsOfOneEtcdMemberHarmNobody(t *testing.T) {
	t.Parallel()
	besiege(t, time.Minute)
}
