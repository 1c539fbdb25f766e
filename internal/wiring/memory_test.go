package wiring_test

import (
	"runtime/debug"
	"testing"

	"github.com/mongostream/streamer/internal/wiring"
)

func TestMemoryIsSparedUnlessTheEnvironmentSaysHow(t *testing.T) {
	before := debug.SetGCPercent(100)
	defer debug.SetGCPercent(before)
	t.Setenv("GOGC", "200")
	wiring.SpareMemory()
	if got := debug.SetGCPercent(100); got != 100 {
		t.Errorf("%d %% although GOGC is set", got)
	}
	t.Setenv("GOGC", "")
	wiring.SpareMemory()
	if got := debug.SetGCPercent(100); got != 50 {
		t.Errorf("%d %%, want 50", got)
	}
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(900 << 20))
	wiring.SpareMemory()
	if got := debug.SetGCPercent(100); got != 400 {
		t.Errorf("%d %% with a limit of the memory, want 400", got)
	}
}
