package process

import (
	"syscall"
	"testing"

	"github.com/mongostream/streamer/fault"
)

// A node that is configured to be alone is refused beside nodes that share the partitions, which
// notice nothing of it; so is one of those beside a node that is alone.
func TestNodeThatWouldBeAloneIsRefusedBesideACluster(t *testing.T) {
	t.Parallel()
	for _, backend := range backends() {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t, backend, 2, "STREAMER_CLUSTER_REBALANCE=1h") // so that whatever moves has been moved by the other
			f.begin()
			stop := f.write(100)
			before := f.view()
			alone := f.add("alone", "STREAMER_CLUSTER_EXPECTED_NODES=1")
			f.ships = f.ships[:2]
			alone.process = alone.lab.node()
			alone.refused(fault.NodeRunning, "node-")
			if some := moved(before, f.view()); len(some) > 0 {
				t.Errorf("partitions %v moved", some)
			}
			stop()
			f.judge()

			alone.process = alone.lab.node("--take-over")
			alone.await(nodeRuns)
			member := f.ships[0]
			member.process = member.lab.node()
			member.refused(fault.NodeRunning, "alone")
			alone.signal(syscall.SIGTERM)
			if code := alone.wait(); code != 0 {
				t.Errorf("exit code %d", code)
			}
			member.launch() // which may be alone for now
			member.await(nodeRuns)
			f.settled(nil, patience)
		})
	}
}
