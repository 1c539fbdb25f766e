package process

import (
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/mongostream/streamer/fault"
)

// end stops all nodes of a fleet.
func (f *fleet) end() {
	f.t.Helper()
	for _, s := range f.ships {
		s.signal(syscall.SIGTERM)
	}
	for _, s := range f.ships {
		if code := s.wait(); code != 0 {
			f.t.Errorf("%s: exit code %d", s.name, code)
		}
	}
}

// A cluster changes from one backend to the other and back. Who only sets the key is refused, node
// or command; who carries the marks there goes on with nothing missing, and then the old
// configuration is refused.
func TestBackendIsChangedByCarryingTheMarks(t *testing.T) {
	t.Parallel()
	for _, nodes := range []int{1, 2} {
		t.Run(map[int]string{1: "alone", 2: "several"}[nodes], func(t *testing.T) {
			t.Parallel()
			base, _ := newDevLab(t, "mongo")
			f := fleetOn(t, base, nodes, "STREAMER_RELIABILITY_CHECKPOINT_BACKEND=etcd")
			use := func(backend string) {
				f.lab = f.lab.with("STREAMER_RELIABILITY_CHECKPOINT_BACKEND=" + backend)
				for _, s := range f.ships {
					s.lab = s.lab.with("STREAMER_RELIABILITY_CHECKPOINT_BACKEND=" + backend)
				}
			}
			begin := func() {
				for _, s := range f.ships {
					s.process = s.lab.printer(func(line string) {
						if !strings.Contains(line, `"notice":"rewound"`) { // which an import tells
							f.take(s.name, line)
						}
					})
				}
				for _, s := range f.ships {
					s.await(nodeRuns)
				}
			}
			begin()
			stop := f.write(100)
			operator := func() *lab { return f.lab.with("STREAMER_CLUSTER_EXPECTED_NODES=1") } // who does not know of several
			for _, move := range [][2]string{{"etcd", "mongo"}, {"mongo", "etcd"}} {
				was, is := move[0], move[1]
				seen, _ := f.printed.Delivered()
				until(t, "something is printed, and saved", func() bool {
					n, _ := f.printed.Delivered()
					return n > seen+100 && len(f.lab.show()) == partitions
				})
				use(is)
				archive := filepath.Join(t.TempDir(), is)
				f.lab.with("STREAMER_RELIABILITY_CHECKPOINT_BACKEND="+was).result("subscribers", "export", archive)
				operator().operate("subscribers", "import", archive, "--yes").refused(fault.NodeRunning)
				f.end()
				f.ships[0].lab.node().refused(fault.ClusterBackend, was)
				f.lab.operate("subscribers", "list").refused(fault.ClusterBackend, was)
				f.lab.operate("check").refused(fault.ClusterBackend, was)
				operator().operate("cluster", "repartition", "--to", "24", "--yes").refused(fault.ClusterBackend, was)

				last := filepath.Join(t.TempDir(), "last")
				f.lab.with("STREAMER_RELIABILITY_CHECKPOINT_BACKEND="+was).result("subscribers", "export", last)
				operator().result("subscribers", "import", last, "--yes")
				begin()
				f.ships[0].lab.with("STREAMER_RELIABILITY_CHECKPOINT_BACKEND="+was, "STREAMER_NODE_ID=old",
					"STREAMER_HTTP_LISTEN=127.0.0.1:0", "STREAMER_GRPC_LISTEN=127.0.0.1:0").node().refused(fault.ClusterBackend, is)
			}
			stop()
			f.judge()
		})
	}
}

// Marks in MongoDB are of one cluster: nodes that would share them below another prefix of etcd are
// refused, and those that do notice nothing.
func TestMarksAreSharedThroughOneEtcd(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "mongo", 2, "STREAMER_CLUSTER_REBALANCE=1h", unhurried)
	f.begin()
	stop := f.write(100)
	before := f.view()
	for _, n := range []string{"2", "1"} { // who is alone, or would share them elsewhere
		other := f.add("other", "STREAMER_ETCD_PREFIX=/other", "STREAMER_CLUSTER_EXPECTED_NODES="+n)
		f.ships = f.ships[:2]
		other.process = other.lab.node("--take-over")
		other.refused(fault.ClusterOrigin, "/other/")
	}
	seen, _ := f.printed.Delivered()
	until(t, "it goes on", func() bool { n, _ := f.printed.Delivered(); return n > seen+100 })
	if some := moved(before, f.view()); len(some) > 0 {
		t.Errorf("partitions %v moved", some)
	}
	stop()
	f.judge()
}

