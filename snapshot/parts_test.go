package snapshot_test

import (
	"encoding/binary"
	"testing"

	"pgregory.net/rapid"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/snapshot"
)

// What remains in two sets of partitions remains in both together: nothing less, and no more than
// that where the order of the places is known.
func TestWhatRemainsTogether(t *testing.T) {
	t.Parallel()
	ns := change.Namespace{DB: "shop", Coll: "orders"}
	place := func(typ byte, n int) change.Value {
		switch {
		case n == 0:
			return change.Value{}
		case typ == change.TypeObjectID:
			return change.Value{Type: typ, Data: append(make([]byte, 11), byte(n))}
		case typ == change.TypeInt32:
			return change.Value{Type: typ, Data: binary.LittleEndian.AppendUint32(nil, uint32(n-500))}
		case typ == change.TypeInt64:
			return change.Value{Type: typ, Data: binary.LittleEndian.AppendUint64(nil, uint64(n-500))}
		}
		return change.Value{Type: typ, Data: append(binary.LittleEndian.AppendUint32(nil, 2), byte(n), 0)}
	}
	rapid.Check(t, func(t *rapid.T) {
		types := rapid.SampledFrom([][2]byte{
			{change.TypeObjectID, change.TypeObjectID}, {change.TypeInt32, change.TypeInt64}, {change.TypeInt64, change.TypeInt64},
			{change.TypeString, change.TypeString}, {change.TypeInt64, change.TypeObjectID},
		}).Draw(t, "types")
		a, b := rapid.IntRange(0, 127).Draw(t, "a"), rapid.IntRange(0, 127).Draw(t, "b")
		round := rapid.Bool().Draw(t, "round")
		of := func(from change.Value) snapshot.Progress {
			l := snapshot.Left{Namespace: ns, From: from}
			if round {
				l.Until = from
			}
			return snapshot.Progress{Subscription: "s", Listed: true, Left: []snapshot.Left{l}}
		}
		together := of(place(types[0], a)).And(of(place(types[1], b)))
		want := snapshot.Left{Namespace: ns}
		switch known := types[0] == types[1] && types[0] != change.TypeString || types[0] == change.TypeInt32; {
		case a == b && types[0] == types[1]:
			want = of(place(types[0], a)).Left[0]
		case round || !known:
		case a <= b:
			want.From = place(types[0], a)
		default:
			want.From = place(types[1], b)
		}
		if got := together.Left[0]; len(together.Left) != 1 || got.Namespace != ns || !got.From.Equal(want.From) || !got.Until.Equal(want.Until) {
			t.Fatalf("%+v, want %+v", together.Left, want)
		}
	})
}

// What was read for another filter does not count.
func TestNothingRemainsReadForAnotherFilter(t *testing.T) {
	done := snapshot.Progress{Subscription: "s", Filter: 1, Listed: true, Done: true}
	other := done
	other.Filter = 2
	for _, all := range [][]snapshot.Progress{{done, other}, {other, done}} {
		if got := snapshot.Together(all); len(got) != 1 || got[0].Done || got[0].Listed {
			t.Errorf("%+v", got)
		}
	}
	if got := snapshot.Together([]snapshot.Progress{done, done}); len(got) != 1 || !got[0].Done {
		t.Errorf("%+v", got)
	}
}
