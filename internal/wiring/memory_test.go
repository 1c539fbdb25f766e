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
}
