//go:build prove

package node

import (
	"slices"
	"testing"
	"time"

	devmongo "github.com/mongostream/streamer/dev/mongo"
	"github.com/mongostream/streamer/health"
	"github.com/mongostream/streamer/notice"
	"github.com/mongostream/streamer/streamer"
)

func TestProveStoreOfCheckpointsThatIsAwayForAMinuteUnderLoad(t *testing.T) {
	storeAway(t, time.Minute, "STREAMER_CLUSTER_LEASE_TTL=10s")
}

// A server that lets nothing be read for more than half a minute: the partitions are stuck, and
// operators are told, until it is over.
func TestProveServerThatRefusesEverythingIsStuck(t *testing.T) {
	for _, code := range []int{286, 11600} {
		r := newRig(t, devmongo.Config{NoopEvery: 100 * time.Millisecond})
		n := r.begin()
		n.sees(r.series(0, 20)...)
		opened, begun := r.server.Stats().ChangeStreamsOpened, time.Now()
		r.fail("alwaysOn", code, "getMore", "aggregate")
		r.series(20, 40)
		n.until("all partitions are stuck", func() bool {
			return !slices.ContainsFunc(n.status(), func(s streamer.PartitionStatus) bool { return s.State != health.Stuck })
		})
		if took := time.Since(begun); took < 25*time.Second {
			t.Errorf("stuck after %v", took)
		}
		n.until("operators are told", func() bool { return slices.Contains(n.posted(notice.Health), notice.KindProblem) })
		if again := r.server.Stats().ChangeStreamsOpened - opened; again > 10+int64(time.Since(begun)/time.Second) {
			t.Errorf("opened %d times", again)
		}
		r.heal()
		n.sees(idsUpTo(40)...)
		n.until("all partitions are well", func() bool {
			return !slices.ContainsFunc(n.status(), func(s streamer.PartitionStatus) bool { return s.State != health.Healthy && s.State != health.Idle })
		})
		n.until("operators are told so", func() bool { return slices.Contains(n.posted(notice.Health), notice.KindProblemOver) })
		if len(n.gaps()) != 0 || len(n.losses()) != 0 {
			t.Errorf("%d gaps, %d losses", len(n.gaps()), len(n.losses()))
		}
	}
}
