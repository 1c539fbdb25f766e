package plan_test

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/zeebo/xxh3"
	"pgregory.net/rapid"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/cluster/plan"
)

// shares is by member that takes any what it should have of a whole, by capacity.
func shares(members []plan.Candidate, whole float64) map[string]float64 {
	var weights float64
	each := make(map[string]float64)
	for _, m := range members {
		if m.Keeps && m.Takes {
			each[m.Node] = weightOf(m)
			weights += each[m.Node]
		}
	}
	for node := range each {
		each[node] *= whole / weights
	}
	return each
}

func weightOf(m plan.Candidate) float64 {
	if m.Capacity > 0 {
		return min(max(m.Capacity, 0.001), 1000)
	}
	return 1
}

// keeps and takes look a member up.
func keeps(members []plan.Candidate, node string) bool {
	return slices.ContainsFunc(members, func(m plan.Candidate) bool { return m.Node == node && m.Keeps })
}

func takes(members []plan.Candidate, node string) bool {
	return slices.ContainsFunc(members, func(m plan.Candidate) bool { return m.Node == node && m.Keeps && m.Takes })
}

// drawMembers draws a crew of members of all conditions; alike says that all are well and equal.
func drawMembers(t *rapid.T, alike bool) []plan.Candidate {
	members := crew(rapid.IntRange(1, 9).Draw(t, "members"))
	for i := range members {
		if !alike {
			members[i].Capacity = rapid.SampledFrom([]float64{0, 1, 1, 1, 0.5, 2, 3.3, 8}).Draw(t, "capacity")
			members[i].Keeps = rapid.IntRange(0, 5).Draw(t, "keeps") > 0
			members[i].Takes = rapid.IntRange(0, 4).Draw(t, "takes") > 0
		}
	}
	return members
}

func drawRates(t *rapid.T, n int) []float64 {
	if rapid.Bool().Draw(t, "rates unknown") {
		return nil
	}
	r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "rates"), 0))
	spread := rapid.SampledFrom([]float64{0, 0.3, 1, 2.5}).Draw(t, "spread")
	rates := make([]float64, n)
	for i := range rates {
		rates[i] = 50 * math.Exp(spread*r.NormFloat64())
	}
	return rates
}

// drawInput draws anything.
func drawInput(t *rapid.T) plan.Input {
	in := plan.Input{Partitions: rapid.IntRange(0, 90).Draw(t, "partitions"), Candidates: drawMembers(t, false)}
	owners := []string{"", "gone"}
	for _, m := range in.Candidates {
		owners = append(owners, m.Node)
	}
	in.Current = rapid.SliceOfN(rapid.SampledFrom(owners), 0, in.Partitions).Draw(t, "current")
	in.Rates = drawRates(t, in.Partitions)
	in.Moves = rapid.IntRange(0, 12).Draw(t, "moves")
	for range rapid.SampledFrom([]int{0, 0, 0, 3, 30}).Draw(t, "pins") {
		if in.Pinned == nil {
			in.Pinned = make(map[change.Partition]string)
		}
		in.Pinned[change.Partition(rapid.IntRange(0, 95).Draw(t, "pinned"))] = rapid.SampledFrom(owners).Draw(t, "to")
	}
	return in
}

func TestWhateverIsAskedThePlanIsSound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawInput(t)
		a := plan.Assign(in)
		if len(a.Owners) != in.Partitions || len(a.Why) != in.Partitions {
			t.Fatalf("%d owners and %d reasons for %d partitions", len(a.Owners), len(a.Why), in.Partitions)
		}
		anybody := slices.ContainsFunc(in.Candidates, func(m plan.Candidate) bool { return m.Keeps && m.Takes })
		moves := 0
		for i, owner := range a.Owners {
			was := ""
			if i < len(in.Current) {
				was = in.Current[i]
			}
			stays := keeps(in.Candidates, was)
			switch {
			case owner == "" && (anybody || stays):
				t.Fatalf("partition %d has no owner", i)
			case owner != "" && owner != was && !takes(in.Candidates, owner):
				t.Fatalf("partition %d goes to %s, which takes none", i, owner)
			case owner != "" && !keeps(in.Candidates, owner):
				t.Fatalf("partition %d is with %s, which may not keep it", i, owner)
			case stays && owner != was:
				moves++
			}
			if reason := a.Reasons[a.Why[i]]; reason == "" {
				t.Fatalf("partition %d is with %s for no reason", i, owner)
			}
		}
		if moves != a.Moves || moves > in.Moves {
			t.Fatalf("%d moves, told as %d, with at most %d", moves, a.Moves, in.Moves)
		}
	})
}

func TestOrderOfMembersChangesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawInput(t)
		want := plan.Assign(in)
		in.Candidates = rapid.Permutation(in.Candidates).Draw(t, "permutation")
		if diff := cmp.Diff(want, plan.Assign(in)); diff != "" {
			t.Fatal(diff)
		}
	})
}

