package etcd

import (
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint/checkpointtest"
	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/cluster/clustertest"
	devetcd "github.com/mongostream/streamer/dev/etcd"
	"github.com/mongostream/streamer/handoff"
	"github.com/mongostream/streamer/internal/etcd/etcdtest"
)

const n = checkpointtest.Partitions

// A clusterPlace is a place with an origin.
type clusterPlace struct{ place }

func newClusterPlace(t *testing.T, endpoints []string) clusterPlace {
	t.Helper()
	p := clusterPlace{newPlace(t, endpoints)}
	p.origin(1)
	return p
}

// own is a place in an etcd of its own.
func own(t *testing.T) clusterPlace {
	t.Helper()
	return newClusterPlace(t, etcdtest.Start(t, devetcd.Config{Dir: t.TempDir()}))
}

// store is the store as a process reaches it.
func (p clusterPlace) store(l *etcdtest.Link) *ClusterStore {
	p.Helper()
	return NewClusterStore(p.dial(l), ClusterConfig{Partitions: n, ElectionTTL: time.Minute})
}

// brief is a store whose leader is replaced soon after it was last heard of.
func (p clusterPlace) brief(l *etcdtest.Link) *ClusterStore {
	p.Helper()
	return NewClusterStore(p.dial(l), ClusterConfig{Partitions: n, ElectionTTL: 2 * time.Second})
}

func (p clusterPlace) put(key, value string, options ...clientv3.OpOption) {
	p.Helper()
	if _, err := p.raw.Put(p.Context(), key, value, options...); err != nil {
		p.Fatal(err)
	}
}

func (p clusterPlace) delete(key string) {
	p.Helper()
	if _, err := p.raw.Delete(p.Context(), key); err != nil {
		p.Fatal(err)
	}
}

func (p clusterPlace) join(s *ClusterStore, process string) *membership {
	p.Helper()
	m, err := s.Join(p.Context(), cluster.Heartbeat{Node: "node-" + process, Process: process}, time.Minute)
	if err != nil {
		p.Fatal(err)
	}
	return m.(*membership)
}

func (p clusterPlace) claim(m cluster.Membership, partitions ...change.Partition) []cluster.Owner {
	p.Helper()
	owners, err := m.Claim(p.Context(), partitions)
	if err != nil {
		p.Fatal(err)
	}
	return owners
}

func (p clusterPlace) view(s *ClusterStore) cluster.View {
	p.Helper()
	view, err := s.View(p.Context())
	if err != nil {
		p.Fatal(err)
	}
	return view
}

func (p clusterPlace) leases() int {
	p.Helper()
	resp, err := p.raw.Leases(p.Context())
	if err != nil {
		p.Fatal(err)
	}
	return len(resp.Leases)
}

func all() []change.Partition {
	all := make([]change.Partition, n)
	for i := range all {
		all[i] = change.Partition(i)
	}
	return all
}

func TestClusterStoreIsAStore(t *testing.T) {
	t.Parallel()
	testStore(t, etcdtest.Endpoints(t))
}

func TestClusterStoreIsAStoreBesideAnIsolatedMember(t *testing.T) {
	t.Parallel()
	testStore(t, etcdtest.Isolated(t))
}

// testStore runs the suite on an etcd whose first endpoint answers.
func testStore(t *testing.T, endpoints []string) {
	clustertest.TestStore(t, func(t *testing.T) clustertest.StoreHarness {
		p := newClusterPlace(t, endpoints[:1])
		p.cfg.Endpoints = endpoints
		return clustertest.StoreHarness{
			Store: func() cluster.Store { return p.store(nil) }, Directives: func() handoff.DirectiveStore { return p.store(nil) }, Partitions: n,
		}
	})
}
