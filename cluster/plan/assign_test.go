package plan_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/cluster/clustertest"
	"github.com/mongostream/streamer/cluster/plan"
)

// crew is node-1 to node-n, all alike.
func crew(n int) []plan.Candidate {
	members := make([]plan.Candidate, n)
	for i := range members {
		members[i] = plan.Candidate{Node: fmt.Sprintf("node-%d", i+1), Keeps: true, Takes: true}
	}
	return members
}

// without is a crew that a member has left.
func without(members []plan.Candidate, node string) []plan.Candidate {
	var rest []plan.Candidate
	for _, m := range members {
		if m.Node != node {
			rest = append(rest, m)
		}
	}
	return rest
}

// moved counts the partitions whose owner is another.
func moved(from, to []string) (n int) {
	for i := range from {
		if from[i] != to[i] {
			n++
		}
	}
	return n
}

// held counts what each member has.
func held(owners []string) map[string]int {
	counts := make(map[string]int)
	for _, o := range owners {
		counts[o]++
	}
	return counts
}

// TestPlansExplainThemselves writes a cluster's life down, and why each partition is where it is.
func TestPlansExplainThemselves(t *testing.T) {
	const n = 12
	var b strings.Builder
	var current []string
	explain := func(what string, in plan.Input) {
		in.Partitions, in.Current = n, current
		a := plan.Assign(in)
		fmt.Fprintf(&b, "%s (moves %d of %d, balanced %t)\n", what, a.Moves, in.Moves, a.Balanced)
		for i, owner := range a.Owners {
			was := ""
			if i < len(current) && current[i] != owner {
				was = "was " + current[i]
			}
			fmt.Fprintf(&b, "  %2d  %-7s %-11s %s\n", i, owner, was, a.Reasons[a.Why[i]])
		}
		b.WriteByte('\n')
		current = a.Owners
	}
	three, four := crew(3), crew(4)
	explain("cold start", plan.Input{Candidates: three})
	explain("node-2 dies", plan.Input{Candidates: without(three, "node-2"), Moves: 2})
	explain("node-2 is back", plan.Input{Candidates: three, Moves: 3})
	explain("node-2 gets the rest", plan.Input{Candidates: three, Moves: 3})
	explain("node-4 joins", plan.Input{Candidates: four, Moves: 8})
	rates := make([]float64, n)
	for i, owner := range current {
		rates[i] = 100
		if owner == "node-1" {
			rates[i] = 140
		}
	}
	explain("node-1 has the busiest partitions", plan.Input{Candidates: four, Moves: 2, Rates: rates})
	explain("everybody is within the tolerance", plan.Input{Candidates: four, Moves: 2, Rates: rates})
	explain("an operator pins two partitions", plan.Input{Candidates: four, Moves: 1, Pinned: map[change.Partition]string{3: "node-4", 8: "node-4"}})
	explain("node-4 has what is pinned, and gives others", plan.Input{Candidates: four, Moves: 4,
		Pinned: map[change.Partition]string{3: "node-4", 8: "node-4"}})
	degraded := crew(4)
	degraded[2].Takes = false
	explain("node-3 is degraded and node-1 unhealthy", plan.Input{Candidates: append([]plan.Candidate{{Node: "node-1"}}, degraded[1:]...), Moves: 2})
	explain("only node-3 is left, degraded", plan.Input{Candidates: degraded[2:3], Moves: 2})

	clustertest.CompareTranscript(t, "explained", b.String())
}