func TestNobodyIsGivenMoreThanItsShare(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawInput(t)
		in.Pinned = nil // they go beyond
		a := plan.Assign(in)
		counts, before, pool := held(a.Owners), make(map[string]int), 0
		for i, owner := range a.Owners {
			if i < len(in.Current) && in.Current[i] == owner {
				before[owner]++
			}
			if takes(in.Candidates, owner) {
				pool++
			}
		}
		rounding := 1 + float64(len(in.Candidates))/float64(2*max(1, pool))
		for node, share := range shares(in.Candidates, float64(pool)) {
			given, has := counts[node] > before[node], float64(counts[node])
			if (given || a.Balanced) && has > share*rounding+0.5 {
				t.Fatalf("%s has %v with a share of %.2f", node, has, share)
			}
			if a.Balanced && has < share*(2-rounding)-0.5 {
				t.Fatalf("%s has %v only with a share of %.2f", node, has, share)
			}
			if (given || a.Balanced) && pool >= 10*len(in.Candidates) && has > math.Ceil(1.05*share) {
				t.Fatalf("%s has %v with a share of %.2f among many partitions", node, has, share)
			}
		}
	})
}

func TestEqualMembersHaveEqualCounts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawInput(t)
		in.Candidates, in.Pinned = crew(rapid.IntRange(1, 12).Draw(t, "equals")), nil
		counts := held(settle(t, in, nil))
		for _, m := range in.Candidates {
			low, n := in.Partitions/len(in.Candidates), counts[m.Node]
			if n < low || n > low+1 || n == low+1 && in.Partitions%len(in.Candidates) == 0 {
				t.Fatalf("%s has %d of %d partitions over %d members", m.Node, n, in.Partitions, len(in.Candidates))
			}
		}
	})
}

// testingT is what both kinds of tests have.
type testingT interface {
	Helper()
	Fatalf(format string, args ...any)
}

// settle plans until the plan is balanced, within the proven number of moves, and returns the
// owners. It looks at each plan.
func settle(t testingT, in plan.Input, each func(plan.Assignment)) []string {
	t.Helper()
	in.Moves = max(1, in.Moves)
	capacities, smallest := 0.0, math.Inf(1)
	for _, m := range in.Candidates {
		capacities += weightOf(m)
		smallest = min(smallest, weightOf(m))
	}
	bound := len(in.Pinned) + in.Partitions + int(400*capacities/smallest)
	seen := make(map[string]bool)
	for total := 0; ; {
		a := plan.Assign(in)
		if each != nil {
			each(a)
		}
		if total += a.Moves; total > bound {
			t.Fatalf("%d moves with at most %d", total, bound)
		}
		in.Current = a.Owners
		if a.Balanced {
			again := plan.Assign(in)
			if again.Moves != 0 || !again.Balanced || !slices.Equal(again.Owners, a.Owners) {
				t.Fatalf("a balanced plan is followed by %d moves", again.Moves)
			}
			return a.Owners
		}
		if a.Moves == 0 {
			t.Fatalf("a plan that is not balanced moves nothing")
		}
		key := fmt.Sprint(a.Owners)
		if seen[key] {
			t.Fatalf("the plans go in a circle")
		}
		seen[key] = true
	}
}

func TestPlansComeToAnEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { settle(t, drawInput(t), nil) })
}

func TestPinnedPartitionsGoAndStayWhereTheyArePinned(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawInput(t)
		before := in.Current
		owners := settle(t, in, func(a plan.Assignment) {
			for partition, node := range in.Pinned {
				if i := int(partition); i < len(before) && takes(in.Candidates, node) && before[i] == node && a.Owners[i] != node {
					t.Fatalf("partition %d leaves %s, where it is pinned", i, node)
				}
			}
			before = a.Owners
		})
		for partition, node := range in.Pinned {
			if int(partition) < in.Partitions && takes(in.Candidates, node) && owners[partition] != node {
				t.Fatalf("partition %d is with %s and pinned to %s", partition, owners[partition], node)
			}
		}
	})
}

func TestWhatIsPinnedWhereItIsDoesNotMove(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := plan.Input{Partitions: 40, Candidates: drawMembers(t, true), Moves: 40, Pinned: make(map[change.Partition]string)}
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "owners"), 0))
		for i := range in.Partitions {
			in.Current = append(in.Current, in.Candidates[r.IntN(len(in.Candidates))].Node)
			if r.IntN(2) == 0 {
				in.Pinned[change.Partition(i)] = in.Current[i]
			}
		}
		a := plan.Assign(in)
		for partition, node := range in.Pinned {
			if a.Owners[partition] != node {
				t.Fatalf("partition %d leaves %s, where it is pinned", partition, node)
			}
		}
	})
}

func TestPinsWaitForMoves(t *testing.T) {
	in := plan.Input{Partitions: 2, Candidates: crew(2), Moves: 1}
	in.Current = plan.Assign(in).Owners
	in.Pinned = map[change.Partition]string{0: in.Current[1], 1: in.Current[0]}
	for i, balanced := range []bool{false, true} {
		a := plan.Assign(in)
		if a.Moves != 1 || a.Balanced != balanced {
			t.Errorf("plan %d has %d moves of the 2 that are wanted, and is balanced: %t", i, a.Moves, a.Balanced)
		}
		in.Current = a.Owners
	}
}

