package checkpoints

import (
	"testing"

	"github.com/mongostream/streamer/checkpoint/checkpointtest"
	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/cluster/clustertest"
	"github.com/mongostream/streamer/internal/devmongo/devmongotest"
	"github.com/mongostream/streamer/internal/mongodb/mongodbtest"
)

func TestOwnerIsARegistry(t *testing.T) {
	uri := devmongotest.URI(t)
	clustertest.TestRegistry(t, func(t *testing.T) clustertest.Harness {
		c := mongodbtest.Dial(t, uri)
		name := mongodbtest.Database(t, c)
		open := func() *Store { return NewStore(c, name, "c", checkpointtest.Partitions) }
		return clustertest.Harness{Join: func() cluster.Registry { return NewOwner(open()) }, Store: open()}
	})
}
