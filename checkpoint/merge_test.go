package checkpoint_test

import (
	"testing"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
)

// A subscriber that has moved on in every partition is nowhere where it began: whoever resumes or rewinds it must not go back there.
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

// Where every partition is elsewhere, nobody is at the position itself: it follows the earliest of them, or it would leave the oplog for nothing.
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
