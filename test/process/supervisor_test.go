package process

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/health"
	"github.com/mongostream/streamer/internal/admin"
	"github.com/mongostream/streamer/internal/etcd"
	"github.com/mongostream/streamer/supervisor"
)

// supervision returns what the supervisor of a lab's nodes keeps in etcd.
func supervision(t *testing.T, l *lab) *etcd.SupervisionStore {
	t.Helper()
	m := l.store.(*etcdStore)
	client, err := etcd.Dial(t.Context(), etcd.Config{Endpoints: m.endpoints, Prefix: m.prefix, Cluster: l.cluster, DialTimeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	})
	return etcd.NewSupervisionStore(client, etcd.SupervisionConfig{})
}

// The leader stands still: its reports stop, another node pages, and whoever leads next looks after
// the components.
func TestReportsThatStopArePagedByAnotherNode(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "etcd", 3, "STREAMER_SUPERVISOR_HEARTBEAT_INTERVAL=500ms")
	f.begin()
	store := supervision(t, f.lab)
	sweeps := func() uint64 {
		standing, err := store.Look(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return standing.Sweep
	}
	until(t, "all nodes are looked after", func() bool {
		reports, err := store.Reports(t.Context(), 1)
		return err == nil && len(reports) == 1 && reports[0].Sweep > 3 && reports[0].Total >= 3*8
	})
	leader := f.view().Leader
	var frozen *ship
	for _, s := range f.ships {
		if s.name == leader {
			frozen = s
		}
	}
	frozen.signal(syscall.SIGSTOP)
	until(t, "another node pages", func() bool {
		for _, s := range f.ships {
			if s != frozen && s.noted("kind=sweep_missing") {
				return true
			}
		}
		return false
	})
	before := sweeps()
	until(t, "another node looks after the components", func() bool { return sweeps() > before+2 })
	thawed := time.Now()
	frozen.signal(syscall.SIGCONT)
	frozen.reattached(thawed)
	before = sweeps()
	until(t, "the sweeps go on", func() bool { return sweeps() > before+2 })
	for _, s := range f.ships {
		s.signal(syscall.SIGTERM)
	}
	for _, s := range f.ships {
		s.wait()
	}
}

// beginPaused starts all nodes with their restarts paused, for a slow machine is no reason for any,
// and waits until all are looked after and well.
func (f *fleet) beginPaused() *etcd.SupervisionStore {
	f.t.Helper()
	store := supervision(f.t, f.lab)
	for _, s := range f.ships {
		if err := store.Pause(f.t.Context(), supervisor.Pause{Slug: s.name, By: "test"}, time.Hour); err != nil {
			f.t.Fatal(err)
		}
	}
	f.begin()
	until(f.t, "all nodes are looked after", func() bool {
		reports, err := store.Reports(f.t.Context(), 1)
		return err == nil && len(reports) == 1 && reports[0].Total >= 8*len(f.ships) && reports[0].Healthy == reports[0].Total
	})
	return store
}

// happened counts how often the reports say something of a node's components.
func happened(t *testing.T, store supervisor.Reader, node string, code fault.Code) (n int) {
	t.Helper()
	reports, err := store.Reports(t.Context(), 1000)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range reports {
		for _, e := range r.Events {
			if e.Code == code && strings.HasPrefix(e.Slug, node+"/") {
				n++
			}
		}
	}
	return n
}

// A node is killed: each sweep counts its components as missed, they are paged, and told to be well
// once it is started again.
func TestKilledNodeIsPagedUntilItIsBack(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "etcd", 3, "STREAMER_SUPERVISOR_HEARTBEAT_INTERVAL=2s")
	store := f.beginPaused()
	killed, _ := f.owning(false)
	killed.kill()
	until(t, "it is paged", func() bool { return happened(t, store, killed.name, fault.SupervisorDown) >= 8 })
	reports, err := store.Reports(t.Context(), 1)
	if err != nil || len(reports) == 0 {
		t.Fatalf("%v, %d reports", err, len(reports))
	}
	missed := 0
	for _, finding := range reports[0].Findings {
		if strings.HasPrefix(finding.Slug, killed.name+"/") && finding.Misses >= 3 && finding.LastSeen > 0 {
			missed++
		}
	}
	if missed < 8 {
		t.Errorf("%+v", reports[0])
	}
	killed.launch()
	until(t, "it is well again", func() bool { return happened(t, store, killed.name, fault.SupervisorRecovered) >= 8 })
	for _, s := range f.ships {
		if n := happened(t, store, s.name, fault.SupervisorRestarted); n > 0 {
			t.Errorf("%s was restarted %d times", s.name, n)
		}
		s.signal(syscall.SIGTERM)
	}
	for _, s := range f.ships {
		s.wait()
	}
}

