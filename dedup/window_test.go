package dedup_test

import (
	"testing"
	"time"

	"github.com/hashicorp/golang-lru/v2/expirable"
	"github.com/hashicorp/golang-lru/v2/simplelru"
	"pgregory.net/rapid"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/change/changetest"
	"github.com/mongostream/streamer/dedup"
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
}

// A model answers as the window must: golang-lru's LRU, and the time at which each entry was remembered.
type model struct {
	lru *simplelru.LRU[string, time.Time]
	ttl time.Duration
}

func (m *model) seen(e *change.Event, now time.Time) bool {
	k := string(e.Token())
	if before, ok := m.lru.Peek(k); ok && now.Sub(before) < m.ttl {
		return true
	}
	m.lru.Add(k, now)
	return false
}

func TestWindowAnswersAsAnLRU(t *testing.T) {
	events := make([]*change.Event, 200)
	for i := range events {
		events[i] = parse(t, changetest.Event{ID: int64(i), Time: change.Timestamp{T: 5, I: uint32(i/2 + 1)}})
	}
	rapid.Check(t, func(t *rapid.T) {
		cfg := dedup.Config{Size: rapid.IntRange(1, 150).Draw(t, "size"), TTL: time.Duration(rapid.IntRange(1, 300).Draw(t, "ttl"))}
		lru, err := simplelru.NewLRU[string, time.Time](cfg.Size, nil)
		if err != nil {
			t.Fatal(err)
		}
		w, m, now := dedup.NewWindow(cfg), &model{lru: lru, ttl: cfg.TTL}, time.Now()
		span := rapid.IntRange(1, len(events)).Draw(t, "span")
		for range rapid.IntRange(1, 1000).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 3).Draw(t, "wait")))
			i := rapid.IntRange(0, span-1).Draw(t, "event")
			if got, want := w.Seen(events[i], now), m.seen(events[i], now); got != want {
				t.Fatalf("event %d is seen: %v, want %v", i, got, want)
			}
			if w.Len() > min(cfg.Size, m.lru.Len()) || w.Len() == 0 {
				t.Fatalf("%d events remembered, of at most %d", w.Len(), cfg.Size)
			}
		}
	})
}

func TestClockThatGoesBackForgetsNothing(t *testing.T) {
	w, now := dedup.NewWindow(dedup.Config{TTL: time.Minute}), time.Now()
	first, second := parse(t, changetest.Event{ID: 1, Time: change.Timestamp{T: 5, I: 1}}), parse(t, changetest.Event{ID: 2, Time: change.Timestamp{T: 5, I: 2}})
	w.Seen(first, now.Add(50*time.Second))
	w.Seen(second, now) // of a reply that arrived earlier
	if !w.Seen(first, now.Add(100*time.Second)) || !w.Seen(second, now.Add(100*time.Second)) {
		t.Error("forgotten before its time")
	}
	if w.Seen(second, now.Add(110*time.Second)) || w.Seen(first, now.Add(110*time.Second)) {
		t.Error("remembered beyond its time")
	}
}

func TestFullWindowAllocatesNothing(t *testing.T) {
	const size = 100
	events := make([]*change.Event, 2*size)
	for i := range events {
		events[i] = parse(t, changetest.Event{ID: int64(i), Time: change.Timestamp{T: 5, I: uint32(i + 1)}})
	}
	w, now, i := dedup.NewWindow(dedup.Config{Size: size}), time.Now(), 0
	next := func() {
		w.Seen(events[i%len(events)], now)
		i++
	}
	for range events {
		next()
	}
	if n := testing.AllocsPerRun(1000, next); n != 0 {
		t.Errorf("%v allocations per event", n)
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
