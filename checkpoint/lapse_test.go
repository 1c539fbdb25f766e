package checkpoint_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
)

// reads is a coverage of namespaces.
func reads(namespaces ...string) *change.Coverage {
	return change.Coverage{Namespaces: namespaces}.Bounded()
}

// Checkpoints say up to where streams of before read more than the last one, until the subscriber
// has been told, wherever saves come between.
func TestCheckpointsNameWhatTheirStreamsRead(t *testing.T) {
	t.Parallel()
	at := func(seconds uint32) change.Position { return change.At(change.Timestamp{T: seconds, I: 1}) }
	var long []string
	for i := range 1000 {
		long = append(long, fmt.Sprint("shop.collection", i))
	}
	type save struct {
		by   *change.Coverage
		told bool // the subscriber has acknowledged the loss
		at   uint32
	}
	for name, tt := range map[string]struct {
		saves []save
		by    *change.Coverage // which goes on
		lost  string
	}{
		"the same":                 {[]save{{reads("a.b"), true, 1}, {reads("a.b"), true, 2}}, reads("a.b"), "[] 0 false"},
		"more":                     {[]save{{reads("a.b"), true, 1}}, reads("a.b", "a.c"), "[] 0 false"},
		"less and more":            {[]save{{reads("a.b", "a.c"), true, 1}, {reads("a.b"), true, 2}, {reads("a.b"), true, 3}}, reads("a.*"), "[a.c] 1 true"},
		"less, which stays":        {[]save{{reads("a.b", "a.c"), true, 1}, {reads("a.b"), true, 2}}, reads("a.b"), "[] 0 false"},
		"less that has not moved":  {[]save{{reads("a.b", "a.c"), true, 1}, {reads("a.b"), true, 1}}, reads("a.b", "a.c"), "[] 0 false"},
		"told":                     {[]save{{reads("a.b", "a.c"), true, 1}, {reads("a.b"), true, 2}, {reads("a.b", "a.c"), true, 3}}, reads("a.b", "a.c"), "[] 0 false"},
		"more that was not told":   {[]save{{reads("a.b", "a.c"), true, 1}, {reads("a.b"), true, 2}, {reads("a.b", "a.c"), false, 3}, {reads("a.b"), false, 4}}, reads("a.b", "a.c"), "[a.c] 1 true"},
		"less twice":               {[]save{{reads("a.b", "a.c", "a.d"), true, 1}, {reads("a.b", "a.c"), true, 2}, {reads("a.b"), true, 3}}, reads("a.*"), "[a.c a.d] 1 true"},
		"everything, less":         {[]save{{reads(), true, 1}, {reads("a.b"), true, 2}}, reads(), "[] 1 true"},
		"a long list, less":        {[]save{{reads(long...), true, 1}, {reads("a.b"), true, 2}}, reads(long...), "[shop.*] 1 true"},
		"an unknown stream before": {[]save{{nil, true, 1}, {reads("a.b"), true, 2}}, reads(), "[] 0 false"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			key := checkpoint.Key{Subscriber: "sink/s", Shared: true}
			var stored *checkpoint.Checkpoint
			for _, s := range tt.saves {
				c := checkpoint.Checkpoint{Key: key, Partitions: 1, Position: at(s.at), Coverage: s.by}
				if stored != nil && s.told {
					c.Lapse = stored.Lapse
				}
				merged, _, err := checkpoint.Merge(stored, c)
				if err != nil {
					t.Fatal(err)
				}
				name := func(k checkpoint.Key) string { return k.String() }
				text, err := checkpoint.Encode(merged, checkpoint.Trail{})
				if err != nil {
					t.Fatal(err)
				}
				if len(text) > 4<<10 {
					t.Errorf("%d bytes", len(text))
				}
				if merged, _, err = checkpoint.Decode(key.String(), name, 1, text); err != nil {
					t.Fatal(err)
				}
				stored = &merged
			}
			namespaces, from, some := stored.Lost(*tt.by)
			if !some {
				from = change.Timestamp{}
			}
			if got := fmt.Sprint(slices.Compact(namespaces), from.T, some); got != tt.lost {
				t.Errorf("lost %s, not %s", got, tt.lost)
			}
		})
	}
}
