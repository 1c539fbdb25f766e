//go:build prove && !race

package node

import (
	"testing"
	"time"
)

// Each attack five times, for longer, with tighter bounds.
func TestProveTenantsHarmNobody(t *testing.T) {
	besieged(t, 5, 100, 50*time.Millisecond)
}
