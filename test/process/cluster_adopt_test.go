package process

import (
	"strings"
	"syscall"
	"testing"

	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/internal/etcd/etcdtest"
)

// With marks in MongoDB etcd is lost, or is another cluster's: no node starts, because epochs would
// not be above those of the marks. Once an operator has adopted the marks, which raises the
// incarnation in both, the nodes go on where they were.
func TestClusterIsAdoptedAfterEtcdWasReplaced(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "mongo", 2)
	f.begin()
	stop := f.write(200)
	until(t, "it prints", func() bool { n, _ := f.printed.Delivered(); return n > 200 })
	for _, s := range f.ships {
		s.signal(syscall.SIGTERM)
	}
	for _, s := range f.ships {
		s.wait()
	}

	key := "/test/" + f.lab.cluster + "/origin"
	client := etcdtest.Client(t, []string{f.etcd})
	resp, err := client.Get(t.Context(), key)
	if err != nil || len(resp.Kvs) != 1 {
		t.Fatalf("%v: %+v", err, resp)
	}
	stands := string(resp.Kvs[0].Value)
	if _, err := client.Put(t.Context(), key, strings.Replace(stands, `"incarnation":1`, `"incarnation":7`, 1)); err != nil {
		t.Fatal(err)
	}
	if err := client.Close(); err != nil {
		t.Fatal(err)
	}
	f.ships[0].lab.node().refused(fault.ClusterOrigin, "incarnation 7", "incarnation 1")
	f.server.end()
	f.startEtcd(t.TempDir())
	before := f.lab.store.everything()
	f.ships[0].lab.node().refused(fault.ClusterOrigin, "this etcd has no origin")
	if after := f.lab.store.everything(); len(after) != len(before) || after[f.lab.cluster+".cluster/origin"] != before[f.lab.cluster+".cluster/origin"] {
		t.Error("a node that was refused has changed the marks")
	}

	if text := f.lab.result("cluster", "adopt", "--yes"); !strings.Contains(text, "incarnation 2") {
		t.Errorf("%s", text)
	}
	f.begin()
	for p, epoch := range epochs(f.view(), "") {
		if epoch.Incarnation != 2 {
			t.Errorf("partition %d has epoch %s", p, epoch)
		}
	}
	seen, _ := f.printed.Delivered()
	until(t, "it prints again", func() bool { n, _ := f.printed.Delivered(); return n > seen+200 })

	// Adopted while they run, they end: their claims are of an incarnation that is over.
	f.lab.result("cluster", "adopt", "--yes")
	for _, s := range f.ships {
		s.await("detached from the cluster: terms ended")
		s.await("attached to the cluster again")
	}
	for p, epoch := range f.settled(nil, patience) {
		if epoch.Incarnation != 3 {
			t.Errorf("partition %d has epoch %s", p, epoch)
		}
	}
	seen, _ = f.printed.Delivered()
	until(t, "it goes on", func() bool { n, _ := f.printed.Delivered(); return n > seen+200 })
	stop()
	f.judge()
}
