package process

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/fault"
)

func TestPlannedStopSavesTheLastMarksAndFreesThePartitions(t *testing.T) {
	t.Parallel()
	for _, backend := range backends() {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, backend).with("STREAMER_RELIABILITY_CHECKPOINT_INTERVAL=1h")
			p := start(t, launch{args: []string{"run", "-o", "json"}, env: l.settings})
			p.await(nodeRuns)
			l.insert(0, 100)
			until(t, "every partition has its first checkpoint", func() bool { return len(l.stored()) == partitions })
			l.insert(100, 500)
			until(t, "all events are printed", func() bool { return len(p.output.all()) == 500 })
			p.signal(syscall.SIGTERM)
			if code := p.wait(); code != 0 {
				t.Errorf("exit code %d", code)
			}

			last := map[change.Partition]place{}
			for _, e := range sightings(t, p.output.all()) {
				last[e.partition] = e.place
			}
			stored := l.stored()
			for partition, event := range last {
				if m := stored[partition]; m.Reason != checkpoint.ReasonFinal || event.Compare(m.Position.Ref()) > 0 {
					t.Errorf("partition %d: the last event printed is behind its mark (%s, %s)", partition, m.Position, m.Reason)
				}
			}
			if !p.noted("partitions released") {
				t.Error("no line says that the partitions are released")
			}

			successor := start(t, launch{args: []string{"run", "-o", "json"}, env: l.settings})
			successor.await(nodeRuns)
			if successor.noted("waiting for its claim") {
				t.Error("the successor had to wait")
			}
			l.insert(500, 600)
			until(t, "the new events are printed", func() bool { return len(successor.output.all()) >= 100 })
			successor.signal(syscall.SIGINT)
			if code := successor.wait(); code != 0 {
				t.Errorf("exit code %d of the successor", code)
			}
			for _, e := range sightings(t, successor.output.all()) {
				if e.document < 500 {
					t.Fatalf("document %d was acknowledged and is delivered again", e.document)
				}
			}
			if n := len(successor.output.all()); n != 100 {
				t.Errorf("the successor printed %d events of 100", n)
			}
		})
	}
}

// A subscriber that does not acknowledge holds up a planned stop, but not whoever insists.
func TestSecondSignalEndsAtOnce(t *testing.T) {
	t.Parallel()
	l := newLab(t, "etcd").with("STREAMER_RELIABILITY_SHUTDOWN_FLUSH_TIMEOUT=1h", "STREAMER_RELIABILITY_CHECKPOINT_INTERVAL=100ms")
	const documents = 100 // more than a pipe takes, and written before the sink of standard output is stalled
	p, output := silent(t, l)
	fill(t, l, p, documents)
	follower := &http.Client{Transport: &http.Transport{}}
	defer follower.CloseIdleConnections()
	address := p.address()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address+"/v1/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := follower.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()

	p.signal(syscall.SIGTERM)
	buffer := make([]byte, 1<<10)
	for err == nil { // the node ends its event streams when it begins to stop
		_, err = resp.Body.Read(buffer)
	}
	if ready := ask(t, address+"/readyz"); ready.status != http.StatusServiceUnavailable {
		t.Errorf("/readyz of a stopping node: %+v", ready)
	}
	if alive := ask(t, address+"/livez"); alive.status != http.StatusOK {
		t.Errorf("/livez of a stopping node: %+v", alive)
	}
	if late := ask(t, address+"/v1/events"); late.status != http.StatusServiceUnavailable || !strings.Contains(late.body, string(fault.NodeStopping)) {
		t.Errorf("/v1/events of a stopping node: %+v", late)
	}
	select {
	case <-p.ended:
		t.Fatal("it did not wait for acknowledgements")
	default:
	}
	insist := time.NewTicker(50 * time.Millisecond)
	defer insist.Stop()
	for range patience / (50 * time.Millisecond) {
		_ = p.cmd.Process.Signal(syscall.SIGTERM) // one may come before the first has been dealt with
		select {
		case <-insist.C:
			continue
		case <-p.ended:
		}
		break
	}
	if code := p.wait(); code == 0 {
		t.Error("exit code 0, although events are not acknowledged")
	}

	comesAgain(t, l, documents, output, "--take-over")
}

