package wiring

import (
	"math"
	"os"
	"runtime"
	"runtime/debug"
)

// By how much of what it holds a node's memory grows before the garbage is collected. Most of what
// a node holds are replies without a pointer in them, up to 16 MiB each, which are garbage soon: to
// collect them twice as often as usual costs little, and otherwise a second ring's worth of them
// would lie about. Where GOMEMLIMIT bounds the memory, that may be used: each collection delays
// what is delivered meanwhile.
const gcPercent, gcPercentLimited = 50, 400

// ballast is the share of GOMEMLIMIT that counts as held although it is never touched, so that a
// node that holds little does not collect its garbage before its memory has grown to about a third
// of the limit.
const ballast = 1. / 16

// SpareMemory makes this process collect its garbage as a node should, unless GOGC in the
// environment says how. What it returns is to be called when the node has ended.
func SpareMemory() (end func()) {
	limit := debug.SetMemoryLimit(-1)
	switch {
	case os.Getenv("GOGC") != "":
	case limit == math.MaxInt64:
		debug.SetGCPercent(gcPercent)
	default:
		debug.SetGCPercent(gcPercentLimited)
		untouched := make([]byte, int(ballast*float64(limit)))
		return func() { runtime.KeepAlive(untouched) }
	}
	return func() {}
}
