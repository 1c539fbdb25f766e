package process

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mongostream/streamer/dev/mongo/devmongotest"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/health"
)

// report is what /health answers, with the fields of the reliability design (section 7) and ours.
type report struct {
	Status     string
	Partitions []struct {
		ID        *int
		Status    string
		Lag       *float64 `json:"lag_seconds"`
		Rate      *float64
		LastEvent time.Time `json:"last_event_at"`
	}
	Uptime  float64 `json:"uptime_seconds"`
	Version string
	Node    string
	Cluster string

	Problems []health.Problem
}

// readiness is what /readyz answers.
type readiness struct {
	Ready    bool
	Problems []health.Problem
}

func TestHealthTellsHowTheNodeDoes(t *testing.T) {
	t.Parallel()
	l := newLab(t, "etcd")
	p := l.node()
	address := p.address()
	l.insert(0, 500)
	until(t, "all events have passed", func() bool { return metric(t, address, "streamer_partition_events_total") >= 500 })
	var r report
	until(t, "every partition is caught up", func() bool {
		got := ask(t, address+"/health")
		if got.status != http.StatusOK {
			return false
		}
		r = decode[report](t, got.body)
		for _, q := range r.Partitions {
			if q.Lag == nil || *q.Lag > 2 || q.Rate == nil || q.LastEvent.IsZero() {
				return false
			}
		}
		return r.Status == "healthy"
	})
	if len(r.Partitions) != partitions || r.Version != testVersion || r.Node != "node" || r.Cluster != l.cluster || r.Uptime <= 0 {
		t.Errorf("%+v", r)
	}
	for i, q := range r.Partitions {
		if q.ID == nil || *q.ID != i || q.Status != "healthy" || q.LastEvent.Before(p.begun) || q.LastEvent.After(time.Now()) {
			t.Errorf("partition %d: %+v", i, q)
		}
	}
	if r.Problems == nil || len(r.Problems) > 0 {
		t.Errorf("problems %+v", r.Problems)
	}
	for path, status := range map[string]int{"/livez": 200, "/readyz": 200, "/nowhere": 404} {
		if got := ask(t, address+path); got.status != status {
			t.Errorf("%s: %+v", path, got)
		}
	}
}

