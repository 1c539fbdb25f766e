package plan_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/cluster/plan"
)

// Whatever happens to the members, partitions are given only to those that may take them, few at a
// time between those that live; and when it is over the plan comes to rest, without a plan that
// undoes another, with everything served.
func TestPlansAreSoundAndComeToRest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t, plan.Config{
			Partitions: rapid.IntRange(1, 24).Draw(t, "partitions"), Expected: rapid.IntRange(0, 5).Draw(t, "expected"),
			Rebalance: 6 * time.Second, // all that is ever measured is measured within this test
		})
		nodes := make([]string, rapid.IntRange(1, 6).Draw(t, "nodes"))
		for i := range nodes {
			nodes[i] = fmt.Sprintf("node-%d", i)
		}
		w.join(nodes...)
		defer func() {
			if t.Failed() {
				t.Log(strings.Join(w.lines, "\n"))
			}
		}()
		w.published = func(d plan.Decision, before cluster.Plan) { w.sound(d, before) }
		for range rapid.IntRange(0, 12).Draw(t, "events") {
			w.run(time.Duration(rapid.IntRange(1, 300).Draw(t, "ticks")) * tick)
			w.befall(t, rapid.SampledFrom(nodes).Draw(t, "node"))
		}
		// Everybody is well again.
		w.directives, w.failures = cluster.Directives{}, 0
		for _, node := range nodes {
			a := w.actors[node]
			if !a.alive {
				w.join(node)
			}
			a.silent, a.garbled, a.lame, a.stuck, a.hoard, a.failing, a.status = false, false, false, false, false, nil, cluster.StatusHealthy
			if a.stopping {
				w.join(node)
			}
		}
		w.run(time.Minute) // what was under way
		quiet := len(w.plans)
		w.run(14 * time.Minute) // longer than the longest rest, and than rates count
		for k := max(quiet, 2); k < len(w.plans); k++ {
			for p := range w.plans[k].Owners {
				a, b, c := w.plans[k-2].Owners[p], w.plans[k-1].Owners[p], w.plans[k].Owners[p]
				if k-2 >= quiet && a == c && a != b {
					t.Fatalf("plan %d undoes plan %d for partition %d", w.plans[k].Version, w.plans[k-1].Version, p)
				}
			}
		}
		if w.served() != w.cfg.Partitions {
			t.Fatalf("%d of %d partitions are served", w.served(), w.cfg.Partitions)
		}
		rest, steps := len(w.plans), w.steps
		w.run(2 * time.Minute)
		if len(w.plans) != rest {
			t.Fatalf("%d plans without an event", len(w.plans)-rest)
		}
		if most := 2 * 60 / 2 * (len(nodes) + 1); w.steps-steps > most { // one for each heartbeat, and one in between
			t.Fatalf("%d steps in 2 minutes, at most %d", w.steps-steps, most)
		}
	})
}

// befall has something happen to a member.
func (w *world) befall(t *rapid.T, node string) {
	a := w.actors[node]
	what := rapid.SampledFrom([]string{
		"kill", "expire", "join", "stop", "check", "warning", "well", "silent", "heard", "stuck", "lame", "hoard", "rates", "leader", "publish",
		"garbled", "drain", "pin", "restart all", "blind", "settings",
	}).Draw(t, "what")
	w.say("(%s: %s)", node, what)
	switch what {
	case "kill":
		w.kill(node)
	case "expire":
		w.expire(node)
	case "join":
		w.join(node)
	case "stop":
		a.stopping = true
	case "check":
		a.failing = []string{cluster.CheckMongoDB}
	case "warning":
		a.failing = []string{"disk_ok"}
	case "well":
		a.failing, a.stuck, a.lame, a.hoard = nil, false, false, false
	case "silent":
		a.silent = true
	case "heard":
		a.silent, a.garbled = false, false
	case "stuck":
		a.stuck = true
	case "lame":
		a.lame = true
	case "hoard":
		a.hoard = true
	case "rates":
		for p := range w.owners {
			w.rates[change.Partition(p)] = float64(rapid.IntRange(0, 1000).Draw(t, "rate"))
		}
	case "leader":
		w.newLeader(node)
	case "publish":
		w.failures = rapid.IntRange(1, 5).Draw(t, "failures")
	case "garbled":
		a.garbled = true
	case "drain":
		w.drain(node)
	case "pin":
		w.pin(node, 0)
	case "restart all":
		w.join(w.names()...)
	case "settings":
		w.configure(settings{sinks: rapid.SampledFrom([]string{"", "s", "t", "s,t"}).Draw(t, "sinks")}, node)
	case "blind":
		w.now += time.Duration(rapid.IntRange(1, 60).Draw(t, "seconds")) * time.Second
	}
}

