package dedup_test

import (
	"testing"
	"time"

	"github.com/hashicorp/golang-lru/v2/expirable"

	"mongostream/change"
	"mongostream/change/changetest"
	"mongostream/dedup"
)

func parse(t testing.TB, ev changetest.Event) *change.Event {
	t.Helper()
	e, err := change.Parse(ev.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return &e
}

func TestOnlyTheSameEventIsADuplicate(t *testing.T) {
	now := time.Now()
	first := changetest.Event{Op: "update", ID: 1, Time: change.Timestamp{T: 5, I: 1}}
	for name, second := range map[string]changetest.Event{
		"a second update within the second":      {Op: "update", ID: 1, Time: change.Timestamp{T: 5, I: 2}},
		"a second change in one transaction":     {Op: "update", ID: 1, Time: change.Timestamp{T: 5, I: 1}, Index: 1},
		"another document of another shard":      {Op: "update", ID: 2, Time: change.Timestamp{T: 5, I: 1}},
		"the same document, one second after it": {Op: "update", ID: 1, Time: change.Timestamp{T: 6, I: 1}},
	} {
		w := dedup.NewWindow(dedup.Config{})
		if w.Seen(parse(t, first), now) {
			t.Error("the first event is a duplicate")
		}
		if w.Seen(parse(t, second), now) {
			t.Errorf("%s is taken for a duplicate", name)
		}
		if !w.Seen(parse(t, first), now) || !w.Seen(parse(t, second), now) {
			t.Errorf("%s: a repetition is not noticed", name)
		}
	}
}

func TestWindowIsBoundedInSizeAndTime(t *testing.T) {
	now := time.Now()
	w := dedup.NewWindow(dedup.Config{Size: 3, TTL: time.Minute})
	events := make([]*change.Event, 4)
	for i := range events {
		events[i] = parse(t, changetest.Event{ID: int64(i), Time: change.Timestamp{T: 5, I: uint32(i + 1)}})
		if w.Seen(events[i], now) {
			t.Errorf("event %d is a duplicate", i)
		}
	}
	if w.Len() != 3 {
		t.Errorf("%d events remembered", w.Len())
	}
	if !w.Seen(events[3], now.Add(59*time.Second)) {
		t.Error("forgotten before its time")
	}
	if w.Seen(events[3], now.Add(61*time.Second)) {
		t.Error("remembered beyond its time")
	}
	if !w.Seen(events[3], now.Add(90*time.Second)) {
		t.Error("not remembered anew")
	}
	w.Clear()
	if w.Len() != 0 || w.Seen(events[3], now.Add(90*time.Second)) {
		t.Error("remembered after Clear")
	}
}

// The two benchmarks stand side by side: the window, and golang-lru's own expirable LRU with the same key and bounds.
func BenchmarkWindow(b *testing.B) {
	events := benchmarkEvents(b)
	w := dedup.NewWindow(dedup.Config{})
	now := time.Now()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		w.Seen(events[i%len(events)], now)
	}
}

func BenchmarkExpirable(b *testing.B) {
	type key struct {
		time  change.Timestamp
		token string
	}
	events := benchmarkEvents(b)
	lru := expirable.NewLRU[key, struct{}](10000, nil, 3*time.Minute)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		e := events[i%len(events)]
		k := key{time: e.Time(), token: string(e.Token())}
		if _, ok := lru.Get(k); !ok {
			lru.Add(k, struct{}{})
		}
	}
}

func benchmarkEvents(b *testing.B) []*change.Event {
	events := make([]*change.Event, 20000) // twice the window: every event is new when it comes
	for i := range events {
		events[i] = parse(b, changetest.Event{ID: int64(i), Time: change.Timestamp{T: uint32(i / 100), I: uint32(i%100) + 1}})
	}
	return events
}
