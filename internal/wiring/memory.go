package wiring

import (
	"math"
	"os"
	"runtime"
	"runtime/debug"
)

// The growth of a node's memory before a garbage collection, in per cent of its live memory. Most
// of a node's memory is replies without pointers, up to 16 MiB each, which soon become garbage.
// Collecting them twice as often as usual costs little; otherwise garbage would take as much memory
// as another ring. If GOMEMLIMIT bounds the memory, the node may use all of it, because each
// collection delays deliveries.
const gcPercent, gcPercentLimited = 50, 400

// ballast is the share of GOMEMLIMIT that counts as held although it is never touched, so that a
// node that holds little does not collect its garbage before its memory has grown to about a third
// of the limit.
const ballast = 1. / 16

// SpareMemory makes this process collect its garbage as a node should, unless the environment sets
// GOGC. Call the returned function when the node has ended.
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
