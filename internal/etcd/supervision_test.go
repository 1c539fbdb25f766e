package etcd_test

import (
	"testing"
	"time"

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
