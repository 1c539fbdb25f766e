package cluster_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/mongostream/streamer/cluster"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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
