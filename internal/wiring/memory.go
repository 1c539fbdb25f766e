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

// A ballast counts as held although it is never touched and takes no memory, so that a node that
// holds little does not collect its garbage all the time. It is ballastShare of GOMEMLIMIT: nothing
// is collected before the memory has grown to about a third of the limit. Without a limit it is
// leastBallast, which permits 4 MiB of garbage more: without it, a snapshot spends a third of its
// CPU time on collecting. More would show in the memory of an idle node.
const (
	ballastShare = 1. / 16
	leastBallast = 8 << 20
)

// SpareMemory makes this process collect its garbage as a node should, unless the environment sets
// GOGC. Call the returned function when the node has ended.
func SpareMemory() (end func()) {
	if os.Getenv("GOGC") != "" {
		return func() {}
	}
	ballast := leastBallast
	if limit := debug.SetMemoryLimit(-1); limit == math.MaxInt64 {
		debug.SetGCPercent(gcPercent)
	} else {
		debug.SetGCPercent(gcPercentLimited)
		ballast = int(ballastShare * float64(limit))
	}
	untouched := make([]byte, ballast)
	return func() { runtime.KeepAlive(untouched) }
}
