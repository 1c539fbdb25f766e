package wiring_test

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"

	"github.com/mongostream/streamer/internal/wiring"
)

func TestMemoryIsSparedUnlessTheEnvironmentSaysHow(t *testing.T) {
	before := debug.SetGCPercent(100)
	defer debug.SetGCPercent(before)
	t.Setenv("GOGC", "200")
	wiring.SpareMemory()()
	if got := debug.SetGCPercent(100); got != 100 {
		t.Errorf("%d %% although GOGC is set", got)
	}
	t.Setenv("GOGC", "")
	goal := func() int64 {
		runtime.GC()
		sample := []metrics.Sample{{Name: "/gc/heap/goal:bytes"}}
		metrics.Read(sample)
		return int64(sample[0].Value.Uint64())
	}
	end := wiring.SpareMemory()
	with := goal()
	end()
	if more := with - goal(); more < 10<<20 || more > 14<<20 { // 8 MiB, and half of that
		t.Errorf("without a limit, the ballast moves the next collection by %d MiB", more>>20)
	}
	if got := debug.SetGCPercent(100); got != 50 {
		t.Errorf("%d %%, want 50", got)
	}
	const limit = 900 << 20
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(limit))
	end = wiring.SpareMemory()
	if got := goal(); got < limit/4 || got > limit {
		t.Errorf("the garbage of a node that holds little is collected at %d MiB", got>>20)
	}
	end()
	if got := debug.SetGCPercent(100); got != 400 {
		t.Errorf("%d %% with a limit of the memory, want 400", got)
	}
}
