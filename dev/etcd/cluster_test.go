package devetcd_test

import (
	"context"
	"testing"
	"time"

	"github.com/mongostream/streamer/internal/etcd/etcdtest"
)

// Each fault of one member leaves the others at work, and that one without an answer; it answers
// again when the fault is over.
func TestClusterOutlivesFaultsOfOneMember(t *testing.T) {
	cluster := etcdtest.StartCluster(t, 3)
	for _, f := range etcdtest.Faults() {
		t.Run(f.Name, func(t *testing.T) {
			victim := f.Victim(cluster)
			heal := f.Inject(victim)
			var others []string
			for _, m := range cluster.Members() {
				if m != victim {
					others = append(others, m.Endpoint())
				}
			}
			write(t, others, f.Name)
			if got := get(t, others, "k"); got != f.Name {
				t.Errorf("the others say %q", got)
			}
			client := etcdtest.Client(t, []string{victim.Endpoint()})
			defer func() { _ = client.Close() }()
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			if _, err := client.Get(ctx, "k"); err == nil && !f.Answers {
				t.Error("the member answers")
			}
			cancel()
			heal()
			victim.Ready()
			if got := get(t, []string{victim.Endpoint()}, "k"); got != f.Name {
				t.Errorf("the member says %q", got)
			}
		})
	}
}

// write writes through members of which one may have lost its leader a moment ago.
func write(t *testing.T, endpoints []string, value string) {
	t.Helper()
	client := etcdtest.Client(t, endpoints)
	defer func() { _ = client.Close() }()
	var err error
	for range 30 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		_, err = client.Put(ctx, "k", value)
		cancel()
		if err == nil {
			return
		}
	}
	t.Fatal(err)
}
