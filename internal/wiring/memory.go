package wiring

import (
	"math"
	"os"
	"runtime/debug"
)

// By how much of what it holds a node's memory grows before the garbage is collected. Most of what a node holds are replies without a pointer in
// them, up to 16 MiB each, which are garbage soon: to collect them twice as often as usual costs little, and otherwise a second ring's worth of them
// would lie about. Where GOMEMLIMIT bounds the memory, that may be used: each collection delays what is delivered meanwhile.
const gcPercent, gcPercentLimited = 50, 400

// SpareMemory makes this process collect its garbage as a node should, unless GOGC in the environment says how.
func SpareMemory() {
	switch {
	case os.Getenv("GOGC") != "":
	case debug.SetMemoryLimit(-1) < math.MaxInt64:
		debug.SetGCPercent(gcPercentLimited)
	default:
		debug.SetGCPercent(gcPercent)
	}
}
