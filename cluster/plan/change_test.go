package plan_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/mongostream/streamer/cluster/plan"
)

// TestRestartMovesNothingForGood lets members of a first plan leave and come back, one after the
// other or several at once.
func TestRestartMovesNothingForGood(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := plan.Input{Partitions: rapid.IntRange(1, 200).Draw(t, "partitions"), Candidates: drawMembers(t, false)}
		all := in.Candidates
		for i := range all {
			all[i].Keeps, all[i].Takes = true, true
		}
		first := plan.Assign(in).Owners
		current := first
		for range rapid.IntRange(1, 6).Draw(t, "restarts") {
			in.Moves = rapid.IntRange(2, 10).Draw(t, "moves")
			rest := slices.Clone(all)
			for range rapid.IntRange(1, max(1, len(all)-1)).Draw(t, "leave") {
				rest = slices.Delete(rest, 0, min(1, len(rest)-1))
				rest = rapid.Permutation(rest).Draw(t, "who")
			}
			in.Candidates, in.Current = rest, current
			in.Current = settle(t, in, nil)
			in.Candidates = all
			current = settle(t, in, nil)
			if n := moved(first, current); n > 0 {
				t.Fatalf("%d partitions of %d are elsewhere than before", n, in.Partitions)
			}
		}
	})
}

// story draws what a cluster without rates has come to after some joins and deaths.
func story(t *rapid.T) (in plan.Input) {
	capacities := rapid.Just(1.0)
	if rapid.Bool().Draw(t, "weighted") {
		capacities = rapid.SampledFrom([]float64{0.5, 1, 2, 3.3, 8})
	}
	in = plan.Input{Partitions: rapid.IntRange(1, 200).Draw(t, "partitions"), Candidates: crew(rapid.IntRange(1, 8).Draw(t, "members")), Moves: 5}
	for i := range in.Candidates {
		in.Candidates[i].Capacity = capacities.Draw(t, "capacity")
	}
	in.Current = settle(t, in, nil)
	next := 100
	for range rapid.IntRange(0, 6).Draw(t, "events") {
		if len(in.Candidates) > 1 && rapid.Bool().Draw(t, "dies") {
			i := rapid.IntRange(0, len(in.Candidates)-1).Draw(t, "who")
			in.Candidates = slices.Delete(slices.Clone(in.Candidates), i, i+1)
		} else {
			next++
			in.Candidates = append(slices.Clone(in.Candidates), plan.Candidate{
				Node: fmt.Sprintf("node-%d", next), Capacity: capacities.Draw(t, "capacity"), Keeps: true, Takes: true,
			})
		}
		in.Current = settle(t, in, nil)
	}
	return in
}

func TestDeathMovesWhatTheDeadHadAndNothingElse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := story(t)
		if len(in.Candidates) == 1 {
			return
		}
		i := rapid.IntRange(0, len(in.Candidates)-1).Draw(t, "dead")
		dead := in.Candidates[i].Node
		in.Candidates, in.Moves = slices.Delete(slices.Clone(in.Candidates), i, i+1), in.Partitions
		a := plan.Assign(in)
		if a.Moves != 0 || !a.Balanced || moved(in.Current, a.Owners) != held(in.Current)[dead] {
			t.Fatalf("%d live partitions move, balanced %t, when %s dies", a.Moves, a.Balanced, dead)
		}
	})
}

func TestJoinMovesAShare(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := story(t)
		in.Candidates = append(slices.Clone(in.Candidates), plan.Candidate{Node: "node-new", Keeps: true, Takes: true})
		in.Moves = in.Partitions
		a := plan.Assign(in)
		share := shares(in.Candidates, float64(in.Partitions))["node-new"]
		rounding := 1 + float64(len(in.Candidates))/float64(2*in.Partitions)
		n := held(a.Owners)["node-new"]
		if a.Moves != n || !a.Balanced || float64(n) < share*(2-rounding)-0.5 || float64(n) > share*rounding+0.5 {
			t.Fatalf("%d moves give node-new %d with a share of %.2f, balanced %t", a.Moves, n, share, a.Balanced)
		}
	})
}

func TestDegradedMemberThatRecoversMovesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := story(t)
		in.Moves = in.Partitions
		degraded := in
		degraded.Candidates = slices.Clone(in.Candidates)
		for range rapid.IntRange(1, len(in.Candidates)).Draw(t, "how many") {
			degraded.Candidates[rapid.IntRange(0, len(in.Candidates)-1).Draw(t, "who")].Takes = false
		}
		if a := plan.Assign(degraded); moved(in.Current, a.Owners) != 0 || !a.Balanced {
			t.Fatalf("%d partitions move because members are degraded", moved(in.Current, a.Owners))
		}
		if a := plan.Assign(in); moved(in.Current, a.Owners) != 0 {
			t.Fatalf("%d partitions move because members have recovered", a.Moves)
		}
	})
}

func TestSenselessFiguresCountAsNone(t *testing.T) {
	members := crew(4)
	members[0].Capacity, members[1].Capacity, members[2].Capacity = math.NaN(), math.Inf(1), -3
	in := plan.Input{
		Partitions: 8, Candidates: members, Moves: 100,
		Current: slices.Repeat([]string{"node-1"}, 20),
		Rates:   []float64{math.NaN(), math.Inf(1), math.Inf(-1), -1, 1e308, 1e308},
	}
	counts := held(settle(t, in, nil))
	for _, m := range members {
		if counts[m.Node] != 2 {
			t.Errorf("%s has %d of 8 partitions over 4 members", m.Node, counts[m.Node])
		}
	}
	for _, in := range []plan.Input{{}, {Partitions: -1}, {Candidates: crew(2)}, {Partitions: 3, Moves: -5, Current: []string{"x"}}} {
		if a := plan.Assign(in); !a.Balanced || a.Moves != 0 {
			t.Errorf("%+v for %+v", a, in)
		}
	}
}

// TestManyReasonsFit asks for more reasons than numbers of them fit a byte.
func TestManyReasonsFit(t *testing.T) {
	in := plan.Input{Partitions: 6000, Candidates: crew(400)}
	for i := range in.Partitions {
		in.Current = append(in.Current, fmt.Sprintf("node-%d", 300+i%400))
	}
	a := plan.Assign(in)
	short := 0
	for i, why := range a.Why {
		if int(why) >= len(a.Reasons) {
			t.Fatalf("partition %d has reason %d of %d", i, why, len(a.Reasons))
		}
		if a.Reasons[why] == "its owner is gone; bounded load: the first by its hash is full" {
			short++
		}
	}
	if short == 0 || len(a.Reasons) > 256 {
		t.Errorf("%d reasons, %d partitions have one without names", len(a.Reasons), short)
	}
}
