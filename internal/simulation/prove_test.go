//go:build prove

package simulation

import "testing"

// As TestCluster, of many more seeds.
func TestProveCluster(t *testing.T) {
	from := make([]uint64, 20_000/slowed)
	for i := range from {
		from[i] = 1_000_000 + uint64(i)
	}
	t.Logf("%d seeds: %+v", len(from), simulate(t, from))
}
