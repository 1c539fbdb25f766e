//go:build prove

package handoff_test

import "testing"

// TestProveHandoffs is TestNothingIsLostWhateverHappens for longer.
func TestProveHandoffs(t *testing.T) { simulateMany(t, 1, 20_000) }
