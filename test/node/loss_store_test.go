package node

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	devmongo "github.com/mongostream/streamer/dev/mongo"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/health"
	"github.com/mongostream/streamer/internal/etcd/etcdtest"
)

// claim is how long claims live in tests that wait until they have run out. A machine that stands
// still for ten seconds loses none of them before.
const claim = 30 * time.Second

// The store of checkpoints is cut off under load, for longer than a claim lives, and comes back:
// the node says that it is not well, nothing is lost, and the same node claims its partitions anew,
// where the checkpoints go on.
func TestStoreOfCheckpointsThatIsAwayUnderLoad(t *testing.T) {
	t.Parallel()
	storeAway(t, claim+3*time.Second, "STREAMER_CLUSTER_LEASE_TTL="+claim.String())
}

// Whoever reaches the store while a node does not may have its partitions once the claim has run
// out. The node hands out what is true log as long as nobody answers; then it ends, says why, and
// has moved no checkpoint.
func TestStoreOfCheckpointsThatIsAwayWhileAnotherProcessClaims(t *testing.T) {
	t.Parallel()
	r := newRig(t, devmongo.Config{})
	link, endpoint := etcdtest.NewLink(t, r.endpoint())
	first := r.begin("STREAMER_ETCD_ENDPOINTS="+endpoint, "STREAMER_CLUSTER_LEASE_TTL="+claim.String(), "STREAMER_RELIABILITY_SHUTDOWN_CHECKPOINT_TIMEOUT=1s")
	before := r.series(0, 20)
	first.sees(before...)
	heal := link.Cut()
	during := r.series(20, 40)
	first.sees(during...)
	second := r.begin("STREAMER_NODE_ID=m")
	after := r.series(40, 60)
	first.sees(after...)
	second.sees(slices.Concat(during, after)...)
	at := r.now()
	second.elsewhere(1)
	second.saved(at)
	heal()
	<-first.ended
	if fault.Of(first.err) != fault.NodeTermLost {
		t.Errorf("the node ended with %v", first.err)
	}
	for p, c := range r.stored(sharedName) {
		if c.By != "m" {
			t.Errorf("the checkpoint of partition %d is by %s", p, c.By)
		}
	}
	second.goesOn()
	if len(second.gaps()) != 0 || len(second.losses()) != 0 {
		t.Errorf("%d gaps, %d losses", len(second.gaps()), len(second.losses()))
	}
}

// Checkpoints in MongoDB that cannot be written hold nothing up either, and go on as they were.
func TestCheckpointsInMongoDBThatCannotBeWrittenForAWhile(t *testing.T) {
	t.Parallel()
	r := newRig(t, devmongo.Config{})
	n := r.begin("STREAMER_RELIABILITY_CHECKPOINT_BACKEND=mongo", "STREAMER_CLUSTER_LEASE_TTL="+claim.String(), "STREAMER_RELIABILITY_CIRCUIT_BREAKER_TIMEOUT=1s")
	before := r.series(0, 20)
	n.sees(before...)
	n.savedInMongoDB(r.now())
	epochs := n.epochs()
	r.fail("alwaysOn", 11600, "update")
	cut := time.Now()
	n.until("the claim would have run out", func() bool { return time.Since(cut) > claim+2*time.Second })
	during := r.series(20, 40)
	n.sees(during...)
	n.once(append(before, during...)...)
	n.until("the node says that it is not well", n.unwell)
	r.heal()
	at := r.now()
	n.elsewhere(1)
	n.savedInMongoDB(at)
	if now := n.epochs(); !slices.Equal(now, epochs) {
		t.Errorf("epochs are %v, were %v", now, epochs)
	}
}

