package etcd_test

import (
	"context"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/mongostream/streamer/internal/etcd"
	"github.com/mongostream/streamer/internal/etcd/etcdtest"
	"github.com/mongostream/streamer/supervisor"
	"github.com/mongostream/streamer/supervisor/supervisortest"
)

func newSupervision(t *testing.T, cfg etcd.SupervisionConfig) func() *etcd.SupervisionStore {
	t.Helper()
	endpoints := etcdtest.Endpoints(t)
	prefix := etcdtest.Prefix(t, endpoints)
	return func() *etcd.SupervisionStore {
		client, err := etcd.Dial(t.Context(), etcd.Config{Endpoints: endpoints, Prefix: prefix, Cluster: "c", DialTimeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := client.Close(); err != nil {
				t.Error(err)
			}
		})
		return etcd.NewSupervisionStore(client, cfg)
	}
}

func TestSupervisionInEtcdIsAStore(t *testing.T) {
	t.Parallel()
	store := newSupervision(t, etcd.SupervisionConfig{})
	supervisortest.Store(t, store(), store())
}

// A restart counts as long as its lease lives in etcd, whoever sweeps and whatever clocks say.
func TestRestartsAreForgottenWithTheirLeases(t *testing.T) {
	t.Parallel()
	store := newSupervision(t, etcd.SupervisionConfig{Window: time.Second})()
	if _, err := store.Begin(t.Context(), "n", "p"); err != nil {
		t.Fatal(err)
	}
	if err := store.Commit(t.Context(), supervisor.Commit{Report: supervisor.Report{Process: "p", Sweep: 1}, Charges: []string{"n/hub"}}); err != nil {
		t.Fatal(err)
	}
	for {
		standing, err := store.Look(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if standing.Used["n/hub"] == 0 {
			return
		}
	}
}

// A report is kept for its retention: as long as its lease, whatever becomes of the nodes.
func TestReportsAreKeptForTheirRetention(t *testing.T) {
	t.Parallel()
	endpoints := etcdtest.Endpoints(t)
	cfg := etcd.Config{Endpoints: endpoints, Prefix: etcdtest.Prefix(t, endpoints), Cluster: "c", DialTimeout: time.Minute}
	client, err := etcd.Dial(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	raw := etcdtest.Client(t, endpoints)
	defer func() { _, _ = client.Close(), raw.Close() }()
	store := etcd.NewSupervisionStore(client, etcd.SupervisionConfig{Retention: 100 * time.Hour})
	if _, err := store.Begin(t.Context(), "n", "p"); err != nil {
		t.Fatal(err)
	}
	if err := store.Commit(t.Context(), supervisor.Commit{Report: supervisor.Report{Process: "p", Sweep: 1}}); err != nil {
		t.Fatal(err)
	}
	resp, err := raw.Get(t.Context(), cfg.Prefix, clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	leased := 0
	for _, kv := range resp.Kvs {
		if kv.Lease == 0 {
			continue
		}
		leased++
		ttl, err := raw.TimeToLive(t.Context(), clientv3.LeaseID(kv.Lease))
		if granted := time.Duration(ttl.GrantedTTL) * time.Second; err != nil || granted < 100*time.Hour || granted > 110*time.Hour {
			t.Errorf("%s is kept for %v, %v", kv.Key, granted, err)
		}
	}
	if leased == 0 {
		t.Errorf("no report among %d keys", len(resp.Kvs))
	}
}

// What is no order keeps nobody from waiting for one: a node would ask etcd without a pause.
func TestOrdersAreWaitedForBesideWhatIsNone(t *testing.T) {
	t.Parallel()
	endpoints := etcdtest.Endpoints(t)
	prefix := etcdtest.Prefix(t, endpoints)
	client, err := etcd.Dial(t.Context(), etcd.Config{Endpoints: endpoints, Prefix: prefix, Cluster: "c", DialTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	store := etcd.NewSupervisionStore(client, etcd.SupervisionConfig{})
	raw := etcdtest.Client(t, endpoints)
	defer func() { _ = raw.Close() }()
	for key, value := range map[string]string{"n/x": "", "n/y": "\xff", "n/z": "null", "n/o": `{"node":"other"}`, "n/%ff": "[]"} {
		if _, err := raw.Put(t.Context(), prefix+"/c/supervisor/order/"+key, value); err != nil {
			t.Fatal(err)
		}
	}
	short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if orders, err := store.Next(short, "n"); err == nil {
		t.Errorf("%+v at once, instead of waiting", orders)
	}
	if _, err := store.Begin(t.Context(), "n", "p"); err != nil {
		t.Fatal(err)
	}
	order := supervisor.Order{Node: "n", Slug: "n/hub", What: "hub"}
	if err := store.Commit(t.Context(), supervisor.Commit{Report: supervisor.Report{Process: "p", Sweep: 1}, Orders: []supervisor.Order{order}}); err != nil {
		t.Fatal(err)
	}
	if orders, err := store.Next(t.Context(), "n"); err != nil || len(orders) != 1 || orders[0].Slug != order.Slug {
		t.Errorf("%+v, %v", orders, err)
	}
}
