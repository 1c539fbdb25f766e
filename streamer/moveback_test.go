package streamer

import (
	"maps"
	"testing"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/change/changetest"
	"github.com/mongostream/streamer/delivery"
)

// After a missed rewind a session begins, in each partition, at the earlier of the operator's place
// and the subscriber's own one.
func TestMissedRewindMovesNoPartitionForward(t *testing.T) {
	at := func(seconds uint32) delivery.Place {
		return delivery.Place{At: change.At(change.Timestamp{T: seconds, I: 1})}
	}
	event := func(id int64, seconds uint32) delivery.Place {
		return delivery.Place{At: changetest.Event{ID: id, Time: change.Timestamp{T: seconds, I: 1}}.Position()}
	}
	ref := func(p delivery.Place) delivery.Place { return delivery.Place{Ref: p.At.Ref()} }
	type places = map[change.Partition]delivery.Place
	for _, c := range []struct {
		name        string
		stored, own delivery.Place
		storedIn    places
		ownIn       places
		want        delivery.Place
		wantIn      places
	}{
		{name: "own is earlier", stored: at(50), own: at(40), want: at(40)},
		{name: "own is later", stored: at(50), own: at(60), want: at(50)},
		{name: "own is unknown", stored: at(50), want: at(50)},
		{name: "own is the same event", stored: event(1, 50), own: ref(event(1, 50)), want: event(1, 50)},
		{name: "only the log knows their order", stored: event(1, 50), own: ref(event(2, 50)), want: ref(event(2, 50))},
		{name: "own is a reference, and earlier", stored: at(50), own: ref(event(1, 40)), want: ref(event(1, 40))},
		{
			name: "one is earlier in some partitions, the other in others", stored: at(50), storedIn: places{1: at(30), 2: at(70)},
			own: at(60), ownIn: places{1: at(40), 2: at(65)}, want: at(50), wantIn: places{1: at(30), 2: at(65)},
		},
		{
			name: "a partition that only the checkpoint has is at the rest of own", stored: at(50), storedIn: places{1: at(70), 2: at(30)},
			own: at(40), want: at(40), wantIn: places{1: at(40), 2: at(30)},
		},
		{
			name: "a partition that only own has is at the rest of the checkpoint", stored: at(50),
			own: at(40), ownIn: places{1: at(45), 2: at(70)}, want: at(40), wantIn: places{1: at(45), 2: at(50)},
		},
		{
			name: "own is unknown in a partition", stored: at(50), storedIn: places{1: at(30)},
			own: at(40), ownIn: places{1: {}}, want: at(40), wantIn: places{1: at(30)},
		},
	} {
		stored, own := maps.Clone(c.storedIn), maps.Clone(c.ownIn)
		cfg := delivery.SessionConfig{Start: c.stored, Partitions: stored}
		Request{At: c.own, Partitions: own}.moveBack(&cfg)
		same := func(p, q delivery.Place) bool { return p.At.Compare(q.At) == 0 && p.Ref == q.Ref }
		if !same(cfg.Start, c.want) || !maps.EqualFunc(cfg.Partitions, c.wantIn, same) {
			t.Errorf("%s: it begins at %v, %v, want %v, %v", c.name, cfg.Start, cfg.Partitions, c.want, c.wantIn)
		}
		if !maps.EqualFunc(stored, c.storedIn, same) || !maps.EqualFunc(own, c.ownIn, same) {
			t.Errorf("%s: the places that were given have changed", c.name)
		}
	}
}
