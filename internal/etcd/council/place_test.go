package council

import (
	"fmt"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint/checkpointtest"
	"github.com/mongostream/streamer/checkpoint/record"
	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/cluster/clustertest"
	"github.com/mongostream/streamer/internal/devetcd"
	"github.com/mongostream/streamer/internal/devetcd/devetcdtest"
	"github.com/mongostream/streamer/internal/etcd"
	"github.com/mongostream/streamer/internal/etcd/etcdtest"
)

const n = checkpointtest.Partitions

// lost is how a call ends whose connection breaks before the answer.
var lost = status.Error(codes.Unavailable, "error reading from server: EOF") //nolint:gochecknoglobals // a constant

func TestMain(m *testing.M) {
	if devetcdtest.RunMember() {
		return
	}
	// Taking a toxic away may leave goroutines of toxiproxy's own behind.
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("github.com/Shopify/toxiproxy/v2/toxics.(*ToxicStub).Run"),
		goleak.IgnoreAnyFunction("github.com/Shopify/toxiproxy/v2.(*ToxicLink).read"))
}

// A place is where the keys of one test stand.
type place struct {
	*testing.T

	cfg etcd.Config
	raw *clientv3.Client
}

func newPlace(t *testing.T, endpoints []string) place {
	t.Helper()
	raw := devetcdtest.Client(t, endpoints)
	t.Cleanup(func() { _ = raw.Close() })
	p := place{t, etcd.Config{Endpoints: endpoints, Prefix: devetcdtest.Prefix(t, endpoints), Cluster: "c1"}, raw}
	p.found(1)
	return p
}

// own is a place in an etcd of its own.
func own(t *testing.T) place {
	t.Helper()
	return newPlace(t, devetcdtest.Start(t, devetcd.Config{Dir: t.TempDir()}))
}

// link makes a link to the place.
func (p place) link() *etcdtest.Link {
	p.Helper()
	l, _ := etcdtest.NewLink(p.T, strings.TrimPrefix(p.cfg.Endpoints[0], "http://"))
	return l
}

// dial connects a client that lives as long as the test, through a link if there is one.
func (p place) dial(l *etcdtest.Link) *etcd.Client {
	p.Helper()
	cfg := p.cfg
	var client *etcd.Client
	var err error
	if l == nil {
		client, err = etcd.Dial(p.Context(), cfg)
	} else {
		cfg.Endpoints = []string{l.Proxy.Listen}
		client, err = etcd.DialWith(p.Context(), cfg, l.Options()...)
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
func (p place) store(l *etcdtest.Link) *Store {
	p.Helper()
	return New(p.dial(l), Config{Partitions: n, ElectionTTL: 2 * time.Second})
}

func (p place) key(format string, args ...any) string {
	return p.cfg.Prefix + "/" + p.cfg.Cluster + "/" + fmt.Sprintf(format, args...)
}

func (p place) put(key, value string, options ...clientv3.OpOption) {
	p.Helper()
	if _, err := p.raw.Put(p.Context(), key, value, options...); err != nil {
		p.Fatal(err)
	}
}

func (p place) delete(key string) {
	p.Helper()
	if _, err := p.raw.Delete(p.Context(), key); err != nil {
		p.Fatal(err)
	}
}

// found makes the origin of an incarnation.
func (p place) found(incarnation uint64) {
	p.Helper()
	origin := checkpointtest.Origin("c1")
	origin.Incarnation = incarnation
	value, err := record.EncodeOrigin(origin)
	if err != nil {
		p.Fatal(err)
	}
	p.put(p.key("origin"), string(value))
}

func (p place) join(s *Store, process string) *membership {
	p.Helper()
	m, err := s.Join(p.Context(), cluster.Heartbeat{Node: "node-" + process, Process: process}, time.Minute)
	if err != nil {
		p.Fatal(err)
	}
	return m.(*membership)
}

func (p place) claim(m cluster.Membership, partitions ...change.Partition) []cluster.Owner {
	p.Helper()
	owners, err := m.Claim(p.Context(), partitions)
	if err != nil {
		p.Fatal(err)
	}
	return owners
}

func (p place) view(s *Store) cluster.View {
	p.Helper()
	view, err := s.View(p.Context())
	if err != nil {
		p.Fatal(err)
	}
	return view
}

func (p place) leases() int {
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

func TestStoreIsAStoreOfTheRoster(t *testing.T) { testStore(t, devetcdtest.Endpoints(t)) }

func TestStoreIsAStoreOfTheRosterBesideAnIsolatedMember(t *testing.T) {
	testStore(t, devetcdtest.Isolated(t))
}

// testStore runs the suite on an etcd whose first endpoint answers.
func testStore(t *testing.T, endpoints []string) {
	clustertest.TestStore(t, func(t *testing.T) clustertest.StoreHarness {
		p := newPlace(t, endpoints[:1])
		p.cfg.Endpoints = endpoints
		return clustertest.StoreHarness{
			Store: func() cluster.Store { return p.store(nil) }, Directives: func() cluster.DirectiveStore { return p.store(nil) }, Partitions: n,
		}
	})
}
