package wiring

import (
	"os"
	"runtime/debug"
)

// gcPercent is by how much of what it holds a node's memory grows before the garbage is collected. Most of what a node holds are
// replies without a pointer in them, up to 16 MiB each, which are garbage soon: to collect them twice as often as usual costs little,
// and otherwise a second ring's worth of them would lie about.
const gcPercent = 50

// SpareMemory makes this process collect its garbage as a node should, unless GOGC in the environment says how.
func SpareMemory() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
}
