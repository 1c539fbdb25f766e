package process

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"golang.org/x/sys/unix"

	devmongo "github.com/mongostream/streamer/dev/mongo"
	"github.com/mongostream/streamer/dev/mongo/devmongotest"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/health"
)

// limit sets a limit of the kernel for the process.
func (p *process) limit(resource int, limit uint64) {
	p.t.Helper()
	if err := unix.Prlimit(p.cmd.Process.Pid, resource, &unix.Rlimit{Cur: limit, Max: unix.RLIM_INFINITY}, nil); err != nil {
		p.t.Fatal(err)
	}
}

// The disk of a file sink is full, as far as the node can tell: that sink waits and says so, and
// others get everything. When there is space again, the file has every change, in whole lines.
func TestFullDiskOfAFileSinkHoldsUpNobodyElse(t *testing.T) {
	t.Parallel()
	l := newLab(t, "etcd").with("STREAMER_RELIABILITY_CIRCUIT_BREAKER_TIMEOUT=1s")
	dir := t.TempDir()
	config, out := filepath.Join(dir, "streamer.yaml"), filepath.Join(dir, "out.jsonl")
	settings := "sinks:\n  - name: disk\n    type: file\n    start: earliest\n    subscriptions: [{namespace: '" + l.database + ".*'}]\n    file: {path: '" + out + "'}\n"
	if err := os.WriteFile(config, []byte(settings), 0o600); err != nil {
		t.Fatal(err)
	}
	p := l.node("--file", config)
	address := p.address()
	written := func() []byte {
		text, err := os.ReadFile(out)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		return text
	}
	const few, all = 20, 500
	l.insert(0, few)
	until(t, "the first changes are in the file", func() bool { return bytes.Count(written(), []byte("\n")) == few })

	p.limit(unix.RLIMIT_FSIZE, uint64(len(written()))+1000)
	l.insert(few, all)
	until(t, "standard output gets everything", func() bool { return len(p.output.all()) == all })
	problem := func() string {
		var said []string
		for _, p := range decode[report](t, ask(t, address+"/health").body).Problems {
			said = append(said, fmt.Sprint(p.Subject, " ", p.Code, " ", p.Severity))
		}
		return strings.Join(said, ", ")
	}
	until(t, "the sink is the only problem", func() bool { return problem() == fmt.Sprint("sink/disk ", fault.SinkTarget, " ", health.Warning) })
	if got := ask(t, address+"/readyz").status; got != 200 {
		t.Errorf("/readyz: %d", got)
	}
	if text := written(); len(text) > 0 && text[len(text)-1] != '\n' {
		t.Errorf("a part of a line is in the file: %q", text[bytes.LastIndexByte(text, '\n')+1:])
	}

	p.limit(unix.RLIMIT_FSIZE, unix.RLIM_INFINITY)
	until(t, "the file has everything", func() bool { return bytes.Count(written(), []byte("\n")) >= all })
	ids := make(map[string]bool)
	for line := range strings.Lines(string(written())) {
		ids[string(decode[struct {
			Key struct {
				ID json.RawMessage `json:"_id"`
			} `json:"documentKey"`
		}](t, line).Key.ID)] = true
	}
	if len(ids) != all {
		t.Errorf("%d of %d documents are in the file", len(ids), all)
	}
	until(t, "no problem is left", func() bool { return problem() == "" })
}

// The memory that a node may have does not suffice for the changes that it keeps: it ends as if it
// had been killed, and nothing is missing after it was started with enough.
func TestNodeThatRunsOutOfMemoryMissesNothing(t *testing.T) {
	t.Parallel()
	server := devmongotest.Start(t, devmongo.Config{OplogBytes: 4 << 30})
	l := labOn(t, "etcd", server.URI()).with("STREAMER_MONGODB_RING_SIZE=1GiB", "STREAMER_MONGODB_PREFETCH=16MiB", "STREAMER_RELIABILITY_CHECKPOINT_INTERVAL=100ms")
	var mu sync.Mutex
	ids := make(map[string]bool)
	line := func(text string) {
		_, rest, there := strings.Cut(text, `"documentKey":`)
		if !there {
			t.Errorf("printed: %.300s", text)
		}
		id, _, _ := strings.Cut(rest, "}")
		mu.Lock()
		defer mu.Unlock()
		ids[id] = true
	}
	printed := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(ids)
	}
	const limit = 200 << 10 // KiB
	p := start(t, launch{
		program: "/bin/sh", args: []string{"-c", fmt.Sprintf(`ulimit -d %d; exec "$0" run -o json`, limit), os.Getenv(binaryVariable)}, env: l.settings, line: line,
	})
	p.await(nodeRuns)
	written := 0
	text := strings.Repeat("x", 1<<20)
	for ended := false; !ended; written++ {
		if _, err := l.collection().InsertOne(t.Context(), bson.D{{Key: "_id", Value: written}, {Key: "text", Value: text}}); err != nil {
			t.Fatal(err)
		}
		select {
		case <-p.ended:
			ended = true
		default:
			if written%50 == 49 { // neither process holds what the node has not read
				until(t, "the node prints what is written, or ends", func() bool {
					select {
					case <-p.ended:
						return true
					default:
						return printed() > written
					}
				})
			}
			if written == 2000 {
				t.Fatal("the node keeps more than it may have")
			}
		}
	}
	if code := p.wait(); code == 0 {
		t.Fatal("the node has ended well")
	}
	t.Logf("it ended with %d MiB written", written)
	l.with("STREAMER_MONGODB_RING_SIZE=48MiB").printer(line, "--take-over")
	until(t, "everything is printed", func() bool { return printed() == written })
}

// GOMEMLIMIT is below what a node keeps: it collects its garbage more often, and serves.
func TestNodeWithLessMemoryThanItWantsServes(t *testing.T) {
	t.Parallel()
	l := newLab(t, "etcd").with("GOMEMLIMIT=24MiB")
	p := l.node()
	p.await(nodeRuns)
	const all = 5000
	for from := 0; from < all; from += 500 {
		l.insert(from, from+500)
	}
	until(t, "everything is printed", func() bool { return len(p.output.all()) == all })
	p.signal(unix.SIGTERM)
	if code := p.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}