// The names of the reliability design (section 11), under streamer_.
func TestMetricsHaveTheNamesOfTheDesign(t *testing.T) {
	t.Parallel()
	l := newLab(t, "etcd").with("STREAMER_RELIABILITY_CHECKPOINT_INTERVAL=100ms")
	p := l.node()
	address := p.address()
	l.insert(0, 500)
	until(t, "every partition has a mark", func() bool { return metric(t, address, "streamer_checkpoints_saved_total") >= partitions })
	var all string
	until(t, "the node has noticed the events of every partition, none of which is idle any more", func() bool {
		all = ask(t, address+"/metrics").body
		return strings.Count(all, `,status="healthy"} 1`) == partitions
	})
	for name, kind := range map[string]string{
		"checkpoints_saved_total": "counter", "checkpoint_errors_total": "counter", "checkpoint_latency_seconds": "histogram",
		"duplicate_events_total": "counter", "dedup_cache_size": "gauge", "rescan_events_total": "counter",
		"partition_restarts_total": "counter", "gaps_detected_total": "counter", "partition_lag_seconds": "gauge", "partition_health": "gauge",
	} {
		if !strings.Contains(all, "# TYPE streamer_"+name+" "+kind+"\n") || !strings.Contains(all, "# HELP streamer_"+name+" ") {
			t.Errorf("there is no %s streamer_%s", kind, name)
		}
	}
	for name, want := range map[string]float64{
		"streamer_partition_restarts_total": 0, "streamer_dedup_cache_size": 1, "streamer_partitions_owned": partitions,
		"streamer_duplicate_events_total": 0, "streamer_rescan_events_total": 0, "streamer_checkpoint_errors_total": 0,
	} {
		if got := metric(t, address, name); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	for _, line := range []string{`streamer_partition_health{partition="3",status="healthy"} 1`, `streamer_partition_lag_seconds{partition="3"} `} {
		if !strings.Contains(all, line) {
			t.Errorf("no line begins with %s", line)
		}
	}
}

// A node is ready only while it owns its partitions: one that waits for another's claim is alive
// and not ready.
func TestNodeIsReadyWhileItOwnsItsPartitions(t *testing.T) {
	t.Parallel()
	l := newLab(t, "etcd").with("STREAMER_CLUSTER_LEASE_TTL=30s")
	first := l.node()
	first.await(nodeRuns)
	listen := devmongotest.FreeAddress()
	waiting := l.with("STREAMER_NODE_ID=second", "STREAMER_HTTP_LISTEN="+listen).node()
	waiting.await("waiting for its claim to run out")

	var got answer
	until(t, "the second answers", func() bool { got = ask(t, "http://"+listen+"/readyz"); return got.status != 0 })
	said := decode[readiness](t, got.body)
	if got.status != http.StatusServiceUnavailable || said.Ready || len(said.Problems) != 1 || said.Problems[0].Code != fault.NodeStarting {
		t.Errorf("/readyz of a node that waits: %+v", got)
	}
	if got := ask(t, "http://"+listen+"/livez"); got.status != http.StatusOK {
		t.Errorf("/livez of a node that waits: %+v", got)
	}
	if got := ask(t, "http://"+listen+"/health"); got.status != http.StatusServiceUnavailable || decode[report](t, got.body).Status != "unhealthy" {
		t.Errorf("/health of a node that waits: %+v", got)
	}
	first.signal(syscall.SIGTERM)
	if code := first.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	until(t, "the second is ready", func() bool { return ask(t, "http://"+listen+"/readyz").status == http.StatusOK })
	waiting.signal(syscall.SIGTERM)
	if code := waiting.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// A node that has nothing to do takes little memory, and one change stream of MongoDB's, however
// many partitions it has: 18 MiB where it starts beside much other work. What it takes is what no
// file holds: the system maps as much of the program as is in its cache, shares it, and takes it
// back.
func TestIdleNodeIsCheap(t *testing.T) {
	t.Parallel()
	const many, most = 64, 24 << 10 // KiB
	l, server := newDevLab(t, "etcd")
	l = l.with("STREAMER_CLUSTER_PARTITIONS=64", "STREAMER_RELIABILITY_CHECKPOINT_INTERVAL=100ms")
	program := os.Getenv(binaryVariable)
	if raced { // the race detector takes a multiple
		program = filepath.Join(t.TempDir(), "streamer")
		if err := build(program, false); err != nil {
			t.Fatal(err)
		}
	}
	p := start(t, launch{program: program, args: []string{"run", "-o", "json"}, env: l.settings})
	p.await(nodeRuns)
	l.insert(0, 1000)
	until(t, "every partition has a checkpoint", func() bool { return len(l.stored()) == many })
	until(t, "one change stream is open, and none is being opened", func() bool {
		return ask(t, p.address()+"/readyz").status == http.StatusOK && metric(t, p.address(), "streamer_log_streams_open") == 1 && server.Stats().ChangeStreamsOpen == 1
	})
	until(t, fmt.Sprintf("at most %d KiB are resident beside the program", most), func() bool { return resident(t, p, "RssAnon:") <= most })
	t.Logf("%d KiB resident, %d with the program", resident(t, p, "RssAnon:"), resident(t, p, "VmRSS:"))
	p.signal(syscall.SIGTERM)
	p.wait()
	until(t, "no stream is left behind", func() bool { return server.Stats().ChangeStreamsOpen == 0 })
}

// resident returns the memory of a process in KiB, of a kind in /proc/PID/status: VmRSS: is all of
// it, RssAnon: what no file holds.
func resident(t *testing.T, p *process, kind string) int {
	t.Helper()
	status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(p.cmd.Process.Pid), "status"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if fields := strings.Fields(line); fields[0] == kind {
			used, err := strconv.Atoi(fields[1])
			if err != nil {
				t.Fatal(err)
			}
			return used
		}
	}
	t.Fatal("no ", kind)
	return 0
}
