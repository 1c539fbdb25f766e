package node

import (
	"testing"

	devmongo "github.com/mongostream/streamer/dev/mongo"
)

// A node that stops waits until another one owns its partitions, if
// reliability.shutdown.drain_timeout lets it.
func TestStopWaitsForPartitionsAsConfigured(t *testing.T) {
	t.Parallel()
	r := newRig(t, devmongo.Config{}, "STREAMER_CLUSTER_HEARTBEAT_INTERVAL=500ms")
	stays := r.beginWith(nil, several("n1")...)
	stops := r.beginWith(nil, append(several("n2"), "STREAMER_RELIABILITY_SHUTDOWN_DRAIN_TIMEOUT=2m")...)
	stays.until("both nodes serve", func() bool { return stays.serves() == partitions/2 && stops.serves() == partitions/2 })
	stops.until("both are known to be healthy", func() bool {
		m := stops.service.Health().Membership
		return m != nil && m.Members["healthy"] == 2
	})
	before := stops.metric("streamer_handoffs_total")
	stops.stopped()
	if n := stops.metric("streamer_handoffs_total") - before; n != partitions/2 {
		t.Errorf("%v partitions were handed over by the node that stopped, want %d", n, partitions/2)
	}
}
