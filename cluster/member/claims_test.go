package member

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/cluster"
)

// A lateRegistry answers that partitions are claimed again after the claim was made anew.
type lateRegistry struct {
	cluster.Registry

	claimed   uint64 // the revision of the last claim of all partitions
	meanwhile func()
}

func (r *lateRegistry) Claim(_ context.Context, _ cluster.Identity, n int, _ time.Duration, _ bool) ([]change.Epoch, error) {
	r.claimed += 10
	return epochsOf(n, r.claimed), nil
}

func (r *lateRegistry) Reclaim(_ context.Context, partitions []change.Partition) ([]change.Epoch, error) {
	epochs := epochsOf(len(partitions), r.claimed+1)
	r.meanwhile()
	return epochs, nil
}

func epochsOf(n int, revision uint64) []change.Epoch {
	return slices.Repeat([]change.Epoch{{Incarnation: 1, Revision: revision}}, n)
}

// An answer of a claim that has run out says nothing of the one that was made in its place: its
// epochs would be refused.
func TestLateAnswerOfAnEarlierClaimIsNotBelieved(t *testing.T) {
	r := &lateRegistry{}
	c := &claims{Registry: r, cfg: SoloConfig{Member: cluster.Identity{Node: "n", Process: "p"}, Partitions: 2}, changed: make(chan struct{}, 1)}
	join := func() {
		if _, err := c.Join(t.Context(), cluster.Heartbeat{}, time.Second); err != nil {
			t.Error(err)
		}
	}
	join()
	r.meanwhile = join
	given, _ := c.known()
	if err := c.Return(t.Context(), []change.Partition{1}, []change.Epoch{given[1].Epoch}); err != nil {
		t.Fatal(err)
	}
	owners, err := c.Claim(t.Context(), []change.Partition{0, 1})
	if err != nil {
		t.Fatal(err)
	}
	for p, owner := range owners {
		if owner.Process != "p" || owner.Epoch.Revision != r.claimed {
			t.Errorf("partition %d is claimed with epoch %s", p, owner.Epoch)
		}
	}
}
