package owner

import (
	"testing"

	"github.com/mongostream/streamer/checkpoint/checkpointtest"
	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/cluster/clustertest"
	"github.com/mongostream/streamer/internal/devetcd/devetcdtest"
	"github.com/mongostream/streamer/internal/etcd"
)

func TestRegistryIsARegistry(t *testing.T) {
	endpoints := devetcdtest.Endpoints(t)
	clustertest.TestRegistry(t, func(t *testing.T) clustertest.Harness {
		p := newPlace(t, endpoints)
		return clustertest.Harness{
			Join:  func() cluster.Registry { return NewRegistry(p.dial(nil)) },
			Store: etcd.NewStore(p.dial(nil), checkpointtest.Partitions),
		}
	})
}