// An operator whose configuration says nothing of several nodes finds out from the store that there
// are some.
func TestOperatorsFindOutHowTheClusterRuns(t *testing.T) {
	t.Parallel()
	for _, backend := range backends() {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t, backend, 2)
			f.begin()
			stop := f.write(100)
			operator := f.lab.with("STREAMER_CLUSTER_EXPECTED_NODES=1")
			until(t, "every partition has a mark", func() bool { return len(f.lab.stored()) == partitions })

			origin := f.lab.store.origin()
			operator.operate("cluster", "repartition", "--to", "24", "--yes").refused(fault.NodeRunning)
			archive := filepath.Join(t.TempDir(), "marks")
			operator.result("subscribers", "export", archive)
			operator.operate("subscribers", "import", archive, "--yes").refused(fault.NodeRunning)
			if f.lab.store.origin() != origin || f.view().Plan.Version == 0 {
				t.Error("what was refused has changed something")
			}
			p, _, to := f.elsewhere()
			operator.result("handoff", "0", "--to", to, "--yes")
			if owner := f.view().Owners[p].Node; owner != to {
				t.Errorf("partition 0 is at %q", owner)
			}
			if text := operator.result("status", "--handoffs"); !strings.Contains(text, to) {
				t.Errorf("%s", text)
			}

			operator.result("cluster", "adopt", "--yes")
			for _, s := range f.ships {
				s.await("attached to the cluster again")
			}
			for p, epoch := range f.settled(nil, patience) {
				if epoch.Incarnation != 2 {
					t.Errorf("partition %d has epoch %s", p, epoch)
				}
			}
			seen, _ := f.printed.Delivered()
			until(t, "it goes on, and is saved", func() bool {
				n, _ := f.printed.Delivered()
				marks := f.lab.show()
				return n > seen+100 && len(marks) == partitions && !slices.ContainsFunc(marks, func(m shown) bool { return !strings.HasPrefix(m.Epoch, "2.") })
			})
			stop()
			f.judge()
		})
	}
}

// A node that is to be alone takes over from nodes that run and share marks in MongoDB: they lose
// what they have, wait, and share it again when it has gone. Nobody is fenced again and again.
func TestTakeOverEndsNodesThatShare(t *testing.T) {
	t.Parallel()
	for _, backend := range backends() {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t, backend, 2)
			f.begin()
			stop := f.write(100)
			until(t, "it prints", func() bool { n, _ := f.printed.Delivered(); return n > 100 })
			alone := f.add("alone", "STREAMER_CLUSTER_EXPECTED_NODES=1")
			f.ships = f.ships[:2]
			alone.process = alone.lab.printer(func(line string) { f.take(alone.name, line) }, "--take-over")
			alone.await(nodeRuns)
			for _, s := range f.ships {
				s.await("detached from the cluster: terms ended")
				s.await("the store answers again, but the node cannot come back yet")
			}
			until(t, "all marks are of the node that took over", func() bool {
				marks := f.lab.show()
				return len(marks) == partitions && !slices.ContainsFunc(marks, func(m shown) bool { return m.By != "alone" })
			})
			epochs := map[string]bool{}
			for _, m := range f.lab.show() {
				epochs[m.Epoch] = true
			}
			seen, _ := f.printed.Delivered()
			until(t, "it goes on for a while", func() bool { n, _ := f.printed.Delivered(); return n > seen+500 })
			for _, m := range f.lab.show() {
				if m.By != "alone" || !epochs[m.Epoch] {
					t.Errorf("partition %d was marked by %s under epoch %s", *m.Partition, m.By, m.Epoch)
				}
			}
			alone.signal(syscall.SIGTERM)
			if code := alone.wait(); code != 0 {
				t.Errorf("exit code %d", code)
			}
			for _, s := range f.ships {
				s.await("attached to the cluster again")
			}
			f.settled(nil, patience)
			stop()
			f.judge()
		})
	}
}
