//go:build prove && !race

package node

import "testing"

// Each attack five times, for longer, with tighter bounds, on one of three nodes.
func TestProveTenantsHarmNobody(t *testing.T) {
	besieged(t, 3, 5, 100, cheapest)
}
