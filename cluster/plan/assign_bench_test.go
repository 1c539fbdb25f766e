package plan_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/mongostream/streamer/cluster/plan"
)

// BenchmarkPlan is a plan of 1,024 partitions over 30 members.
func BenchmarkPlan(b *testing.B) {
	const n, nodes = 1024, 30
	first := plan.Assign(plan.Input{Partitions: n, Candidates: crew(nodes)})
	r := rand.New(rand.NewPCG(1, 2))
	rates := make([]float64, n)
	for i := range rates {
		rates[i] = math.Exp(1.5 * r.NormFloat64())
	}
	for _, c := range []struct {
		name string
		in   plan.Input
	}{
		{"cold", plan.Input{Partitions: n, Candidates: crew(nodes)}},
		{"still", plan.Input{Partitions: n, Candidates: crew(nodes), Current: first.Owners, Moves: 16}},
		{"death", plan.Input{Partitions: n, Candidates: crew(nodes)[1:], Current: first.Owners, Moves: 16}},
		{"join", plan.Input{Partitions: n, Candidates: crew(nodes + 1), Current: first.Owners, Moves: n}},
		{"rates", plan.Input{Partitions: n, Candidates: crew(nodes), Current: first.Owners, Moves: 16, Rates: rates}},
		{"rates-at-once", plan.Input{Partitions: n, Candidates: crew(nodes), Current: first.Owners, Moves: n, Rates: rates}},
		{"largest", plan.Input{Partitions: 16384, Candidates: crew(300)}},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				plan.Assign(c.in)
			}
		})
	}
}
