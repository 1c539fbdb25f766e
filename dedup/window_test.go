package dedup_test

import (
	"fmt"
	"testing"
	"time"

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

func TestOnlyTheSameChangeIsADuplicate(t *testing.T) {
	now, at := time.Now(), change.Timestamp{T: 5, I: 1}
	for name, other := range map[string]changetest.Event{
		"a second change in one transaction": {Op: "update", ID: 1, Time: at, Index: 1},
		"another document of another shard":  {Op: "update", ID: 2, Time: at},
		"another place and document":         {Op: "insert", ID: 2, Time: at, Index: 7},
	} {
		for _, versions := range [][2]int{{1, 2}, {2, 1}} {
			one := changetest.Event{Op: "update", ID: 1, Time: at, Version: versions[0]}
			other.Version = versions[1]
			w := dedup.NewWindow(dedup.Config{})
			if w.Seen(parse(t, one), now) {
				t.Error("the first event is a duplicate")
			}
			if w.Seen(parse(t, other), now) {
				t.Errorf("%s is taken for a duplicate", name)
			}
			one.Version, other.Version = versions[1], versions[0]
			if !w.Seen(parse(t, one), now) || !w.Seen(parse(t, other), now) {
				t.Errorf("%s: a repetition under another version is not noticed", name)
			}
		}
	}
}

// Of one form, the tokens themselves distinguish changes, also those that the window cannot tell
// apart.
func TestNothingIsADuplicateWithinOneForm(t *testing.T) {
	now, at := time.Now(), change.Timestamp{T: 5, I: 1}
	for _, others := range []int{0, 1} { // tokens of another form that came before
		w := dedup.NewWindow(dedup.Config{})
		for i := range others {
			w.Seen(parse(t, changetest.Event{ID: 100 + int64(i), Time: at, Version: 1}), now)
		}
		for _, op := range []string{"update", "replace", "delete"} {
			if w.Seen(parse(t, changetest.Event{Op: op, ID: 1, Time: at, Version: 2}), now) {
				t.Errorf("%s is taken for another change of the same document", op)
			}
		}
	}
}

func TestChangeIsADuplicateUnderEachToken(t *testing.T) {
	now, at := time.Now(), change.Timestamp{T: 5, I: 1}
	w := dedup.NewWindow(dedup.Config{})
	w.Seen(parse(t, changetest.Event{ID: 1, Time: at}), now)
	w.Seen(parse(t, changetest.Event{ID: 2, Time: at, Version: 2}), now)
	for _, again := range []changetest.Event{
		{ID: 1, Time: at}, {ID: 1, Time: at, Version: 2}, {ID: 1, Time: at, Version: 2, Fragment: 1}, {ID: 2, Time: at}, {ID: 2, Time: at, Version: 2},
		{ID: 2, Time: at, Version: 2, Fragment: 3},
	} {
		if !w.Seen(parse(t, again), now) {
			t.Errorf("%+v is new", again)
		}
	}
}

// Positions order different times, so that nothing of an earlier one is asked for.
func TestWindowHoldsTheLatestTime(t *testing.T) {
	now := time.Now()
	w := dedup.NewWindow(dedup.Config{})
	for i := range uint32(10) {
		at := change.Timestamp{T: 5, I: i + 1}
		w.Seen(parse(t, changetest.Event{ID: 1, Time: at}), now)
		if w.Len() != 1 {
			t.Fatalf("%d events are remembered", w.Len())
		}
		w.Seen(parse(t, changetest.Event{ID: 2, Time: at}), now)
		if w.Len() != 2 || !w.Seen(parse(t, changetest.Event{ID: 1, Time: at, Version: 2}), now) {
			t.Fatalf("%d events are remembered", w.Len())
		}
	}
}

func TestWindowIsBoundedInSizeAndTime(t *testing.T) {
	now := time.Now()
	w := dedup.NewWindow(dedup.Config{Size: 3, TTL: time.Minute})
	events, again := make([]*change.Event, 4), make([]*change.Event, 4)
	for i := range events {
		event := changetest.Event{ID: int64(i), Index: uint64(i), Time: change.Timestamp{T: 5, I: 1}}
		events[i] = parse(t, event)
		event.Version = 2
		again[i] = parse(t, event)
		if w.Seen(events[i], now) {
			t.Errorf("event %d is a duplicate", i)
		}
	}
	if w.Len() != 3 {
		t.Errorf("%d events remembered", w.Len())
	}
	if !w.Seen(again[3], now.Add(59*time.Second)) {
		t.Error("forgotten before its time")
	}
	if w.Seen(again[3], now.Add(61*time.Second)) {
		t.Error("remembered beyond its time")
	}
	if !w.Seen(events[3], now.Add(90*time.Second)) {
		t.Error("not remembered anew")
	}
	if w.Seen(again[0], now.Add(90*time.Second)) {
		t.Error("the oldest is remembered beside three others")
	}
}

func TestClockThatGoesBackForgetsNothing(t *testing.T) {
	w, now, at := dedup.NewWindow(dedup.Config{TTL: time.Minute}), time.Now(), change.Timestamp{T: 5, I: 1}
	event := func(id int64, version int) *change.Event {
		return parse(t, changetest.Event{ID: id, Time: at, Version: version})
	}
	w.Seen(event(1, 1), now.Add(50*time.Second))
	w.Seen(event(2, 1), now) // of a reply that arrived earlier
	if !w.Seen(event(1, 2), now.Add(100*time.Second)) || !w.Seen(event(2, 2), now.Add(100*time.Second)) {
		t.Error("forgotten before its time")
	}
	if w.Seen(event(2, 2), now.Add(110*time.Second)) || w.Seen(event(1, 2), now.Add(110*time.Second)) {
		t.Error("remembered beyond its time")
	}
}

// Whatever versions and fragments the events of one time come with, each change is new once, as
// soon as two forms have met.
func TestEachChangeIsNewOnce(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w, now, at := dedup.NewWindow(dedup.Config{}), time.Now(), change.Timestamp{T: 5, I: 1}
		had := make(map[change.Ref]bool)
		for version := range 2 {
			e := parse(t, changetest.Event{ID: int64(100 + version), Time: at, Version: version + 1})
			had[e.Position().Ref()] = w.Seen(e, now) || true
		}
		for range rapid.IntRange(1, 100).Draw(rt, "steps") {
			version := rapid.IntRange(1, 2).Draw(rt, "version")
			e := parse(t, changetest.Event{
				ID: rapid.Int64Range(1, 4).Draw(rt, "id"), Index: rapid.Uint64Range(0, 3).Draw(rt, "index"), Time: at,
				Version: version, Fragment: (version - 1) * rapid.IntRange(0, 2).Draw(rt, "fragment"),
			})
			change := e.Position().Ref()
			if got := w.Seen(e, now); got != had[change] {
				rt.Fatalf("an event is seen: %v, want %v", got, had[change])
			}
			had[change] = true
		}
	})
}

