package checkpoint_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/checkpoint/checkpointtest"
	"github.com/mongostream/streamer/snapshot"
)

// What is left of a snapshot of some partitions is left in all of them where they are counted
// otherwise: the numbers mean nothing then.
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

// Sessions that have some partitions each save what is left there, and take nothing away from each
// other.
func TestSnapshotsOfPartialSavesAreOfTheirPartitions(t *testing.T) {
	orders, carts := change.Namespace{DB: "shop", Coll: "orders"}, change.Namespace{DB: "shop", Coll: "carts"}
	from := change.Value{Type: 0x10, Data: []byte{1, 0, 0, 0}}
	left := func(of []change.Partition, all ...snapshot.Left) []snapshot.Progress {
		return []snapshot.Progress{{Subscription: "docs", Reason: snapshot.Loss, Partitions: of, Listed: true, Left: all}}
	}
	done := func(of ...change.Partition) []snapshot.Progress {
		return []snapshot.Progress{{Subscription: "docs", Reason: snapshot.Loss, Partitions: of, Listed: true, Done: true}}
	}
	of := func(all ...change.Partition) []change.Partition { return slices.Sorted(slices.Values(all)) }
	some, more := snapshot.Left{Namespace: orders, From: from}, snapshot.Left{Namespace: orders, From: change.Value{Type: 0x10, Data: []byte{9, 0, 0, 0}}}
	both := []snapshot.Left{{Namespace: carts, From: from}, {Namespace: orders, From: from}}
	part := func(event int, progress []snapshot.Progress, of ...change.Partition) checkpoint.Checkpoint {
		c := checkpointtest.Exclusive("gw", checkpoint.Claim{Number: 1}, change.Position{})
		c.Partitions, c.Positions, c.Snapshots = 4, make(map[change.Partition]change.Position), progress
		for _, p := range of {
			c.Positions[p] = checkpointtest.Event(event)
		}
		return c
	}
	stored := checkpointtest.Exclusive("gw", checkpoint.Claim{Number: 1}, checkpointtest.Event(1))
	stored.Partitions = 4
	for _, step := range []struct {
		name string
		save checkpoint.Checkpoint
		want []snapshot.Progress
	}{
		{"one has read some", part(2, left(nil, some), 0, 1), left(of(0, 1), some)},
		{"it has read more", part(2, left(nil, more), 0, 1), left(of(0, 1), more)},
		{"the other has read some", part(2, left(nil, both...), 2, 3), slices.Concat(left(of(0, 1), more), left(of(2, 3), both...))},
		{"one knows of none", part(3, nil, 0, 1), slices.Concat(left(of(0, 1), more), left(of(2, 3), both...))},
		{"one is done", part(3, done(), 0, 1), slices.Concat(left(of(2, 3), both...), done(0, 1))},
		{"a partition has moved to it", part(3, left(nil, both...), 0, 1, 2), slices.Concat(left(nil, both...))},
		{"the other is done", part(4, done(), 2, 3), slices.Concat(left(of(0, 1), both...), done(2, 3))},
		{"both are", part(4, done(), 0, 1), done()},
		{"one begins again", part(5, left(nil), 0), slices.Concat(done(1, 2, 3), left(of(0)))},
		{"it has all partitions", part(6, left(nil, some), 0, 1, 2, 3), left(nil, some)},
		{"and is done", part(6, done(), 0, 1, 2, 3), done()},
	} {
		merged, _, err := checkpoint.Merge(&stored, step.save)
		if diff := cmp.Diff(step.want, merged.Snapshots); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", step.name, err, diff)
		}
		stored = merged
	}
}
