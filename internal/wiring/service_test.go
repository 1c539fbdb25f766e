package wiring

import (
	"reflect"
	"testing"
	"time"

	"github.com/mongostream/streamer/cluster/leader"
	"github.com/mongostream/streamer/cluster/plan"
	"github.com/mongostream/streamer/internal/config"
)

func TestLeaderLeadsAsConfigured(t *testing.T) {
	cfg, err := config.Load("", []string{
		"STREAMER_CLUSTER_ROUND_FLOOR=60ms", "STREAMER_CLUSTER_REBALANCE_DEBOUNCE=2s", "STREAMER_CLUSTER_RESYNC_DEBOUNCE=6s", "STREAMER_CLUSTER_RESYNC_RATE_LIMIT=11",
		"STREAMER_CLUSTER_ASSIGNMENT_CIRCUIT_FAILURE_THRESHOLD=4", "STREAMER_CLUSTER_ASSIGNMENT_CIRCUIT_HALF_OPEN_TIMEOUT=31s",
		"STREAMER_CLUSTER_ASSIGNMENT_CIRCUIT_SUCCESS_THRESHOLD=3",
	})
	if err != nil {
		t.Fatal(err)
	}
	want := leader.Config{
		RoundFloor: 60 * time.Millisecond, Debounce: 2 * time.Second,
		Config: plan.Config{ResyncDelay: 6 * time.Second, ResyncRate: 11, Failures: 4, OpenFor: 31 * time.Second, Successes: 3},
	}
	if got := leaderConfig(cfg.Cluster); !reflect.DeepEqual(got, want) { //nolint:govet // no field that could hold an error is set
		t.Errorf("%+v, want %+v", got, want)
	}
}
