package etcd

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/health"
	"github.com/mongostream/streamer/internal/etcd/etcdtest"
)

// A member that serves every partition that a cluster can have is heard: what it says of them fits
// into one request.
func TestHeartbeatOfAllPartitionsThatCanBeIsWritten(t *testing.T) {
	t.Parallel()
	p := newClusterPlace(t, etcdtest.Endpoints(t))
	s := p.store(nil)
	m := p.join(s, "a")
	h := cluster.Heartbeat{Node: "node-a", Process: "a", Status: cluster.StatusHealthy}
	for q := range change.Partition(change.MaxPartitions) {
		h.Held = append(h.Held, cluster.HeldPartition{
			Partition: q, Epoch: change.Epoch{Incarnation: 1, Revision: 1_234_567_890}, Rate: 100 * math.Abs(math.Sin(float64(q))), State: string(health.Unhealthy),
		})
	}
	was := h.Held[1].Rate
	if err := m.Beat(t.Context(), h); err != nil {
		t.Fatal(err)
	}
	if h.Held[1].Rate != was {
		t.Error("the heartbeat was changed for who wrote it")
	}
	held := p.view(s).Members[0].Held
	if len(held) != change.MaxPartitions {
		t.Fatalf("%d partitions are told of", len(held))
	}
	for q := range held {
		if math.Abs(held[q].Rate-h.Held[q].Rate) > 0.001*max(1, h.Held[q].Rate) {
			t.Fatalf("partition %d: a rate of %g is told as %g", q, h.Held[q].Rate, held[q].Rate)
		}
	}
}

// A plan for every partition that a cluster can have is published, however long the names of the
// nodes are.
func TestPlanOfAllPartitionsThatCanBeIsPublished(t *testing.T) {
	t.Parallel()
	p := newClusterPlace(t, etcdtest.Endpoints(t))
	s := p.store(nil)
	leads, err := s.Campaign(t.Context(), "node-a")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = leads.Resign(t.Context()) }()
	plan := cluster.Plan{Version: 1, Reasons: []string{"by hash", "moved"}}
	for q := range change.MaxPartitions {
		name := fmt.Sprintf("%s-%d", strings.Repeat("n", 240), q%100)
		if q%100 == 99 {
			name = ""
		}
		plan.Owners, plan.Why = append(plan.Owners, name), append(plan.Why, uint8(q%2))
	}
	owners := slices.Clone(plan.Owners)
	if err := leads.Publish(t.Context(), plan); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(plan.Owners, owners) {
		t.Error("the plan was changed for who published it")
	}
	got := p.view(s).Plan
	if !slices.Equal(got.Owners, owners) || !slices.Equal(got.Why, plan.Why) || got.Reason(3) != "moved" {
		t.Errorf("%d owners are read, others than were written", len(got.Owners))
	}
}
