package assign_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/mongostream/streamer/cluster/assign"
)

// BenchmarkPlan is a plan of 1,024 partitions over 30 members.
func BenchmarkPlan(b *testing.B) {
	const n, nodes = 1024, 30
	first := assign.Plan(assign.Input{Partitions: n, Members: crew(nodes)})
	r := rand.New(rand.NewPCG(1, 2))
	rates := make([]float64, n)
	for i := range rates {
		rates[i] = math.Exp(1.5 * r.NormFloat64())
	}
	for _, c := range []struct {
		name string
		in   assign.Input
	}{
		{"cold", assign.Input{Partitions: n, Members: crew(nodes)}},
		{"still", assign.Input{Partitions: n, Members: crew(nodes), Current: first.Owners, Moves: 16}},
		{"death", assign.Input{Partitions: n, Members: crew(nodes)[1:], Current: first.Owners, Moves: 16}},
		{"join", assign.Input{Partitions: n, Members: crew(nodes + 1), Current: first.Owners, Moves: n}},
		{"rates", assign.Input{Partitions: n, Members: crew(nodes), Current: first.Owners, Moves: 16, Rates: rates}},
		{"rates-at-once", assign.Input{Partitions: n, Members: crew(nodes), Current: first.Owners, Moves: n, Rates: rates}},
		{"largest", assign.Input{Partitions: 16384, Members: crew(300)}},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				assign.Plan(c.in)
			}
		})
	}
}