// A node stands still, and its lease lives on: its components are missed, paged, and its process is
// ordered to restart, within the budget. When it wakes it drains and ends with an error; whoever
// starts it again makes it well.
func TestFrozenNodeIsOrderedToRestart(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "etcd", 3, "STREAMER_SUPERVISOR_HEARTBEAT_INTERVAL=2s", "STREAMER_CLUSTER_LEASE_TTL=1m")
	store := f.beginPaused()
	frozen, _ := f.owning(false)
	frozen.signal(syscall.SIGSTOP)
	if err := store.Unpause(t.Context(), frozen.name); err != nil {
		t.Fatal(err)
	}
	until(t, "its process is ordered to restart", func() bool { return happened(t, store, frozen.name, fault.SupervisorRestarted) > 0 })
	until(t, "it is paged", func() bool { return happened(t, store, frozen.name, fault.SupervisorDown) > 0 })
	if standing, err := store.Look(t.Context()); err != nil || standing.Used[frozen.name+"/process"] < 1 || standing.Used[frozen.name+"/process"] > 3 {
		t.Errorf("%v, %+v", err, standing)
	}
	frozen.signal(syscall.SIGCONT)
	frozen.refused(fault.NodeRestart, frozen.name+"/")
	frozen.launch()
	until(t, "its components are well again", func() bool { return happened(t, store, frozen.name, fault.SupervisorRecovered) > 0 })
	for _, s := range f.ships {
		if n := happened(t, store, s.name, fault.SupervisorRestarted); s != frozen && n > 0 {
			t.Errorf("%s was restarted %d times", s.name, n)
		}
		s.signal(syscall.SIGTERM)
	}
	for _, s := range f.ships {
		s.wait()
	}
}

// An order names the process that it is for. That one drains and ends with an error, so that
// whoever has started it starts it again.
func TestOrderedRestartDrainsAndEndsWithAnError(t *testing.T) {
	t.Parallel()
	l := newLab(t, "etcd")
	node := l.node()
	address := node.address()
	process := decode[health.Vital](t, ask(t, address+"/internal/health/hub").body).Process
	l.insert(0, 10)
	until(t, "everything is printed", func() bool { return len(node.output.all()) == 10 })
	store := supervision(t, l)
	order := func(process string) {
		t.Helper()
		until(t, "the order is given", func() bool {
			sweep, err := store.Begin(t.Context(), "test", "test")
			if err != nil {
				return false
			}
			return store.Commit(t.Context(), supervisor.Commit{
				Report: supervisor.Report{Process: "test", By: "test", Sweep: sweep + 1},
				Orders: []supervisor.Order{{
					Node: "node", Process: process, Slug: "node/tail", What: "tail", Level: supervisor.Node, Cause: supervisor.Stalled, By: "test", Sweep: sweep + 1,
				}},
			}) == nil
		})
	}
	order("another one")
	node.await("restart ignored")
	order(process)
	node.refused(fault.NodeRestart, "node/tail", "test")
	if marks := l.stored(); len(marks) == 0 {
		t.Error("no checkpoint was saved")
	}
	l.node().address() // it can be started again at once
}

// systemd hears that the node serves, that it is alive as long as it makes progress, and that it
// stops.
func TestSystemdHearsHowTheNodeDoes(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "n") //nolint:usetesting // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, "s"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = socket.Close() }()
	await := func(want string) {
		t.Helper()
		if err := socket.SetReadDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		buffer := make([]byte, 256)
		for {
			n, err := socket.Read(buffer)
			if err != nil {
				t.Fatalf("no %s: %v", want, err)
			}
			if strings.Contains(string(buffer[:n]), want) {
				return
			}
		}
	}
	l := newLab(t, "etcd").with("NOTIFY_SOCKET="+filepath.Join(dir, "s"), "WATCHDOG_USEC=600000")
	node := l.node()
	await("READY=1")
	await("WATCHDOG=1")
	node.signal(syscall.SIGSTOP) // which hangs it
	node.signal(syscall.SIGCONT)
	await("WATCHDOG=1")
	node.signal(syscall.SIGTERM)
	await("STOPPING=1")
	if exit := node.wait(); exit != 0 {
		t.Errorf("exit code %d", exit)
	}
}

// Operators see the reports, over HTTP and on the command line, and keep components from being
// restarted for a while.
func TestOperatorsSeeReportsAndPauseRestarts(t *testing.T) {
	t.Parallel()
	l := newLab(t, "etcd").with("STREAMER_SUPERVISOR_HEARTBEAT_INTERVAL=500ms")
	address := l.node().address()
	until(t, "there is a report", func() bool { return len(decode[admin.Reports](t, ask(t, address+"/v1/reports").body).Reports) > 0 })
	if got := ask(t, address+"/v1/reports?limit=0"); got.status != 400 {
		t.Errorf("%+v", got)
	}
	l.result("supervisor", "pause-restart", "--slug", "node/hub", "--for", "1h", "--yes")
	until(t, "the report says what is paused", func() bool {
		reports := decode[admin.Reports](t, ask(t, address+"/v1/reports?limit=1").body).Reports
		return len(reports) == 1 && len(reports[0].Paused) == 1 && reports[0].Paused[0].Slug == "node/hub"
	})
	if text := l.result("supervisor", "status"); !strings.Contains(text, "node/hub are paused until") || !strings.Contains(text, "components make progress") {
		t.Errorf("%q", text)
	}
	l.result("supervisor", "pause-restart", "--slug", "node/hub", "--undo", "--yes")
	l.operate("supervisor", "set", "--page-on-failure=false", "--yes").refused(fault.ParameterLocked, "page_on_failure")
	l.operate("supervisor", "set", "--heartbeat-interval", "400s", "--yes").refused(fault.ParameterLocked, "heartbeat_interval")
	l.result("supervisor", "set", "--missed-heartbeats-to-alert", "5", "--yes")
	until(t, "the change is in force", func() bool {
		reports := decode[admin.Reports](t, ask(t, address+"/v1/reports?limit=1").body).Reports
		return len(reports) == 1 && reports[0].Settings["missed_heartbeats_to_alert"] == 5.0 && len(reports[0].Paused) == 0
	})
	if text := l.result("supervisor", "reports", "--last", "5"); !strings.Contains(text, "HEALTHY") {
		t.Errorf("%q", text)
	}
}
