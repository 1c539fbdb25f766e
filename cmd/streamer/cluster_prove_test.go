//go:build prove

package main_test

import (
	"testing"
	"time"
)

func TestProvePartitionsOfKilledOwnersAreDeliveredAgainInTime(t *testing.T) {
	t.Parallel()
	kills(t, "etcd", 50)
}

func TestProveNobodyHandsOutAnythingWhileEtcdIsAwayForLong(t *testing.T) {
	t.Parallel()
	const way = "nothing arrives"
	away(t, 5*time.Minute, map[string][]string{way: toxics()[way]})
}