// sound looks at a plan that was just published.
func (w *world) sound(d plan.Decision, before cluster.Plan) {
	standings := map[string]plan.MemberStatus{}
	fit := false
	for _, m := range w.state.Members() {
		standings[m.Node] = m
		fit = fit || (m.Status == cluster.StatusHealthy || m.Status == cluster.StatusStarting) && m.Settled && m.Breaker == plan.BreakerClosed &&
			!w.drained(m.Node)
	}
	for p, node := range d.Publish.Owners {
		if node == before.Owner(change.Partition(p)) || node == w.owners[p].Node {
			continue // it has it
		}
		m, there := standings[node]
		switch {
		case node == "" && fit:
			w.t.Fatalf("partition %d is planned to nobody", p)
		case node == "":
		case !there, w.drained(node),
			slices.Contains([]cluster.Status{plan.StatusDead, plan.StatusRefused, cluster.StatusStopping, cluster.StatusUnhealthy}, m.Status):
			w.t.Fatalf("partition %d is planned to %s: %+v", p, node, m)
		case m.Kind == cluster.KindGateway:
			w.t.Fatalf("partition %d is planned to a gateway", p)
		}
	}
	if most := max(2, w.cfg.Partitions/16); (d.Replan == plan.ReplanJoin || d.Replan == plan.ReplanRebalance) && d.Moved > most {
		w.t.Fatalf("%d moves for %s, at most %d", d.Moved, d.Publish.Cause, most)
	}
}

// What a member does not serve goes to one that joins, all of it: that is a failure's doing, and no
// join, which would move few.
func TestWhatAJoinFindsUnservedIsAFailure(t *testing.T) {
	w := newWorld(t, plan.Config{Partitions: 8})
	var moved []string
	w.published = func(d plan.Decision, before cluster.Plan) {
		w.sound(d, before)
		moved = append(moved, fmt.Sprintf("%s %d", d.Replan, d.Moved))
	}
	w.join("node-1")
	w.run(20 * time.Second)
	w.actors["node-1"].stuck = true
	w.run(time.Minute)
	w.join("node-0")
	w.run(time.Minute)
	if len(moved) < 3 || !slices.Equal(moved[:3], []string{"cold_start 0", "failure 4", "failure 4"}) {
		t.Errorf("%q", moved)
	}
}

// Ten nodes restart at once: what they have is looked at within the rate, nothing moves, and
// everybody's resync is told as complete.
func TestRestartStormIsResyncedWithinTheRate(t *testing.T) {
	w := newWorld(t, plan.Config{Partitions: 240, Expected: 12})
	var nodes []string
	for i := range 12 {
		nodes = append(nodes, fmt.Sprintf("node-%d", i))
	}
	w.join(nodes...)
	w.run(20 * time.Second)
	plan := w.plan
	w.join(nodes[2:]...)
	for _, node := range nodes[2:] {
		w.actors[node].lame = true // for a while
	}
	began := int((w.now - time.Hour).Seconds())
	w.run(8 * time.Second)
	for _, node := range nodes[2:] {
		w.actors[node].lame = false
	}
	w.run(60 * time.Second)
	told := map[string]int{}
	for _, n := range w.notices {
		told[n.Kind]++
	}
	if told["restarted"] != 10 || told["resync_complete"] != 10 {
		t.Errorf("told %v", told)
	}
	looked, first, last := 0, math.MaxInt, 0
	for second, n := range w.resent {
		if n > 20 { // ten that were saved up, and ten
			t.Errorf("%d partitions in second %d", n, second)
		}
		looked += n
		first, last = min(first, second), max(last, second)
	}
	if looked != 200 || first < began+4 || last-first < 17 || last-first > 22 {
		t.Errorf("%d partitions looked at in seconds %d to %d, restarted in second %d", looked, first, last, began)
	}
	if !slices.Equal(plan.Owners, w.plan.Owners) || w.plan.Version > plan.Version+10 {
		t.Errorf("plan %d after plan %d", w.plan.Version, plan.Version)
	}
	if w.served() != 240 {
		t.Errorf("%d served", w.served())
	}
}

