package plan_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/mongostream/streamer/cluster/plan"
)

// A tally compares the moves that plans made with those that no planner could have spared.
type tally struct{ made, ideal int }

func (l tally) ratio() float64 { return float64(l.made) / float64(max(1, l.ideal)) }

// A life is a cluster through joins, deaths and changes of throughput.
type life struct {
	*rand.Rand
	*testing.T

	in    plan.Input
	names int
	// counted are the moves for the sake of counts, busy those for the sake of throughput, where
	// the ideal could be told.
	counted, busy tally
	hopeless      int // moves that made things better, not good
}

// happen makes one thing happen and lets the plans settle.
func (l *life) happen(weighted, rated bool) {
	members := slices.Clone(l.in.Candidates)
	switch what := l.IntN(5); {
	case what < 2 && len(members) > 1:
		i := l.IntN(len(members))
		members = slices.Delete(members, i, i+1)
	case what < 4 && len(members) < 12:
		l.names++
		m := plan.Candidate{Node: fmt.Sprintf("node-%d", l.names), Keeps: true, Takes: true}
		if weighted {
			m.Capacity = []float64{0.5, 1, 2, 3.3}[l.IntN(4)]
		}
		members = append(members, m)
	}
	if rated {
		spread := l.Float64() * 1.2
		l.in.Rates = make([]float64, l.in.Partitions)
		for i := range l.in.Rates {
			l.in.Rates[i] = 50 * math.Exp(spread*l.NormFloat64())
		}
	}
	l.in.Candidates, l.in.Moves = members, 2+l.IntN(20)
	rates, before := l.in.Rates, l.in.Current

	// First the counts alone: what follows with rates is the same, and then exchanges.
	l.in.Rates = nil
	levelled := settle(l, l.in, nil)
	l.counted.made += moved(before, levelled)
	l.counted.ideal += fewest(members, before, l.in.Partitions)
	l.in.Rates, l.in.Current = rates, levelled
	if rates != nil {
		total := 0
		l.in.Current = settle(l, l.in, func(a plan.Assignment) { total += a.Moves })
		if sum, _, _ := beyond(members, l.in.Current, rates); sum < 1e-6 {
			l.busy.made += total
			l.busy.ideal += fewestExchanges(members, levelled, rates)
		} else {
			l.hopeless += total
		}
	}
}

// fewest is how many partitions must change their owner at least until all have one, and nobody
// more or less than its share rounded.
func fewest(members []plan.Candidate, owners []string, n int) int {
	var dead, above, below int
	counts := held(owners)
	for node, has := range counts {
		if !takes(members, node) {
			dead += has
		}
	}
	for node, share := range shares(members, float64(n)) {
		has := float64(counts[node])
		above += int(max(0, has-math.Ceil(share)))
		below += int(max(0, math.Floor(share)-has))
	}
	return max(dead+above, below)
}

// fewestExchanges is how many partitions must change their owner at least until everybody is within
// a tenth of its share and has as many as before: twice the exchanges that the members above need,
// or those below, which give and get the extremes at best.
func fewestExchanges(members []plan.Candidate, owners []string, rates []float64) int {
	_, each, share := beyond(members, owners, rates)
	all := slices.Sorted(slices.Values(rates))
	var above, below int
	for node, amount := range each {
		var has float64
		var own []float64
		for i, owner := range owners {
			if owner == node {
				has += rates[i]
				own = append(own, rates[i])
			}
		}
		slices.Sort(own)
		for k := 0; k < len(own) && amount > 1e-6; k++ {
			if has > share[node] {
				amount -= own[len(own)-1-k] - all[k]
				above++
			} else {
				amount -= all[len(all)-1-k] - own[k]
				below++
			}
		}
	}
	return 2 * max(above, below)
}

// TestTenThousandLivesMoveLittle goes through joins, deaths and changes of throughput of 10,000
// clusters.
func TestTenThousandLivesMoveLittle(t *testing.T) {
	for _, c := range []struct {
		name            string
		weighted, rated bool
		counted, busy   float64 // the most that moves may be of the ideal
	}{
		{"equal members", false, false, 1.0, 0},
		{"weighted members", true, false, 1.05, 0},
		{"equal members with throughput", false, true, 1.0, 1.25},
		{"weighted members with throughput", true, true, 1.05, 1.25},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var counted, busy tally
			hopeless := 0
			for seed := range uint64(2500) {
				l := &life{Rand: rand.New(rand.NewPCG(seed, 1)), T: t, names: 3}
				l.in = plan.Input{Partitions: 8 + l.IntN(56), Candidates: crew(3)}
				l.in.Current = plan.Assign(l.in).Owners
				for range 6 {
					l.happen(c.weighted, c.rated)
					if t.Failed() {
						t.Fatalf("seed %d", seed)
					}
				}
				counted.made, counted.ideal = counted.made+l.counted.made, counted.ideal+l.counted.ideal
				busy.made, busy.ideal = busy.made+l.busy.made, busy.ideal+l.busy.ideal
				hopeless += l.hopeless
			}
			t.Logf("counts: %d moves, %.3f of the ideal; throughput: %d moves, %.2f of the ideal; %d moves that could not be judged",
				counted.made, counted.ratio(), busy.made, busy.ratio(), hopeless)
			if counted.ratio() > c.counted || busy.ratio() > c.busy {
				t.Errorf("more than %.2f and %.2f", c.counted, c.busy)
			}
		})
	}
}

// TestRestartsAfterAHistoryMoveLittleForGood restarts members of clusters that have come a long
// way: what a member had and does not get back is replaced by what is its by hash, so that its next
// restart moves hardly anything for good.
func TestRestartsAfterAHistoryMoveLittleForGood(t *testing.T) {
	var had, once, twice int
	for seed := range uint64(100) {
		l := &life{Rand: rand.New(rand.NewPCG(seed, 2)), T: t, names: 3}
		l.in = plan.Input{Partitions: 64, Candidates: crew(3)}
		l.in.Current = plan.Assign(l.in).Owners
		for range 12 {
			l.happen(false, false)
		}
		in, all := l.in, l.in.Candidates
		if len(all) == 1 {
			continue
		}
		who := l.IntN(len(all))
		restart := func(owners []string) []string {
			in.Current, in.Candidates = owners, slices.Delete(slices.Clone(all), who, who+1)
			in.Current = settle(t, in, nil)
			in.Candidates = all
			return settle(t, in, nil)
		}
		first := restart(l.in.Current)
		had += held(l.in.Current)[all[who].Node]
		once += moved(l.in.Current, first)
		twice += moved(first, restart(first))
	}
	t.Logf("members that had %d partitions got others for %d of them after a restart, for %d after another one", had, once, twice)
	if once*100 > had*30 || twice*100 > had*5 {
		t.Error("more than 30 % and 5 %")
	}
}
