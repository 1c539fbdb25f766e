package process

import (
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/internal/etcd/etcdtest"
)

// What does not belong to a cluster is refused, with a code and a remedy, or left alone. The
// cluster goes on: nothing moves, nothing is missing.
func TestClusterRefusesWhatIsNotItsOwn(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "etcd", 2, "STREAMER_CLUSTER_REBALANCE=1h") // so that whatever moves has been moved by a stranger
	f.begin()
	stop := f.write(200)
	before := f.view()
	client := etcdtest.Client(t, []string{f.etcd})
	defer func() { _ = client.Close() }()
	root := f.lab.store.(*etcdStore).root
	put := func(key, value string, options ...clientv3.OpOption) {
		t.Helper()
		if _, err := client.Put(t.Context(), root+key, value, options...); err != nil {
			t.Fatal(err)
		}
	}
	lease, err := client.Grant(t.Context(), 600)
	if err != nil {
		t.Fatal(err)
	}
	known := len(f.ships)

	// Keys of strangers, and of who is no member.
	put("owner/strange", "x")
	put("owner/99999", `{"node":"x"}`)
	put("member/", "x")
	put("planet", "x")
	put("member/no%lease", "garbage")
	put("member/unleased", "{}")
	put("member/garbage", "\x00\xff", clientv3.WithLease(lease.ID))
	put("member/clock", `{"node":"clock","process":"c","started_at":"yesterday","status":"healthy","partition_count":16}`, clientv3.WithLease(lease.ID))
	hour := time.Now().Add(time.Hour).Format(time.RFC3339)
	put("member/ahead", `{"node":"ahead","process":"a","started_at":"`+hour+`","status":"degraded","partition_count":16}`, clientv3.WithLease(lease.ID))
	put("member/future", `{"node":"future","process":"f","version":"v99","status":"resting","kind":"gateway","moods":{"good":true}}`, clientv3.WithLease(lease.ID))

	// Garbage in a member's own key lasts until its next heartbeat.
	put("member/node-1", "garbage", clientv3.WithIgnoreLease())
	until(t, "the next heartbeat mends it", func() bool {
		return slices.ContainsFunc(f.view().Members, func(s cluster.Member) bool { return s.Node == "node-1" && s.Garbled == nil })
	})

	// Nodes that do not fit.
	other := func(name string, settings ...string) *ship {
		s := f.add(name, settings...)
		s.process = s.lab.node()
		return s
	}
	twin := other("node-1")
	other("counts", "STREAMER_CLUSTER_PARTITIONS=32").refused(fault.CheckpointPartitions, "16", "32")
	unheard := f.add("unheard", "STREAMER_ETCD_DIAL_TIMEOUT=1s")
	heal := unheard.link.Cut()
	unheard.process = unheard.lab.node()
	unheard.refused(fault.EtcdUnreachable)
	heal()
	twin.refused(fault.NodeRunning, "node-1")
	if lived := time.Since(twin.begun); lived < fleetTTL {
		t.Errorf("the second node-1 has waited for %v only", lived)
	}

	// Another cluster on the same etcd and the same MongoDB.
	strange := other("node-1", "STREAMER_CLUSTER_ID=another", "STREAMER_RELIABILITY_CHECKPOINT_DATABASE=another_marks")
	t.Cleanup(func() { f.lab.drop("another_marks") })
	until(t, "the other cluster's node has all its partitions", func() bool { return ask(t, strange.url()+"/readyz").status == http.StatusOK })
	until(t, "its heartbeat says that it is well", func() bool {
		m := decode[membership](t, ask(t, strange.url()+"/health").body).Membership
		return m != nil && m.Owned == partitions && m.Members["healthy"] == 1
	})
	strange.signal(syscall.SIGTERM)
	strange.wait()

	view := f.view()
	if some := moved(before, view); len(some) > 0 {
		t.Errorf("partitions %v moved: %s", some, view.Plan.Cause)
	}
	f.settled(nil, patience)
	for _, s := range f.ships[:known] {
		if !comes(func() bool { return ask(t, s.url()+"/readyz").status == http.StatusOK }) {
			t.Errorf("%s is not ready", s.name)
		}
		if s.noted("detached") {
			t.Errorf("%s was detached", s.name)
		}
	}
	leader := f.ship(view.Leader)
	for _, name := range []string{"garbage", "clock", "unleased"} {
		if !leader.noted(name+" is given nothing") || !leader.noted("code="+string(fault.ClusterHeartbeat)) {
			t.Errorf("the leader does not tell of %s", name)
		}
	}
	if human := f.lab.result("status", "--plan"); strings.Count(human, "unreadable") < 3 {
		t.Errorf("status --plan:\n%s", human)
	}
	stop()
	f.ships = f.ships[:known]
	f.judge()
}
