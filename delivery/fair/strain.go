package fair

import (
	runtimemetrics "runtime/metrics"
	"sync"
	"time"
)

const (
	// strainWindow is how often it is looked whether goroutines wait for a core.
	strainWindow = 100 * time.Millisecond
	// strained is a wait in seconds. The node is strained while more than one goroutine of a
	// hundred waits as long, of leastWaits at least: a single one says nothing.
	strained   = 250e-6
	leastWaits = 200
	// A strain is 1 while no goroutine waits, and maxStrain at most. It is multiplied by strainRise
	// in each window in which the node is strained, and less by strainFall after each other one.
	maxStrain, strainRise, strainFall = 15, 4, 0.2
)

// A strain measures how busy the cores are: how long a slot rests off the live path, in multiples
// of its use. So work off the live path uses only idle cores.
type strain struct {
	read func() (waits *runtimemetrics.Float64Histogram)

	sync.Mutex

	at        time.Time
	level     float64
	late, all uint64 // goroutines so far
}

func newStrain() *strain {
	sample := []runtimemetrics.Sample{{Name: "/sched/latencies:seconds"}}
	return &strain{level: 1, read: func() *runtimemetrics.Float64Histogram {
		runtimemetrics.Read(sample)
		return sample[0].Value.Float64Histogram()
	}}
}

// now returns the strain.
func (s *strain) now(now time.Time) float64 {
	s.Lock()
	defer s.Unlock()
	if now.Sub(s.at) < strainWindow {
		return s.level
	}
	s.at = now
	late, all := uint64(0), uint64(0)
	waits := s.read()
	for i, n := range waits.Counts {
		if all += n; waits.Buckets[i] >= strained {
			late += n
		}
	}
	if 100*(late-s.late) > max(all-s.all, leastWaits) {
		s.level = min(s.level*strainRise, maxStrain)
	} else {
		s.level = max(s.level-strainFall, 1)
	}
	s.late = late
	s.all = all
	return s.level
}
