package cluster_test

import (
	"testing"

	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func TestSinceBootNeverGoesBack(t *testing.T) {
	last := cluster.SinceBoot()
	for range 1000 {
		now := cluster.SinceBoot()
		if now < last {
			t.Fatalf("%s after %s", now, last)
		}
		last = now
	}
}