func TestEventsWithTimesOfTheirOwnAllocateNothing(t *testing.T) {
	events := make([]*change.Event, 100)
	for i := range events {
		events[i] = parse(t, changetest.Event{ID: int64(i), Time: change.Timestamp{T: 5, I: uint32(i + 1)}})
	}
	w, now, i := dedup.NewWindow(dedup.Config{}), time.Now(), 0
	next := func() {
		w.Seen(events[i%len(events)], now)
		i++
	}
	next()
	if n := testing.AllocsPerRun(1000, next); n != 0 {
		t.Errorf("%v allocations per event", n)
	}
}

// BenchmarkWindow measures what an event costs: alone at its time, as most are, and in transactions
// of ten and of a thousand. BenchmarkLRU is what it would cost to keep all of them in the LRU from
// the beginning.
func BenchmarkWindow(b *testing.B) {
	for _, together := range []int{1, 10, 1000} {
		b.Run(fmt.Sprint(together), func(b *testing.B) {
			events := benchmarkEvents(b, together)
			w, now := dedup.NewWindow(dedup.Config{}), time.Now()
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				w.Seen(events[i%len(events)], now)
			}
		})
	}
}

func BenchmarkLRU(b *testing.B) {
	for _, together := range []int{1, 10, 1000} {
		b.Run(fmt.Sprint(together), func(b *testing.B) {
			events := benchmarkEvents(b, together)
			lru, err := simplelru.NewLRU[change.Ref, time.Time](10000, nil)
			if err != nil {
				b.Fatal(err)
			}
			now, at := time.Now(), change.Timestamp{}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				e := events[i%len(events)]
				if e.Time() != at {
					at = e.Time()
					lru.Purge()
				}
				if ref := e.Position().Ref(); !lru.Contains(ref) {
					lru.Add(ref, now)
				}
			}
		})
	}
}

func benchmarkEvents(b *testing.B, together int) []*change.Event {
	events := make([]*change.Event, 20000)
	for i := range events {
		events[i] = parse(b, changetest.Event{ID: int64(i), Index: uint64(i % together), Time: change.Timestamp{T: 5, I: uint32(i/together) + 1}})
	}
	return events
}
