package wiring

import (
	"testing"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/gap"
	"github.com/mongostream/streamer/internal/config"
	"github.com/mongostream/streamer/retention"
)

// A retained log that stalls counts only while it has the middle of the oplog: it is about to leave
// that, and then has a gap.
func TestStalledRetainedLogCountsNoMore(t *testing.T) {
	var r retained
	at := func(seconds uint32) change.Timestamp { return change.Timestamp{T: seconds} }
	for _, c := range []struct{ last, to, want uint32 }{
		{2000, 900, 0}, {2000, 1100, 0}, {2000, 1439, 0}, {2000, 1441, 10}, {2000, 2000, 10}, // a minute before the middle
		{1100, 999, 0}, {1100, 1001, 10}, // an oplog of a few minutes
	} {
		r.extent.Store(&retention.Extent{From: at(10), To: at(c.to)})
		if got := r.from(gap.Reach{First: at(1000), Last: at(c.last)}); got != at(c.want) {
			t.Errorf("to %d of %d: from %s", c.to, c.last, got)
		}
	}
}

// What one node's folder has, other nodes have not: operators, who ask any node about a subscriber
// of all, see the oplog only. A bucket is of all nodes.
func TestOperatorsOfSeveralNodesSeeOnlyTheOplog(t *testing.T) {
	oplog := gap.Reach{First: change.Timestamp{T: 1000}, Last: change.Timestamp{T: 2000}}
	for _, c := range []struct {
		nodes int
		store string
		want  uint32
	}{{1, "file:///log", 10}, {2, "file:///log", 0}, {1, "s3://log", 10}, {2, "s3://log", 10}} {
		s := Service{opts: Options{Config: config.Config{Cluster: config.Cluster{ExpectedNodes: c.nodes}, Retention: config.Retention{Store: c.store}}}}
		s.retained.extent.Store(&retention.Extent{From: change.Timestamp{T: 10}, To: oplog.Last})
		if got := s.readable().Retained(oplog); got.T != c.want {
			t.Errorf("%d nodes, %s: %s", c.nodes, c.store, got)
		}
	}
}
