package mark

import (
	"testing"

	"mongostream/checkpoint/checkpointtest"
	"mongostream/cluster"
	"mongostream/cluster/clustertest"
	"mongostream/internal/devmongo/devmongotest"
	"mongostream/internal/mongodb/mongodbtest"
)

func TestOwnerIsARegistry(t *testing.T) {
	uri := devmongotest.URI(t)
	clustertest.TestRegistry(t, func(t *testing.T) clustertest.Harness {
		c := mongodbtest.Dial(t, uri)
		name := mongodbtest.Database(t, c)
		open := func() *Store { return NewStore(c, name, "c", checkpointtest.Partitions) }
		return clustertest.Harness{Join: func() cluster.Registry { return NewOwner(c, open()) }, Store: open()}
	})
}
