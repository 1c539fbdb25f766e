package etcd

import (
	"testing"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint/checkpointtest"
	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/cluster/clustertest"
	"github.com/mongostream/streamer/internal/etcd/etcdtest"
)

func TestRegistryIsARegistry(t *testing.T) {
	t.Parallel()
	testRegistry(t, etcdtest.Endpoints(t))
}

func TestRegistryIsARegistryBesideAnIsolatedMember(t *testing.T) {
	t.Parallel()
	testRegistry(t, etcdtest.Isolated(t))
}

// testRegistry runs the suite on an etcd whose first endpoint answers.
func testRegistry(t *testing.T, endpoints []string) {
	clustertest.TestRegistry(t, func(t *testing.T) clustertest.RegistryHarness {
		p := newRegistryPlace(t, endpoints[:1])
		p.cfg.Endpoints = endpoints
		return clustertest.RegistryHarness{
			Join:  func() cluster.Registry { return NewRegistry(p.dial(nil)) },
			Store: NewStore(p.dial(nil), checkpointtest.Partitions),
			Take: func(partition change.Partition) {
				if _, err := p.raw.Delete(t.Context(), p.key("owner/%05d", partition)); err != nil {
					t.Error(err)
				}
			},
		}
	})
}
