package assign_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/cluster/assign"
)

var rewrite = flag.Bool("rewrite", false, "write the transcripts in testdata anew")

// crew is node-1 to node-n, all alike.
func crew(n int) []assign.Member {
	members := make([]assign.Member, n)
	for i := range members {
		members[i] = assign.Member{Node: fmt.Sprintf("node-%d", i+1), Keeps: true, Takes: true}
	}
	return members
}

// without is a crew that a member has left.
func without(members []assign.Member, node string) []assign.Member {
	var rest []assign.Member
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
	plan := func(what string, in assign.Input) {
		in.Partitions, in.Current = n, current
		a := assign.Plan(in)
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
	plan("cold start", assign.Input{Members: three})
	plan("node-2 dies", assign.Input{Members: without(three, "node-2"), Moves: 2})
	plan("node-2 is back", assign.Input{Members: three, Moves: 3})
	plan("node-2 gets the rest", assign.Input{Members: three, Moves: 3})
	plan("node-4 joins", assign.Input{Members: four, Moves: 8})
	rates := make([]float64, n)
	for i, owner := range current {
		rates[i] = 100
		if owner == "node-1" {
			rates[i] = 140
		}
	}
	plan("node-1 has the busiest partitions", assign.Input{Members: four, Moves: 2, Rates: rates})
	plan("everybody is within the tolerance", assign.Input{Members: four, Moves: 2, Rates: rates})
	plan("an operator pins two partitions", assign.Input{Members: four, Moves: 1, Pinned: map[change.Partition]string{3: "node-4", 8: "node-4"}})
	plan("node-4 has what is pinned, and gives others", assign.Input{Members: four, Moves: 4, Pinned: map[change.Partition]string{3: "node-4", 8: "node-4"}})
	degraded := crew(4)
	degraded[2].Takes = false
	plan("node-3 is degraded and node-1 unhealthy", assign.Input{Members: append([]assign.Member{{Node: "node-1"}}, degraded[1:]...), Moves: 2})
	plan("only node-3 is left, degraded", assign.Input{Members: degraded[2:3], Moves: 2})

	const file = "testdata/explained.txt"
	if *rewrite {
		if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), b.String()); diff != "" {
		t.Errorf("the plans differ (-want +got), -rewrite if that is meant:\n%s", diff)
	}
}