// What passes while the store is away is bounded: the subscriber waits, and goes on when it is
// back.
func TestStoreOfCheckpointsThatIsAwayForTooMuch(t *testing.T) {
	t.Parallel()
	r := newRig(t, devmongo.Config{})
	link, endpoint := etcdtest.NewLink(t, r.endpoint())
	const unsaved = 100
	n := r.begin("STREAMER_ETCD_ENDPOINTS="+endpoint, "STREAMER_CLUSTER_LEASE_TTL="+claim.String(), fmt.Sprint("STREAMER_RELIABILITY_CHECKPOINT_MAX_UNSAVED=", unsaved))
	n.goesOn()
	heal := link.Cut()
	written := r.series(0, unsaved)
	n.sees(written...)
	written = append(written, r.series(unsaved, 3*unsaved)...)
	cut := time.Now()
	n.until("the claim has run out", func() bool { return time.Since(cut) > claim+2*time.Second })
	// It looks before it takes more, so that what was there when it last did may be more than the
	// bound.
	if got := len(n.ids()); got > 2*unsaved || got == len(written) {
		t.Errorf("%d of %d events have passed", got, len(written))
	}
	heal()
	n.sees(written...)
	n.goesOn()
}

// savedInMongoDB is saved for a node that keeps its checkpoints there.
func (n *live) savedInMongoDB(at change.Timestamp) {
	n.Helper()
	n.until("checkpoints reach "+at.String(), func() bool {
		saved, err := n.service.Checkpoints(context.Background())
		return err == nil && len(saved) == partitions && !slices.ContainsFunc(saved, func(c checkpoint.Checkpoint) bool { return c.Position.Time.Compare(at) < 0 })
	})
}

// epochs returns the epochs of the node's partitions.
func (n *live) epochs() (all []change.Epoch) {
	n.Helper()
	for _, s := range n.status() {
		all = append(all, s.Epoch)
	}
	return all
}

// unwell reports whether the node says that it is not well.
func (n *live) unwell() bool {
	return n.service.Health().Status != health.Healthy
}

// storeAway cuts the store off for a length of time, which is more than a claim lives, and at least
// until the node is not well.
func storeAway(t *testing.T, length time.Duration, settings ...string) {
	t.Helper()
	r := newRig(t, devmongo.Config{})
	link, endpoint := etcdtest.NewLink(t, r.endpoint())
	n := r.begin(append(settings, "STREAMER_ETCD_ENDPOINTS="+endpoint, "STREAMER_RELIABILITY_CHECKPOINT_EVENT_COUNT=100",
		"STREAMER_RELIABILITY_SHUTDOWN_CHECKPOINT_TIMEOUT=1s", "STREAMER_RELIABILITY_CIRCUIT_BREAKER_TIMEOUT=1s")...)
	n.goesOn()
	epochs := n.epochs()

	var written []string
	var writing sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	defer writing.Wait()
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
	n.until("checkpoints are saved under load", func() bool { return n.metric("streamer_checkpoints_saved_total") > 0 })
	heal := link.Cut()
	cut, before := time.Now(), r.stored(sharedName)
	n.until("the node says that it is not well", n.unwell)
	n.until("it has been away for long enough", func() bool { return time.Since(cut) >= length })
	for p, c := range r.stored(sharedName) {
		if c.Position.Compare(before[p].Position) != 0 && c.At.After(cut) {
			t.Errorf("a checkpoint of partition %d has come through", p)
		}
	}
	if now := n.epochs(); !slices.Equal(now, epochs) {
		t.Errorf("epochs are %v, were %v", now, epochs)
	}
	n.goesOn()
	heal()
	n.until("all partitions are claimed anew", func() bool {
		serving := n.service.Node().Status()
		for i, s := range serving {
			if s.Epoch.Compare(epochs[i]) <= 0 {
				return false
			}
		}
		return len(serving) == partitions
	})
	stop()
	writing.Wait()
	at := r.now()
	n.sees(written...)
	n.inOrder(t)
	n.elsewhere(1)
	n.saved(at)
	n.until("the node is well again", func() bool { return !n.unwell() })
	if len(n.gaps()) != 0 || len(n.losses()) != 0 {
		t.Errorf("%d gaps, %d losses", len(n.gaps()), len(n.losses()))
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
