package wiring

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"mongostream/fault"
	"mongostream/health"
	"mongostream/internal/devmongo"
	"mongostream/internal/etcd/etcdtest"
)

// The store of marks is cut off under load and comes back: the node says that it is not well, nothing is lost, and marks go on.
func TestStoreOfMarksThatIsAwayUnderLoad(t *testing.T) {
	t.Parallel()
	storeAway(t, 0)
}

// Where the store is away until the claim on the partitions is lost, another may have them: the node ends and says why. What it had not
// marked comes again from the next one.
func TestStoreOfMarksThatIsAwayUntilTheClaimIsLost(t *testing.T) {
	t.Parallel()
	r := newRig(t, devmongo.Config{})
	link, endpoint := etcdtest.NewLink(t, r.endpoint())
	n := r.begin("STREAMER_ETCD_ENDPOINTS="+endpoint, "STREAMER_CLUSTER_LEASE_TTL=5s", "STREAMER_RELIABILITY_SHUTDOWN_CHECKPOINT_TIMEOUT=1s")
	before := r.series(0, 20)
	n.sees(before...)
	heal := link.Cut()
	during := r.series(20, 40)
	<-n.ended
	if fault.Of(n.err) != fault.NodeTermLost {
		t.Errorf("the node ended with %v", n.err)
	}
	heal()
	after := r.series(40, 60)
	next := r.begin()
	next.until("all has arrived", func() bool {
		return len(missing(append(n.ids(), next.ids()...), slices.Concat(before, during, after))) == 0
	})
	next.goesOn()
	if len(next.gaps()) != 0 || len(next.notices()) != 0 {
		t.Errorf("%d gaps, %d notices", len(next.gaps()), len(next.notices()))
	}
}

// storeAway cuts the store off for a length of time, at least until the node is not well.
func storeAway(t *testing.T, length time.Duration) {
	t.Helper()
	r := newRig(t, devmongo.Config{})
	link, endpoint := etcdtest.NewLink(t, r.endpoint())
	n := r.begin("STREAMER_ETCD_ENDPOINTS="+endpoint, "STREAMER_CLUSTER_LEASE_TTL=5m", "STREAMER_RELIABILITY_CHECKPOINT_EVENT_COUNT=100",
		"STREAMER_RELIABILITY_SHUTDOWN_CHECKPOINT_TIMEOUT=1s", "STREAMER_RELIABILITY_CIRCUIT_BREAKER_TIMEOUT=1s")
	n.goesOn()

	var written []string
	var writing sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	writing.Go(func() {
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for i := 0; ctx.Err() == nil; i += 10 {
			written = append(written, r.series(i, i+10)...)
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	})
	n.until("marks are saved under load", func() bool { return n.metric("streamer_checkpoints_saved_total") > 0 })
	heal := link.Cut()
	cut, before := time.Now(), r.stored()
	n.until("the node says that it is not well", func() bool {
		return health.Overall(n.service.health().Results(), n.service.partitions()) != health.Healthy
	})
	n.until("it has been away for long enough", func() bool { return time.Since(cut) >= length })
	for p, m := range r.stored() {
		if m.Position.Compare(before[p].Position) != 0 && m.At.After(cut) {
			t.Errorf("a mark of partition %d has come through", p)
		}
	}
	heal()
	n.until("all partitions are served again", func() bool { return len(n.service.node.Status()) == partitions })
	stop()
	writing.Wait()
	at := r.now()
	n.sees(written...)
	n.elsewhere(1)
	n.marked(at)
	n.until("the node is well again", func() bool {
		return health.Overall(n.service.health().Results(), n.service.partitions()) == health.Healthy
	})
	if len(n.gaps()) != 0 || len(n.notices()) != 0 {
		t.Errorf("%d gaps, %d notices", len(n.gaps()), len(n.notices()))
	}
}

// endpoint returns the address of the rig's etcd.
func (r *rig) endpoint() string {
	for _, s := range r.settings {
		if value, ok := strings.CutPrefix(s, "STREAMER_ETCD_ENDPOINTS="); ok {
			return strings.TrimPrefix(value, "http://")
		}
	}
	return ""
}
