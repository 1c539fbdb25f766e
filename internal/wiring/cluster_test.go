package wiring

import (
	"fmt"
	"testing"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/gateway/client"
	"github.com/mongostream/streamer/gateway/client/notice"
	"github.com/mongostream/streamer/internal/devmongo"
)

// several are the settings of a node of two.
func several(node string) []string {
	return []string{
		"STREAMER_NODE_ID=" + node, "STREAMER_CLUSTER_EXPECTED_NODES=2", "STREAMER_CLUSTER_SETTLE_TIME=200ms", "STREAMER_GATEWAY_HOLD=0s",
		"STREAMER_RELIABILITY_SHUTDOWN_DRAIN_TIMEOUT=0s",
	}
}

// A gateway has its session with one node, and an operator moves back a partition that another one owns.
func TestGatewaysOfEveryNodeAreToldOfARewind(t *testing.T) {
	t.Parallel()
	r := newRig(t, devmongo.Config{})
	nodes := []*live{r.begin(several("n1")...), r.begin(several("n2")...)}
	everything := client.Subscription{ID: "all", DB: "shop"}
	programs := make([]*program, len(nodes))
	for i, n := range nodes {
		programs[i] = n.connect(client.Config{GatewayID: fmt.Sprint("g", i)}, everything)
		programs[i].told(t, "connected", connected)
	}
	owner := func(p change.Partition) *live {
		for _, n := range nodes {
			if n.service.node.Epoch(p) != (change.Epoch{}) {
				return n
			}
		}
		return nil
	}
	nodes[0].until("all partitions are owned", func() bool {
		for p := range change.Partition(partitions) {
			if owner(p) == nil {
				return false
			}
		}
		return true
	})
	began := r.now()
	r.insert("a", "b", "c", "d", "e", "f", "g", "h")
	for _, p := range programs {
		for range 8 {
			<-p.changes
		}
	}
	for p := range change.Partition(partitions) {
		nodes[0].until("a mark behind the changes", func() bool { return r.stored()[p].Position.Time.Compare(began) > 0 })
	}
	for p := range change.Partition(partitions) {
		if _, err := r.store.Rewind(t.Context(), p, change.At(began), "operator", "test"); err != nil {
			t.Fatal(err)
		}
	}
	for i, p := range programs {
		for range partitions {
			p.told(t, fmt.Sprintf("gateway %d hears of a rewind", i), func(n notice.Notice) bool {
				_, ok := n.(notice.Rewound)
				return ok
			})
		}
		for range 8 {
			<-p.changes // once more
		}
	}
}
