package delivery

import (
	"testing"

	"github.com/mongostream/streamer/snapshot"
)

// What is traced of a snapshot and its pages costs no allocation while nothing is traced.
func TestSnapshotsAllocateNothingForTracesThatAreOff(t *testing.T) {
	h, sub, c, f := &Hub{}, &Subscription{}, &scan{}, &fetch{}
	ctx := t.Context()
	got := testing.AllocsPerRun(100, func() {
		h.traceSnapshot(sub, snapshot.Progress{})
		f.begun, f.over = h.traceTime(), h.traceTime()
		h.tracePage(ctx, c, f)
		sub.marked(SnapshotDone, snapshot.Progress{})
		sub.leaveTrail()
	})
	if got != 0 || sub.traced != nil || !f.begun.IsZero() {
		t.Errorf("%v allocations, recorded: %t", got, sub.traced != nil)
	}
}