// Whoever reads the output may stop to read: the stop comes to its end all the same, and what was
// not written comes again.
func TestPlannedStopEndsAlthoughNobodyReadsTheOutput(t *testing.T) {
	t.Parallel()
	l := newLab(t, "etcd").with("STREAMER_RELIABILITY_SHUTDOWN_FLUSH_TIMEOUT=200ms", "STREAMER_RELIABILITY_CHECKPOINT_INTERVAL=100ms")
	const documents = 300
	p, output := silent(t, l)
	fill(t, l, p, documents)
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if !p.noted("flush timed out, unacknowledged events will be redelivered") || !p.noted("partitions released") {
		t.Error("it does not say what was left, or did not release its partitions")
	}
	comesAgain(t, l, documents, output)
}

// Output that nobody can read any more ends the node as a stop does, not as a crash.
func TestNodeStopsWhenItsOutputIsClosed(t *testing.T) {
	t.Parallel()
	l := newLab(t, "etcd").with("STREAMER_RELIABILITY_SHUTDOWN_FLUSH_TIMEOUT=200ms")
	const documents = 300
	p, output := silent(t, l)
	p.await(nodeRuns)
	if err := output.Close(); err != nil {
		t.Fatal(err)
	}
	l.insert(0, documents)
	if code := p.wait(); code != 1 || !p.noted("streamer: write events: ") {
		t.Errorf("exit code %d, or nothing said", code)
	}
	if !p.noted("partitions released") {
		t.Error("it did not release its partitions")
	}
	comesAgain(t, l, documents, nil)
}

// comesAgain starts a successor and waits until it has printed all documents that its predecessor's
// output does not hold.
func comesAgain(t *testing.T, l *lab, documents int, before io.Reader, args ...string) {
	t.Helper()
	var mu sync.Mutex
	seen := map[int64]bool{}
	note := func(line string) {
		if e, err := sight(line); err == nil {
			mu.Lock()
			defer mu.Unlock()
			seen[e.document] = true
		}
	}
	if before != nil {
		eachLine(before, note)
	}
	if len(seen) == documents {
		t.Error("everything had been written: nothing was put to the test")
	}
	p := l.printer(note, args...)
	p.await(nodeRuns)
	if p.noted("waiting for its claim") {
		t.Error("the successor had to wait")
	}
	until(t, "what was not acknowledged is delivered again", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(seen) == documents
	})
	p.kill()
}

// silent starts a node whose standard output nobody reads.
func silent(t *testing.T, l *lab) (p *process, output *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	p = start(t, launch{args: []string{"run", "-o", "json"}, env: l.settings, stdout: w})
	_ = w.Close()
	return p, r
}

// fill writes more documents than a pipe takes, and waits until all of them have passed the node.
func fill(t *testing.T, l *lab, p *process, documents int) {
	t.Helper()
	address := p.address()
	pad := strings.Repeat("x", 2000)
	for id := range documents {
		if _, err := l.collection().InsertOne(t.Context(), bson.D{{Key: "_id", Value: id}, {Key: "pad", Value: pad}}); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "all events have passed", func() bool { return int(metric(t, address, "streamer_partition_events_total")) == documents })
}

// metric returns the sum of a metric of a node over all its labels, -1 where there is none.
func metric(t testing.TB, address, name string) float64 {
	t.Helper()
	sum, found := 0.0, false
	for line := range strings.Lines(ask(t, address+"/metrics").body) {
		rest, ok := strings.CutPrefix(line, name)
		if !ok || rest[0] != '{' && rest[0] != ' ' {
			continue
		}
		var value float64
		if _, err := fmt.Sscan(rest[strings.LastIndexByte(rest, ' '):], &value); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		sum, found = sum+value, true
	}
	if !found {
		return -1
	}
	return sum
}
