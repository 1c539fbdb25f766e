package etcd

import (
	"fmt"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/checkpoint/checkpointtest"
	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/cluster/clustertest"
	"github.com/mongostream/streamer/internal/devetcd"
	"github.com/mongostream/streamer/internal/etcd/etcdtest"
)

const n = checkpointtest.Partitions

// lost is how a call ends whose connection breaks before the answer.
// A place is where the keys of one test stand.
type clusterPlace struct {
	*testing.T

	cfg Config
	raw *clientv3.Client
}

func newClusterPlace(t *testing.T, endpoints []string) clusterPlace {
	t.Helper()
	raw := etcdtest.Client(t, endpoints)
	t.Cleanup(func() { _ = raw.Close() })
	p := clusterPlace{t, Config{Endpoints: endpoints, Prefix: etcdtest.Prefix(t, endpoints), Cluster: "c1"}, raw}
	p.found(1)
	return p
}

// own is a place in an etcd of its own.
func own(t *testing.T) clusterPlace {
	t.Helper()
	return newClusterPlace(t, etcdtest.Start(t, devetcd.Config{Dir: t.TempDir()}))
}

// link makes a link to the place.
func (p clusterPlace) link() *etcdtest.Link {
	p.Helper()
	l, _ := etcdtest.NewLink(p.T, strings.TrimPrefix(p.cfg.Endpoints[0], "http://"))
	return l
}

// dial connects a client that lives as long as the test, through a link if there is one.
func (p clusterPlace) dial(l *etcdtest.Link) *Client {
	p.Helper()
	cfg := p.cfg
	var client *Client
	var err error
	if l == nil {
		client, err = Dial(p.Context(), cfg)
	} else {
		cfg.Endpoints = []string{l.Proxy.Listen}
		client, err = dialWith(p.Context(), cfg, l.Options()...)
	}
	if err != nil {
		p.Fatal(err)
	}
	p.Cleanup(func() {
		if err := client.Close(); err != nil {
			p.Error(err)
		}
	})
	return client
}

// store is the store as a process reaches it.
func (p clusterPlace) store(l *etcdtest.Link) *ClusterStore {
	p.Helper()
	return NewClusterStore(p.dial(l), ClusterConfig{Partitions: n, ElectionTTL: 2 * time.Second})
}

func (p clusterPlace) key(format string, args ...any) string {
	return p.cfg.Prefix + "/" + p.cfg.Cluster + "/" + fmt.Sprintf(format, args...)
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

// found makes the origin of an incarnation.
func (p clusterPlace) found(incarnation uint64) {
	p.Helper()
	origin := checkpointtest.Origin("c1")
	origin.Incarnation = incarnation
	value, err := checkpoint.EncodeOrigin(origin)
	if err != nil {
		p.Fatal(err)
	}
	p.put(p.key("origin"), string(value))
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

func TestStoreIsAStoreOfTheRoster(t *testing.T) { testStore(t, etcdtest.Endpoints(t)) }

func TestStoreIsAStoreOfTheRosterBesideAnIsolatedMember(t *testing.T) {
	testStore(t, etcdtest.Isolated(t))
}

// testStore runs the suite on an etcd whose first endpoint answers.
func testStore(t *testing.T, endpoints []string) {
	clustertest.TestStore(t, func(t *testing.T) clustertest.StoreHarness {
		p := newClusterPlace(t, endpoints[:1])
		p.cfg.Endpoints = endpoints
		return clustertest.StoreHarness{
			Store: func() cluster.Store { return p.store(nil) }, Directives: func() cluster.DirectiveStore { return p.store(nil) }, Partitions: n,
		}
	})
}
