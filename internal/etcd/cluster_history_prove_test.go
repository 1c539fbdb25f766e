//go:build prove

package etcd

import (
	"testing"

	"github.com/mongostream/streamer/internal/etcd/etcdtest"
)

func TestProveHistoriesOfClaimsAndMarksHaveOneOwner(t *testing.T) {
	endpoints := etcdtest.Endpoints(t)
	total := 0
	for seed := range uint64(100) {
		operations, _ := checkHistory(t, endpoints, 1000+seed, 60)
		total += operations
	}
	t.Logf("%d operations", total)
}
