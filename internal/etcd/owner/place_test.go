package owner

import (
	"fmt"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"

	"github.com/mongostream/streamer/checkpoint/checkpointtest"
	"github.com/mongostream/streamer/checkpoint/record"
	"github.com/mongostream/streamer/internal/devetcd/devetcdtest"
	"github.com/mongostream/streamer/internal/etcd"
	"github.com/mongostream/streamer/internal/etcd/etcdtest"
)

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
	return place{t, etcd.Config{Endpoints: endpoints, Prefix: devetcdtest.Prefix(t, endpoints), Cluster: "c1"}, raw}
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

func (p place) key(format string, args ...any) string {
	return p.cfg.Prefix + "/" + p.cfg.Cluster + "/" + fmt.Sprintf(format, args...)
}

func (p place) put(key string, value []byte) {
	p.Helper()
	if _, err := p.raw.Put(p.Context(), key, string(value)); err != nil {
		p.Fatal(err)
	}
}

func (p place) get(key string) []byte {
	p.Helper()
	resp, err := p.raw.Get(p.Context(), key)
	if err != nil {
		p.Fatal(err)
	}
	if len(resp.Kvs) == 0 {
		return nil
	}
	return resp.Kvs[0].Value
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
	p.put(p.key("origin"), value)
}
