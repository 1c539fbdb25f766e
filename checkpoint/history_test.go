package checkpoint_test

import (
	"testing"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/snapshot"
)

// A checkpoint that was lost numbers its entries from 1 again: those from before are not taken for
// the newest once an operator has moved it back, because they are after that.
func TestEntriesFromBeforeARewindAreNotTheNewest(t *testing.T) {
	var h checkpoint.History
	at := func(seconds uint32, generation, number uint64) {
		c := checkpoint.Checkpoint{Position: change.At(change.Timestamp{T: seconds}), Generation: generation, Epoch: change.Epoch{Incarnation: 1}}
		h.Add(c, checkpoint.Trail{Entries: number})
	}
	at(70, 0, 7)
	at(80, 0, 8)
	at(85, 0, 1) // it was lost
	at(20, 1, 2) // and moved back
	at(25, 1, 3)
	if last, trail, ok := h.Last(); !ok || last.Position.Time.T != 25 || trail.Entries != 3 {
		t.Errorf("%+v, %+v, %t", last, trail, ok)
	}
}

// A checkpoint that is repaired from its history has its unfinished snapshots from their
// beginnings.
func TestRepairedCheckpointsOweTheirSnapshots(t *testing.T) {
	at := change.At(change.Timestamp{T: 100, I: 1})
	left := snapshot.Progress{Subscription: "a", Reason: snapshot.Operator, Number: 3, Listed: true, Left: []snapshot.Left{{Namespace: change.Namespace{DB: "shop", Coll: "orders"}}}}
	stood := checkpoint.Checkpoint{
		Key: checkpoint.Key{Subscriber: "sink", Shared: true}, Partitions: 1, Position: at,
		Snapshots: []snapshot.Progress{left, {Subscription: "b", Done: true}},
	}
	repaired, err := stood.Entry().Repaired(at, 1, "ann", "")
	if err != nil || len(repaired.Snapshots) != 1 || repaired.Snapshots[0].Listed || repaired.Snapshots[0].Number != left.Number {
		t.Errorf("%+v, %v", repaired.Snapshots, err)
	}
}
