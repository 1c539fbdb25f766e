package checkpoint_test

import (
	"fmt"
	"testing"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/snapshot"
)

// A subscriber that has moved on in every partition is nowhere where it began: whoever resumes or
// rewinds it must not go back there.
func TestCheckpointIsWhereItIsEarliest(t *testing.T) {
	at := func(seconds uint32) change.Position { return change.At(change.Timestamp{T: seconds, I: 1}) }
	key := checkpoint.Key{Subscriber: "s"}
	stands := checkpoint.Checkpoint{Key: key, Position: at(10), Partitions: 3}
	saved := checkpoint.Checkpoint{Key: key, Partitions: 3, Positions: map[change.Partition]change.Position{0: at(20), 1: at(30)}}
	merged, _, err := checkpoint.Merge(&stands, saved)
	if err != nil || merged.Earliest().Compare(at(10)) != 0 || merged.In(2).Compare(at(10)) != 0 {
		t.Errorf("one partition is where it began: %+v, %v", merged, err)
	}
	saved.Positions = map[change.Partition]change.Position{2: at(25), 0: at(40)}
	merged, changed, err := checkpoint.Merge(&merged, saved)
	if err != nil || !changed || merged.Earliest().Compare(at(25)) != 0 {
		t.Errorf("%+v, %v", merged, err)
	}
	for p, want := range []change.Position{at(40), at(30), at(25)} {
		if got := merged.In(change.Partition(p)); got.Compare(want) != 0 {
			t.Errorf("partition %d is at %s, want %s", p, got, want)
		}
	}
	back, err := merged.Rewound(at(35), 1, "operator", "a test")
	if err != nil || back.Earliest().Compare(at(25)) != 0 || back.In(0).Compare(at(35)) != 0 {
		t.Errorf("rewound to %+v, %v", back, err)
	}
}

// Where every partition is elsewhere, nobody is at the position itself: it follows the earliest of
// them, or it would leave the oplog for nothing.
func TestPositionOfNobodyFollows(t *testing.T) {
	t.Parallel()
	at := func(i uint32) change.Position { return change.At(change.Timestamp{T: 1, I: i}) }
	stands := checkpoint.Checkpoint{Key: checkpoint.Key{Subscriber: "a"}, Position: at(1), Positions: map[change.Partition]change.Position{0: at(5)}, Partitions: 2}
	save := checkpoint.Checkpoint{Key: stands.Key, Positions: map[change.Partition]change.Position{1: at(7)}, Partitions: 2}
	merged, changed, err := checkpoint.Merge(&stands, save)
	if err != nil || !changed || merged.Position.Compare(at(5)) != 0 || merged.In(0).Compare(at(5)) != 0 || merged.In(1).Compare(at(7)) != 0 {
		t.Errorf("%+v, changed: %t, %v", merged, changed, err)
	}
}

// Where all partitions meet at one position, the checkpoint has that alone, as it is decoded.
func TestPartitionsThatMeetHaveOnePosition(t *testing.T) {
	t.Parallel()
	at := func(i uint32) change.Position { return change.At(change.Timestamp{T: 1, I: i}) }
	stands := checkpoint.Checkpoint{Key: checkpoint.Key{Subscriber: "a"}, Position: at(1), Positions: map[change.Partition]change.Position{0: at(7)}, Partitions: 2}
	save := checkpoint.Checkpoint{Key: stands.Key, Positions: map[change.Partition]change.Position{1: at(7)}, Partitions: 2}
	merged, _, err := checkpoint.Merge(&stands, save)
	if err != nil || merged.Position.Compare(at(7)) != 0 || merged.Positions != nil {
		t.Errorf("%+v, %v", merged, err)
	}
}

