package etcd

import (
	"fmt"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/checkpoint/checkpointtest"
	"github.com/mongostream/streamer/internal/etcd/etcdtest"
)

// A registryPlace is where the keys of one test stand.
type registryPlace struct {
	*testing.T

	cfg Config
	raw *clientv3.Client
}

func newRegistryPlace(t *testing.T, endpoints []string) registryPlace {
	t.Helper()
	raw := etcdtest.Client(t, endpoints)
	t.Cleanup(func() { _ = raw.Close() })
	return registryPlace{t, Config{Endpoints: endpoints, Prefix: etcdtest.Prefix(t, endpoints), Cluster: "c1"}, raw}
}

// link makes a link to the place.
func (p registryPlace) link() *etcdtest.Link {
	p.Helper()
	l, _ := etcdtest.NewLink(p.T, strings.TrimPrefix(p.cfg.Endpoints[0], "http://"))
	return l
}

// dial connects a client that lives as long as the test, through a link if there is one.
func (p registryPlace) dial(l *etcdtest.Link) *Client {
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

func (p registryPlace) key(format string, args ...any) string {
	return p.cfg.Prefix + "/" + p.cfg.Cluster + "/" + fmt.Sprintf(format, args...)
}

func (p registryPlace) put(key string, value []byte) {
	p.Helper()
	if _, err := p.raw.Put(p.Context(), key, string(value)); err != nil {
		p.Fatal(err)
	}
}

func (p registryPlace) get(key string) []byte {
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
func (p registryPlace) found(incarnation uint64) {
	p.Helper()
	origin := checkpointtest.Origin("c1")
	origin.Incarnation = incarnation
	value, err := checkpoint.EncodeOrigin(origin)
	if err != nil {
		p.Fatal(err)
	}
	p.put(p.key("origin"), value)
}
