//go:build prove

package match_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/match"
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

// best keeps, for each kind of work, the shortest time that an event took: what a busy machine adds
// is left out.
type best map[string]time.Duration

func (b best) measure(name string, events []change.Event, work func([]change.Event)) {
	began := time.Now()
	work(events)
	if took := time.Since(began) / time.Duration(len(events)); b[name] == 0 || took < b[name] {
		b[name] = took
	}
}

func find(t *testing.T, x *match.Index) func([]change.Event) {
	var ids []match.ID
	return func(events []change.Event) {
		for i := range events {
			ids = x.Match(&events[i], ids[:0], match.Report(func(id match.ID, err error) { t.Fatal(id, err) }))
		}
	}
}

func ask(t *testing.T, programs []*match.Program) func([]change.Event) {
	return func(events []change.Event) {
		for i := range events {
			for _, p := range programs {
				if _, err := p.MatchInCEL(&events[i]); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// TestProveIndexScales compares 100,000 subscriptions with 1,000, without those that no index
// helps. The two take turns until one is seen to be fast enough, or for so long that it is not.
func TestProveIndexScales(t *testing.T) {
	small, large := newCrowd(1_000), newCrowd(100_000)
	smallEvents, largeEvents := small.events(t, 4096), large.events(t, 4096)
	before := heap()
	few, many := find(t, small.index(t, small.rest)), find(t, large.index(t, large.rest))
	perSubscription := (heap() - before) / 101_000
	times := best{}
	tooSlow := func() bool { return times["many"] > 2*times["few"] || times["many"] > 5*time.Microsecond }
	rounds := 0
	for ; rounds < 100 || rounds < 5_000 && tooSlow(); rounds++ {
		part := rounds % 8 * 512
		times.measure("few", smallEvents[part:part+512], few)
		times.measure("many", largeEvents[part:part+512], many)
	}
	t.Logf("an event: %v among 1,000, %v among 100,000 (%d rounds); the index has %d bytes a subscription", times["few"], times["many"], rounds, perSubscription)
	if tooSlow() {
		t.Error("more than twice, or than 5 µs")
	}
}

// TestProveIndexBeatsAskingEach compares the index, with all kinds of subscriptions, with CEL asked
// about each, and with CEL asked about those only that no index helps.
func TestProveIndexBeatsAskingEach(t *testing.T) {
	crowd := newCrowd(100_000)
	events := crowd.events(t, 1024)
	all, rest, linear := find(t, crowd.index(t, nil)), ask(t, crowd.rest), ask(t, crowd.programs)
	times := best{}
	rest(events[:1]) // plans their programs
	tooMuch := func() bool { return times["all"] > times["rest"]*6/5+5*time.Microsecond }
	for i := 0; i < 60 || i < 1_000 && tooMuch(); i++ {
		part := i % 16 * 64
		times.measure("all", events[part:part+64], all)
		times.measure("rest", events[part:part+64], rest)
	}
	linear(events[:1])
	heap()
	for range 5 {
		times.measure("linear", events[:2], linear)
	}
	t.Logf("an event: %v with the index, %v of which those take that no index helps, %v in CEL alone", times["all"], times["rest"], times["linear"])
	if times["linear"] < 400*times["all"] {
		t.Error("less than 400 times")
	}
	if tooMuch() {
		t.Error("more than the filters that no index helps, and 5 µs")
	}
}

func heap() uint64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}
