//go:build prove

package council

import (
	"testing"

	"github.com/mongostream/streamer/internal/devetcd/devetcdtest"
)

func TestProveHistoriesOfClaimsAndMarksHaveOneOwner(t *testing.T) {
	endpoints := devetcdtest.Endpoints(t)
	total := 0
	for seed := range uint64(100) {
		operations, _ := checkHistory(t, endpoints, 1000+seed, 60)
		total += operations
	}
	t.Logf("%d operations", total)
}
