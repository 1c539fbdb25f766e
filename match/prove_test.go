//go:build prove

package match_test

import (
	"fmt"
	"testing"
)

// TestProveIndexAgreesWithFilters compares a million pairs of random filters and events.
func TestProveIndexAgreesWithFilters(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			agreeOn(t, 1000+seed, 250_000)
		})
	}
}
