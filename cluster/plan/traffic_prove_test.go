//go:build prove

package plan_test

import (
	"testing"
	"time"

	"github.com/mongostream/streamer/cluster/plan"
)

// The same with heartbeats as they come, for longer, and with several seeds.
func TestProveRebalancingRestsAndCorrects(t *testing.T) {
	cfg := plan.Config{Node: "node-00", Partitions: 1000, Expected: 30}
	for seed := range uint64(4) {
		rests(t, cfg, seed+2, 3*time.Hour)
		corrects(t, cfg, seed+2, 15, random)
		corrects(t, cfg, seed+2, 1500, random)
		corrects(t, cfg, seed+2, 15, steady)
		corrects(t, cfg, seed+2, 1500, steady)
	}
}