// A restart closes the breaker of its member.
func TestRestartClosesTheBreaker(t *testing.T) {
	w := newWorld(t, plan.Config{Partitions: 12, Expected: 3})
	w.join("node-0", "node-1", "node-2")
	w.actors["node-1"].lame = true
	w.run(30 * time.Second)
	breaker := func() string { return w.state.Members()[1].Breaker }
	if breaker() != plan.BreakerOpen {
		t.Fatal(breaker())
	}
	w.join("node-1")
	w.run(time.Second)
	if breaker() != plan.BreakerClosed {
		t.Error(breaker())
	}
	w.run(60 * time.Second)
	if got := ownerCounts(w.plan); got != "node-0 4, node-1 4, node-2 4" {
		t.Error(got)
	}
}

// Members whose partitions have more events than others' give some of those up, once the rates have
// lasted, and that comes to rest.
func TestThroughputIsBalanced(t *testing.T) {
	w := newWorld(t, plan.Config{Partitions: 30, Expected: 3})
	w.join("node-0", "node-1", "node-2")
	w.run(10 * time.Second)
	for p := range w.owners {
		w.rates[change.Partition(p)] = 10
		if w.owners[p].Node == "node-0" {
			w.rates[change.Partition(p)] = 40
		}
	}
	w.run(10 * time.Minute)
	load := map[string]float64{}
	for p, node := range w.plan.Owners {
		load[node] += w.rates[change.Partition(p)]
	}
	for node, events := range load {
		if events < 200*0.89 || events > 200*1.11 {
			t.Errorf("%s has %.0f of 600 events a second", node, events)
		}
	}
	rest := len(w.plans)
	if w.run(10 * time.Minute); len(w.plans) != rest {
		t.Errorf("%d plans more", len(w.plans)-rest)
	}
}

// If half of the members do not serve what they are given, it is not their failure: nothing moves,
// however long it lasts.
func TestWhatHalfFailToServeIsNobodysFailure(t *testing.T) {
	w := newWorld(t, plan.Config{Partitions: 12, Expected: 4})
	w.join("node-0", "node-1", "node-2", "node-3")
	w.run(10 * time.Second)
	plan := w.plan
	w.actors["node-1"].stuck, w.actors["node-2"].stuck = true, true
	w.run(5 * time.Minute)
	if w.plan.Version != plan.Version || w.evicted > 0 {
		t.Errorf("plan %d, %d evicted", w.plan.Version, w.evicted)
	}
}

// Giving up many partitions takes its time: who gives up one after the other is not late, and who
// does not go on is.
func TestHolderThatMakesProgressIsNotLate(t *testing.T) {
	const s = time.Second
	for name, leave := range map[string]func(w *world, a *actor){
		"drained":  func(w *world, a *actor) { w.drain(a.node) },
		"stopping": func(w *world, a *actor) { a.stopping = true; w.beat(a) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, plan.Config{Partitions: 36, Expected: 3, TTL: 10 * s})
			w.join("node-0", "node-1", "node-2")
			w.run(20 * s)
			a := w.actors["node-1"]
			a.slow = 8 * s
			leave(w, a)
			w.run(80 * s)
			if len(a.serving) == 0 || len(a.serving) > 4 {
				t.Fatalf("after ten times eight seconds it has %d partitions of 12", len(a.serving))
			}
			if w.evicted > 0 {
				t.Errorf("%d partitions were taken from it while it gave them up\n%s", w.evicted, strings.Join(w.lines, "\n"))
			}
			rest := len(a.serving)
			a.hoard = true
			w.run(10 * s)
			if w.evicted > 0 {
				t.Errorf("%d partitions were taken from it before it was late", w.evicted)
			}
			w.run(15 * s)
			if w.evicted != rest {
				t.Errorf("%d partitions of %d were taken from it when it did not go on", w.evicted, rest)
			}
		})
	}
}
