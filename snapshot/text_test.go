package snapshot_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/snapshot"
)

// Text brings back what a subscriber has to have had to be where the progress is, and is bounded.
func TestTextOfProgress(t *testing.T) {
	p := snapshot.Progress{
		Subscription: "a", Filter: 1 << 63, Reason: snapshot.Loss, Number: 7, Listed: true, Read: 5, Estimated: 9, Partitions: []change.Partition{1, 3},
		Some: []change.Namespace{{DB: "shop", Coll: "o.x"}},
		Left: []snapshot.Left{{Namespace: change.Namespace{DB: "shop", Coll: "o.x"}, From: key(3), Until: key(1), Round: true}, {Namespace: change.Namespace{DB: "shop", Coll: "b"}}},
	}
	got, err := snapshot.ParseText(snapshot.Text([]snapshot.Progress{p, {Subscription: "b", Done: true}}))
	if err != nil || len(got) != 2 || string(got[0].AppendState(nil)) != string(p.AppendState(nil)) || !got[1].Done {
		t.Errorf("%+v, %v", got, err)
	}
	for i := range 1000 {
		p.Left = append(p.Left, snapshot.Left{Namespace: change.Namespace{DB: "shop", Coll: fmt.Sprint(i)}})
	}
	if text := snapshot.Text([]snapshot.Progress{p}); text != "" {
		t.Errorf("%d bytes", len(text))
	}
	for _, bad := range []string{"x", "!", strings.Repeat("A", 100_000)} {
		if _, err := snapshot.ParseText(bad); err == nil {
			t.Errorf("%.10q is read", bad)
		}
	}
}

// Whoever resumes has what its own progress says of the same snapshot, nothing of one that has
// begun since, and what nobody has kept yet.
func TestProgressOfWhoResumes(t *testing.T) {
	of := func(sub string, number uint32, read uint64) snapshot.Progress {
		return snapshot.Progress{Subscription: sub, Number: number, Read: read, Listed: true}
	}
	stored := []snapshot.Progress{of("same", 1, 9), of("newer", 2, 4), of("unknown", 3, 1)}
	got := snapshot.Resumed(stored, []snapshot.Progress{of("same", 1, 5), of("newer", 1, 9), of("own", 4, 2)})
	want := []snapshot.Progress{of("same", 1, 5), {Subscription: "newer", Number: 2}, of("unknown", 3, 1), of("own", 4, 2)}
	if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
		t.Errorf("%+v\nwant\n%+v", got, want)
	}
}
