package delivery

import (
	"testing"

	"github.com/mongostream/streamer/snapshot"
)

// What is traced of a snapshot and its pages costs no allocation while nothing is traced.
func TestSnapshotsAllocateNothingForTracesThatAreOff(t *testing.T) {
	h, sub, p := &Hub{}, &Subscription{}, &page{}
	got := testing.AllocsPerRun(100, func() {
		h.traceSnapshot(sub, snapshot.Progress{})
		h.tracePage(sub, p)
		sub.marked(SnapshotDone, snapshot.Progress{})
		sub.endTrail()
	})
	if got != 0 || sub.traced != nil {
		t.Errorf("%v allocations, recorded: %t", got, sub.traced != nil)
	}
}
