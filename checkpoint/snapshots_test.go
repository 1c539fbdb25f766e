package checkpoint_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/checkpoint/checkpointtest"
	"github.com/mongostream/streamer/snapshot"
)

// What is left of a snapshot of some partitions is left in all of them where they are counted otherwise: the numbers mean nothing then.
func TestSnapshotsOfPartitionsThatAreCountedAnewAreOfAll(t *testing.T) {
	of := func(partitions int, event int, of ...change.Partition) checkpoint.Checkpoint {
		c := checkpointtest.Exclusive("gw", checkpoint.Claim{Number: 1}, checkpointtest.Event(event))
		c.Partitions = partitions
		c.Snapshots = []snapshot.Progress{{Subscription: "orders", Reason: snapshot.Loss, Partitions: of, Read: 7}}
		return c
	}
	all := of(0, 1).Snapshots
	if c, err := of(3, 5, 1, 3).Trimmed(); err == nil {
		t.Errorf("kept with a snapshot of partition 3 of 3: %+v", c)
	}
	if c, err := of(4, 5, 1, 3).Trimmed(); err != nil || !cmp.Equal(c, of(4, 5, 1, 3)) {
		t.Errorf("%+v, %v", c, err)
	}
	for _, partitions := range []int{2, 8} {
		stands := of(4, 9, 1, 3)
		merged, changed, err := checkpoint.Merge(&stands, of(partitions, 5))
		if diff := cmp.Diff(all, merged.Snapshots); err != nil || !changed || diff != "" {
			t.Errorf("%t, %v, merged for %d partitions (-want +got):\n%s", changed, err, partitions, diff)
		}
		if _, err := checkpoint.Encode(merged, checkpoint.Trail{}); err != nil {
			t.Error(err)
		}
	}
}