// TestPartitionThatGoesBackIsNoMove lets a member join whose partitions are exchanged in the same
// plan.
func TestPartitionThatGoesBackIsNoMove(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 60).Draw(t, "partitions")
		in := plan.Input{Partitions: n, Candidates: drawMembers(t, true), Moves: n}
		in.Current = plan.Assign(in).Owners
		in.Candidates, in.Rates = crew(len(in.Candidates)+rapid.IntRange(1, 4).Draw(t, "join")), drawRates(t, n)
		if a := plan.Assign(in); a.Moves != moved(in.Current, a.Owners) {
			t.Fatalf("%d moves, told as %d", moved(in.Current, a.Owners), a.Moves)
		}
	})
}

// beyond is by how much members' events are beyond a tenth of their shares.
func beyond(members []plan.Candidate, owners []string, rates []float64) (sum float64, each map[string]float64, share map[string]float64) {
	var total float64
	has := make(map[string]float64)
	for i, owner := range owners {
		if takes(members, owner) && i < len(rates) {
			has[owner] += rates[i]
			total += rates[i]
		}
	}
	share, each = shares(members, total), make(map[string]float64)
	for _, node := range slices.Sorted(maps.Keys(share)) {
		each[node] = max(0, math.Abs(has[node]-share[node])-0.1*share[node])
		sum += each[node]
	}
	return sum, each, share
}

// TestThroughputIsExchangedUntilNothingHelps compares with all exchanges there are.
func TestThroughputIsExchangedUntilNothingHelps(t *testing.T) {
	const rounding = 1e-6
	rapid.Check(t, func(t *rapid.T) {
		in := drawInput(t)
		in.Pinned, in.Moves = nil, max(2, in.Moves)
		levelled, last := false, 0.0
		owners := settle(t, in, func(a plan.Assignment) {
			sum, _, _ := beyond(in.Candidates, a.Owners, in.Rates)
			if levelled && sum > last+rounding {
				t.Fatalf("an exchange takes the members from %v to %v beyond their shares", last, sum)
			}
			last, levelled = sum, levelled || slices.ContainsFunc(a.Reasons, func(s string) bool { return len(s) > 10 && s[:10] == "rebalanced" })
		})
		if in.Rates == nil {
			return
		}
		sum, each, share := beyond(in.Candidates, owners, in.Rates)
		for node, amount := range each {
			if amount <= rounding {
				continue
			}
			for i := range owners {
				for j := range owners {
					if owners[i] != node || owners[j] == node || !takes(in.Candidates, owners[j]) {
						continue
					}
					after := slices.Clone(owners)
					after[i], after[j] = after[j], after[i]
					better, _, _ := beyond(in.Candidates, after, in.Rates)
					if sum-better > 0.01*share[node]+rounding {
						t.Fatalf("exchanging %d of %s with %d of %s would make %v beyond the shares %v", i, node, j, owners[j], sum, better)
					}
				}
			}
		}
	})
}

func TestThroughputWithinATenthMovesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := plan.Input{Partitions: rapid.IntRange(1, 90).Draw(t, "partitions"), Candidates: drawMembers(t, true), Moves: 50}
		first := plan.Assign(in)
		in.Current = first.Owners
		in.Rates = make([]float64, in.Partitions)
		counts := held(first.Owners)
		for i, owner := range first.Owners { // each member 95 % to 105 % of the same
			in.Rates[i] = rapid.Float64Range(95, 105).Draw(t, "rate") / float64(counts[owner])
		}
		if in.Partitions < len(in.Candidates) {
			return // who has nothing has no events
		}
		if a := plan.Assign(in); a.Moves != 0 || !a.Balanced {
			t.Fatalf("%d moves", a.Moves)
		}
	})
}

// TestFirstPlanIsTheMatching compares with the matching found the slow way: pairs by score, the
// highest first.
func TestFirstPlanIsTheMatching(t *testing.T) {
	type pair struct {
		partition int
		node      string
		score     float64
	}
	rapid.Check(t, func(t *rapid.T) {
		in := plan.Input{Partitions: rapid.IntRange(0, 90).Draw(t, "partitions"), Candidates: drawMembers(t, false)}
		a := plan.Assign(in)
		room := held(a.Owners)
		var pairs []pair
		for i := range in.Partitions {
			for _, m := range in.Candidates {
				if m.Keeps && m.Takes {
					key := binary.BigEndian.AppendUint32(nil, uint32(i))
					u := (float64(xxh3.HashSeed(key, xxh3.HashString(m.Node))>>11) + 0.5) / (1 << 53)
					pairs = append(pairs, pair{i, m.Node, -weightOf(m) / math.Log(u)})
				}
			}
		}
		slices.SortFunc(pairs, func(a, b pair) int {
			if a.score > b.score {
				return -1
			}
			return 1
		})
		want := make([]string, in.Partitions)
		for _, p := range pairs {
			if want[p.partition] == "" && room[p.node] > 0 {
				want[p.partition] = p.node
				room[p.node]--
			}
		}
		if diff := cmp.Diff(want, a.Owners); diff != "" {
			t.Fatal(diff)
		}
	})
}
