package assign_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/mongostream/streamer/cluster/assign"
)

// TestRestartMovesNothingForGood lets members of a first plan leave and come back, one after the other or several at once.
func TestRestartMovesNothingForGood(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := assign.Input{Partitions: rapid.IntRange(1, 200).Draw(t, "partitions"), Members: drawMembers(t, false)}
		all := in.Members
		for i := range all {
			all[i].Keeps, all[i].Takes = true, true
		}
		first := assign.Plan(in).Owners
		current := first
		for range rapid.IntRange(1, 6).Draw(t, "restarts") {
			in.Moves = rapid.IntRange(2, 10).Draw(t, "moves")
			rest := slices.Clone(all)
			for range rapid.IntRange(1, max(1, len(all)-1)).Draw(t, "leave") {
				rest = slices.Delete(rest, 0, min(1, len(rest)-1))
				rest = rapid.Permutation(rest).Draw(t, "who")
			}
			in.Members, in.Current = rest, current
			in.Current = settle(t, in, nil)
			in.Members = all
			current = settle(t, in, nil)
			if n := moved(first, current); n > 0 {
				t.Fatalf("%d partitions of %d are elsewhere than before", n, in.Partitions)
			}
		}
	})
}

// story draws what a cluster without rates has come to after some joins and deaths.
func story(t *rapid.T) (in assign.Input) {
	capacities := rapid.Just(1.0)
	if rapid.Bool().Draw(t, "weighted") {
		capacities = rapid.SampledFrom([]float64{0.5, 1, 2, 3.3, 8})
	}
	in = assign.Input{Partitions: rapid.IntRange(1, 200).Draw(t, "partitions"), Members: crew(rapid.IntRange(1, 8).Draw(t, "members")), Moves: 5}
	for i := range in.Members {
		in.Members[i].Capacity = capacities.Draw(t, "capacity")
	}
	in.Current = settle(t, in, nil)
	next := 100
	for range rapid.IntRange(0, 6).Draw(t, "events") {
		if len(in.Members) > 1 && rapid.Bool().Draw(t, "dies") {
			i := rapid.IntRange(0, len(in.Members)-1).Draw(t, "who")
			in.Members = slices.Delete(slices.Clone(in.Members), i, i+1)
		} else {
			next++
			in.Members = append(slices.Clone(in.Members), assign.Member{
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
		if len(in.Members) == 1 {
			return
		}
		i := rapid.IntRange(0, len(in.Members)-1).Draw(t, "dead")
		dead := in.Members[i].Node
		in.Members, in.Moves = slices.Delete(slices.Clone(in.Members), i, i+1), in.Partitions
		a := assign.Plan(in)
		if a.Moves != 0 || !a.Balanced || moved(in.Current, a.Owners) != held(in.Current)[dead] {
			t.Fatalf("%d live partitions move, balanced %t, when %s dies", a.Moves, a.Balanced, dead)
		}
	})
}

func TestJoinMovesAShare(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := story(t)
		in.Members = append(slices.Clone(in.Members), assign.Member{Node: "node-new", Keeps: true, Takes: true})
		in.Moves = in.Partitions
		a := assign.Plan(in)
		share := shares(in.Members, float64(in.Partitions))["node-new"]
		rounding := 1 + float64(len(in.Members))/float64(2*in.Partitions)
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
		degraded.Members = slices.Clone(in.Members)
		for range rapid.IntRange(1, len(in.Members)).Draw(t, "how many") {
			degraded.Members[rapid.IntRange(0, len(in.Members)-1).Draw(t, "who")].Takes = false
		}
		if a := assign.Plan(degraded); moved(in.Current, a.Owners) != 0 || !a.Balanced {
			t.Fatalf("%d partitions move because members are degraded", moved(in.Current, a.Owners))
		}
		if a := assign.Plan(in); moved(in.Current, a.Owners) != 0 {
			t.Fatalf("%d partitions move because members have recovered", a.Moves)
		}
	})
}

func TestSenselessFiguresCountAsNone(t *testing.T) {
	members := crew(4)
	members[0].Capacity, members[1].Capacity, members[2].Capacity = math.NaN(), math.Inf(1), -3
	in := assign.Input{
		Partitions: 8, Members: members, Moves: 100,
		Current: slices.Repeat([]string{"node-1"}, 20),
		Rates:   []float64{math.NaN(), math.Inf(1), math.Inf(-1), -1, 1e308, 1e308},
	}
	counts := held(settle(t, in, nil))
	for _, m := range members {
		if counts[m.Node] != 2 {
			t.Errorf("%s has %d of 8 partitions over 4 members", m.Node, counts[m.Node])
		}
	}
	for _, in := range []assign.Input{{}, {Partitions: -1}, {Members: crew(2)}, {Partitions: 3, Moves: -5, Current: []string{"x"}}} {
		if a := assign.Plan(in); !a.Balanced || a.Moves != 0 {
			t.Errorf("%+v for %+v", a, in)
		}
	}
}

// TestManyReasonsFit asks for more reasons than numbers of them fit a byte.
func TestManyReasonsFit(t *testing.T) {
	in := assign.Input{Partitions: 6000, Members: crew(400)}
	for i := range in.Partitions {
		in.Current = append(in.Current, fmt.Sprintf("node-%d", 300+i%400))
	}
	a := assign.Plan(in)
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
