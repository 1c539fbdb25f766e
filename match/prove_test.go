//go:build prove

package match_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"mongostream/change"
	"mongostream/match"
)

// TestProveIndexAgreesWithFilters compares a million pairs of random filters and events.
func TestProveIndexAgreesWithFilters(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			agreeOn(t, 1000+seed, 250_000)
		})
	}
}

// TestProveIndexIsFast compares 100,000 subscriptions with 1,000, and with CEL asked about each. Every figure is the best of some rounds,
// taken in turns, so that a busy machine does less harm.
func TestProveIndexIsFast(t *testing.T) {
	small, large := newCrowd(t, 1_000), newCrowd(t, 100_000)
	smallEvents, largeEvents := small.events(t, 4096), large.events(t, 4096)
	few, many := small.index(t, small.rest), large.index(t, large.rest)
	before := heap()
	all := large.index(t, nil)
	perSubscription := (heap() - before) / 100_000
	ask := func(programs []*match.Program, events []change.Event) {
		for i := range events {
			for _, p := range programs {
				if _, err := p.MatchInCEL(&events[i]); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	find := func(x *match.Index, events []change.Event) {
		var ids []match.ID
		for i := range events {
			ids = x.Match(&events[i], ids[:0], func(id match.ID, err error) { t.Fatal(id, err) })
		}
	}
	figures := map[string]time.Duration{}
	measure := func(name string, events []change.Event, work func([]change.Event)) {
		began := time.Now()
		work(events)
		took := time.Since(began) / time.Duration(len(events))
		if best, ok := figures[name]; !ok || took < best {
			figures[name] = took
		}
	}
	runtime.GC()
	for i := range 100 {
		part := i % 4 * 1024
		measure("few", smallEvents[part:part+1024], func(e []change.Event) { find(few, e) })
		measure("many", largeEvents[part:part+1024], func(e []change.Event) { find(many, e) })
	}
	ask(large.rest, largeEvents[:1]) // plans them
	for i := range 60 {
		part := i % 16 * 64
		measure("all", largeEvents[part:part+64], func(e []change.Event) { find(all, e) })
		measure("rest", largeEvents[part:part+64], func(e []change.Event) { ask(large.rest, e) })
	}
	ask(large.programs, largeEvents[:1])
	runtime.GC()
	for range 5 {
		measure("linear", largeEvents[:2], func(e []change.Event) { ask(large.programs, e) })
	}
	t.Logf("an event: %v among 1,000 indexable subscriptions, %v among 100,000; with those that no index helps %v, these alone in CEL %v; linear in CEL %v; %d bytes a subscription",
		figures["few"], figures["many"], figures["all"], figures["rest"], figures["linear"], perSubscription)
	if figures["many"] > 5*time.Microsecond {
		t.Errorf("%v an event, at most 5 µs", figures["many"])
	}
	if figures["many"] > 2*figures["few"] {
		t.Errorf("100,000 subscriptions take %v, 1,000 take %v: more than twice", figures["many"], figures["few"])
	}
	if figures["linear"] < 400*figures["all"] {
		t.Errorf("the index takes %v, CEL asked about each %v: less than 400 times", figures["all"], figures["linear"])
	}
	if figures["all"] > figures["rest"]+5*time.Microsecond+figures["rest"]/5 {
		t.Errorf("%v an event, where the filters that no index helps take %v", figures["all"], figures["rest"])
	}
}

func heap() uint64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}