// A snapshot that a session begins that is earlier than the checkpoint is in the checkpoint from
// then on, from its beginning: nobody else knows of it.
func TestSnapshotOfAnEarlierSessionIsOwed(t *testing.T) {
	t.Parallel()
	at := func(i uint32) change.Position { return change.At(change.Timestamp{T: 1, I: i}) }
	orders, users := change.Namespace{DB: "shop", Coll: "orders"}, change.Namespace{DB: "shop", Coll: "users"}
	whole := func(all ...change.Namespace) (left []snapshot.Left) {
		for _, ns := range all {
			left = append(left, snapshot.Left{Namespace: ns})
		}
		return left
	}
	done := snapshot.Progress{Subscription: "a", Reason: snapshot.Start, Number: 1, Listed: true, Done: true, Read: 7}
	reading := snapshot.Progress{Subscription: "a", Reason: snapshot.Loss, Number: 1, Some: []change.Namespace{users}, Listed: true, Left: whole(users)}
	begun := snapshot.Progress{Subscription: "a", Reason: snapshot.Operator, Number: 2}
	some := snapshot.Progress{Subscription: "a", Reason: snapshot.Operator, Number: 2, Some: []change.Namespace{orders}, Listed: true, Left: whole(orders)}
	for name, c := range map[string]struct {
		stored, session, want []snapshot.Progress
	}{
		"one that begins":                {[]snapshot.Progress{done}, []snapshot.Progress{begun}, []snapshot.Progress{begun}},
		"of a new subscription":          {nil, []snapshot.Progress{begun}, []snapshot.Progress{begun}},
		"complete before the position":   {[]snapshot.Progress{done}, []snapshot.Progress{{Subscription: "a", Reason: snapshot.Operator, Number: 2, Listed: true, Done: true}}, []snapshot.Progress{begun}},
		"of one collection":              {[]snapshot.Progress{done}, []snapshot.Progress{some}, []snapshot.Progress{some}},
		"beside one of another":          {[]snapshot.Progress{reading}, []snapshot.Progress{some}, []snapshot.Progress{{Subscription: "a", Reason: snapshot.Operator, Number: 2, Some: []change.Namespace{users, orders}, Listed: true, Left: whole(users, orders)}}},
		"of all beside one of another":   {[]snapshot.Progress{reading}, []snapshot.Progress{begun}, []snapshot.Progress{begun}},
		"the same, of which less is had": {[]snapshot.Progress{done}, []snapshot.Progress{{Subscription: "a", Reason: snapshot.Start, Number: 1}}, []snapshot.Progress{done}},
		"none":                           {[]snapshot.Progress{reading}, nil, []snapshot.Progress{reading}},
	} {
		stored := checkpoint.Checkpoint{Key: checkpoint.Key{Subscriber: "s"}, Position: at(5), Partitions: 2, Snapshots: c.stored}
		session := checkpoint.Checkpoint{Key: stored.Key, Position: at(4), Partitions: 2, Snapshots: c.session}
		merged, _, err := checkpoint.Merge(&stored, session)
		if got := fmt.Sprintf("%+v", merged.Snapshots); err != nil || got != fmt.Sprintf("%+v", c.want) {
			t.Errorf("%s: %s, %v, want %+v", name, got, err, c.want)
		}
		session.Position = at(5)
		if merged, _, err = checkpoint.Merge(&stored, session); err != nil || fmt.Sprintf("%+v", merged.Snapshots) != fmt.Sprintf("%+v", c.session) {
			t.Errorf("%s, at the position of the checkpoint: %+v, %v", name, merged.Snapshots, err)
		}
	}
}

// The first checkpoint of a partition, which its subscriber's session may have got late, has no
// loss from before its beginning.
func TestFirstCheckpointHasNoEarlierLosses(t *testing.T) {
	t.Parallel()
	at := func(i uint32) change.Position { return change.At(change.Timestamp{T: 1, I: i}) }
	key := checkpoint.Key{Subscriber: "a", Shared: true, Partition: 1}
	losses := []checkpoint.Gap{{From: at(1), To: at(3), Reason: "old"}, {From: at(4), To: at(6), Reason: "new"}}
	c := checkpoint.Checkpoint{Key: key, Position: at(7), Began: checkpoint.NewBeginning(at(5).Time), Partitions: 2, Losses: losses}
	merged, _, err := checkpoint.Merge(nil, c)
	if err != nil || len(merged.Losses) != 1 || merged.Losses[0].Reason != "new" || losses[0].Reason != "old" {
		t.Errorf("%+v, %v", merged.Losses, err)
	}
}
