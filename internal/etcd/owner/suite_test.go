package owner

import (
	"testing"

	"mongostream/checkpoint/checkpointtest"
	"mongostream/cluster"
	"mongostream/cluster/clustertest"
	"mongostream/internal/devetcd/devetcdtest"
	"mongostream/internal/etcd"
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
