package wiring

import (
	"testing"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/gap"
	"github.com/mongostream/streamer/retention"
)

// A retained log that stalls counts only while it has the middle of the oplog: it is about to leave
// that, and then has a gap.
func TestStalledRetainedLogCountsNoMore(t *testing.T) {
	var r retained
	at := func(seconds uint32) change.Timestamp { return change.Timestamp{T: seconds} }
	reach := gap.Reach{First: at(1000), Last: at(2000)}
	for _, c := range []struct{ to, want uint32 }{{900, 0}, {1100, 0}, {1499, 0}, {1501, 10}, {2000, 10}} {
		r.extent.Store(&retention.Extent{From: at(10), To: at(c.to)})
		if got := r.from(reach); got != at(c.want) {
			t.Errorf("to %d: from %s", c.to, got)
		}
	}
}
