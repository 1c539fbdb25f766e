//go:build prove

package process

import "testing"

func TestProveCrashesLoseNothingAndRepeatOnlyWhatNoMarkCovers(t *testing.T) {
	for _, backend := range backends() {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			crashes(t, backend, 200)
		})
	}
}
