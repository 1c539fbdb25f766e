package fair

import (
	runtimemetrics "runtime/metrics"
	"slices"
	"testing"
	"time"
)

// The strain rises while more than one goroutine of a hundred waits for long, and falls slowly,
// between its bounds.
func TestStrainFollowsTheWaitForCores(t *testing.T) {
	waits := &runtimemetrics.Float64Histogram{Counts: make([]uint64, 2), Buckets: []float64{0, strained, 1}}
	s, now, reads := newStrain(), time.Unix(0, 0), 0
	s.read = func() *runtimemetrics.Float64Histogram {
		reads++
		return waits
	}
	window := func(soon, late uint64) float64 {
		waits.Counts[0], waits.Counts[1] = waits.Counts[0]+soon, waits.Counts[1]+late
		now = now.Add(strainWindow)
		return s.now(now)
	}
	steps := []struct {
		soon, late uint64
		want       float64
	}{
		{0, 0, 1}, {1000, 0, 1}, {990, 10, 1}, {0, 2, 1}, {980, 20, 4}, {0, 3, 15}, {0, 5, 15}, {100_000, 5, 14.8}, {0, 2, 14.6}, {10, 3, 15},
	}
	for i, step := range steps {
		if got := window(step.soon, step.late); !near(got, step.want) {
			t.Errorf("step %d: %v, want %v", i, got, step.want)
		}
	}
	before := reads
	if got := s.now(now.Add(strainWindow / 2)); !near(got, 15) || reads != before {
		t.Errorf("%v within a window, %d looks", got, reads-before)
	}
	for range 100 {
		window(100, 0)
	}
	if got := window(100, 0); got != 1 {
		t.Errorf("%v after a while", got)
	}
}

func near(a, b float64) bool { return max(a-b, b-a) < 1e-9 }

// The runtime has the histogram that a strain reads.
func TestStrainReadsTheRuntime(t *testing.T) {
	waits := newStrain().read()
	if len(waits.Buckets) != len(waits.Counts)+1 || !slices.ContainsFunc(waits.Buckets, func(b float64) bool { return b >= strained && b < 2*strained }) {
		t.Errorf("buckets %v", waits.Buckets)
	}
}
