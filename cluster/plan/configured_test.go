package plan_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/cluster/plan"
)

// planned is a world of two members with four partitions each.
func planned(t *testing.T, cfg plan.Config) *world {
	t.Helper()
	cfg.Partitions, cfg.Expected = 8, 2
	w := newWorld(t, cfg)
	w.join("node-0", "node-1")
	w.run(5 * time.Second)
	if w.served() != 8 {
		t.Fatalf("%d served", w.served())
	}
	return w
}

// until returns how long it takes until something holds, at most so long.
func (w *world) until(most time.Duration, holds func() bool) time.Duration {
	begun := w.now
	for w.now-begun < most && !holds() {
		w.run(tick)
	}
	return w.now - begun
}

// burden gives the partitions of a node many events, and the others few.
func (w *world) burden(node string, many float64) {
	for p, o := range w.owners {
		w.rates[change.Partition(p)] = 1
		if o.Node == node {
			w.rates[change.Partition(p)] = many
		}
	}
}

// moves counts the plans that move partitions to balance events.
func (w *world) moves() int { return strings.Count(strings.Join(w.lines, "\n"), "(rebalance:") }

func TestMembersSettleAsConfigured(t *testing.T) {
	for _, settle := range []time.Duration{3 * time.Second, 40 * time.Second} {
		w := planned(t, plan.Config{Settle: settle})
		w.join("node-2")
		took := w.until(2*time.Minute, func() bool { return slices.Contains(w.plan.Owners, "node-2") })
		if took < settle || took > settle+2*time.Second {
			t.Errorf("a member is given partitions after %v, want %v", took, settle)
		}
	}
}

func TestEventsAreBalancedAsConfigured(t *testing.T) {
	first := func(cfg plan.Config, many float64) time.Duration {
		w := planned(t, cfg)
		w.burden("node-1", many)
		return w.until(time.Hour, func() bool { return w.moves() > 0 })
	}
	soon, late := first(plan.Config{Rebalance: time.Second}, 100), first(plan.Config{Rebalance: 2 * time.Minute}, 100)
	if soon > time.Minute || late < 2*time.Minute || late == time.Hour {
		t.Errorf("Rebalance: the first move comes after %v and %v", soon, late)
	}
	below, above := first(plan.Config{RebalanceFloor: 1000}, 100), first(plan.Config{RebalanceFloor: 20}, 100)
	if below < time.Hour || above == time.Hour {
		t.Errorf("RebalanceFloor: the first move comes after %v and %v", below, above)
	}
	again := func(cooldown time.Duration) int {
		w := planned(t, plan.Config{Rebalance: time.Second, RebalanceCooldown: cooldown})
		for i := range 12 { // more often than there are pairs to exchange
			w.burden([]string{"node-1", "node-0"}[i%2], 100)
			w.run(3 * time.Minute)
		}
		return w.moves()
	}
	if short, long := again(time.Second), again(24*time.Hour); short < 10 || long > 8 {
		t.Errorf("RebalanceCooldown: %d and %d moves", short, long)
	}
}

func TestRestartedMembersAreResyncedAsConfigured(t *testing.T) {
	resynced := func(delay time.Duration, rate int) (after, lasted int) {
		w := planned(t, plan.Config{ResyncDelay: delay, ResyncRate: rate})
		w.join("node-1")
		w.actors["node-1"].lame = true // so that it has something to be told again
		begun := int((w.now - time.Hour).Seconds())
		w.run(3 * time.Second)
		w.actors["node-1"].lame = false
		w.run(time.Minute)
		first, last := 1<<30, 0
		for second := range w.resent {
			first, last = min(first, second), max(last, second)
		}
		return first - begun, last - first
	}
	if early, _ := resynced(time.Second, 1000); early > 3 {
		t.Errorf("ResyncDelay: after %d s", early)
	}
	if late, _ := resynced(20*time.Second, 1000); late < 19 || late > 25 {
		t.Errorf("ResyncDelay: after %d s", late)
	}
	_, fast := resynced(5*time.Second, 1000)
	_, slow := resynced(5*time.Second, 1)
	if fast > 0 || slow < 2 {
		t.Errorf("ResyncRate: the resync lasts %d s and %d s", fast, slow)
	}
}

func TestCapacityIsAShare(t *testing.T) {
	w := newWorld(t, plan.Config{Partitions: 40, Expected: 2})
	w.capacity = map[string]float64{"node-1": 3}
	w.join("node-0", "node-1")
	w.run(5 * time.Second)
	held := 0
	for _, o := range w.owners {
		if o != (cluster.Owner{}) && o.Node == "node-1" {
			held++
		}
	}
	if held != 30 {
		t.Errorf("a member of capacity 3 beside one of 1 has %d of 40 partitions", held)
	}
}
