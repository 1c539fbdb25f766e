package fair

import (
	"context"
	runtimemetrics "runtime/metrics"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongostream/streamer/fault"
)

// steady returns accounts whose strain is that of idle cores, or of busy ones.
func steady(busy bool) *Accounts {
	t := NewAccounts()
	waits := &runtimemetrics.Float64Histogram{Counts: make([]uint64, 2), Buckets: []float64{0, strained, 1}}
	t.strain.read = func() *runtimemetrics.Float64Histogram {
		if busy {
			waits.Counts[1] += leastWaits
		}
		return waits
	}
	return t
}

// crowdOf has many of one account do the same again and again until the test ends, and returns how
// long another account then waits for one of its own.
func crowdOf(t *testing.T, many int, one func(ctx context.Context, name string)) (waited time.Duration) {
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for range many {
		all.Go(func() {
			for immediate := 0; ctx.Err() == nil; immediate++ {
				begun := time.Now()
				if one(ctx, "greedy"); time.Since(begun) > 0 {
					immediate = 0
				}
				if immediate == 1000 { // or this clock would never advance
					t.Error("nothing makes it wait")
					return
				}
			}
		})
	}
	synctest.Wait()
	begun := time.Now()
	one(ctx, "honest")
	waited = time.Since(begun)
	cancel()
	all.Wait()
	time.Sleep(time.Second) // the slots that rest
	return waited
}

// However many filters of one account wait for a slot, another account is next.
func TestManyWaitersOfOneAreOneInLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		accounts := steady(false)
		defer accounts.Exit(accounts.Enter("honest"))
		waited := crowdOf(t, 100*cap(accounts.slots), func(ctx context.Context, name string) {
			of := accounts.Enter(name)
			defer accounts.Exit(of)
			if accounts.Acquire(of, nil, ctx.Done()) {
				time.Sleep(took(SliceUnits))
				accounts.Release(of, SliceUnits)
			}
		})
		if most := 6 * took(SliceUnits); waited > most {
			t.Errorf("it waited for %s, more than %s", waited, most)
		}
	})
}

// However many sessions of one account begin, one of another account begins soon.
func TestManyStartsOfOneDelayNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		accounts := steady(false)
		defer accounts.Exit(accounts.Enter("honest"))
		waited := crowdOf(t, 100*cap(accounts.starts), func(ctx context.Context, name string) { _ = accounts.Start(ctx, name) })
		if most := 6 * took(startUnits); waited > most {
			t.Errorf("it waited for %s, more than %s", waited, most)
		}
	})
}

// What is used off the live path rests: as long while cores are idle, longer while they are busy,
// and not at all for an account that has the node for itself.
func TestSlotsRestForOthers(t *testing.T) {
	for _, c := range []struct {
		busy, alone bool
		want        time.Duration
	}{{false, false, took(SliceUnits)}, {true, false, strainRise * took(SliceUnits)}, {true, true, 0}} {
		synctest.Test(t, func(t *testing.T) {
			accounts := steady(c.busy)
			of := accounts.Enter("greedy")
			defer accounts.Exit(of)
			if !c.alone {
				defer accounts.Exit(accounts.Enter("honest"))
			}
			accounts.Acquire(of, nil, nil)
			for range cap(accounts.slots) - 1 {
				accounts.slots <- struct{}{}
			}
			accounts.Release(of, SliceUnits)
			begun := time.Now()
			accounts.Acquire(of, nil, nil)
			if rested := time.Since(begun); rested != c.want {
				t.Errorf("busy %t, alone %t: rested for %s, want %s", c.busy, c.alone, rested, c.want)
			}
		})
	}
}

// An account is given one page at a time, and may not have more than so many wait.
func TestPagesOfOneWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		of := NewAccounts().Enter("a")
		given, next := 0, make(chan struct{})
		var all sync.WaitGroup
		const most = 100
		for range most {
			all.Go(func() {
				done, err := of.Page(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				given++ // one at a time
				<-next
				done()
			})
		}
		synctest.Wait()
		if given != 1 {
			t.Errorf("%d pages at a time", given)
		}
		soon, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := of.Page(soon); fault.Of(err) != fault.AccessLimit {
			t.Errorf("one more: %v", err)
		}
		close(next)
		all.Wait()
		if given != most {
			t.Errorf("%d of %d pages", given, most)
		}
	})
}
