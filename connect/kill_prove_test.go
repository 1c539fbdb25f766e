//go:build prove

package connect_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	devbroker "github.com/mongostream/streamer/dev/broker"
	"github.com/mongostream/streamer/dev/workload"
	"github.com/mongostream/streamer/internal/docblock"
)

// kills is how often the engines, and the node, are killed.
const kills = 5

// A target is an output of the engine, and a reader of what has arrived there.
type target struct {
	name, output string
	read         func(from int) (lines []byte)
}

// A shop that is written to; a node, and an engine for each kind of output. Five times the engines
// are killed, and five times the node. In the end every target has every change, in order, and
// some more than once.
func TestProveKilledEnginesAndNodesMissNothing(t *testing.T) {
	dir := t.TempDir()
	build(t, dir)
	mongo, etcd, grpc := address(t), address(t), address(t)
	parts := command(dir, "demo", "parts", "-mongodb", mongo, "-etcd", etcd)
	run(t, parts)
	uri := "mongodb://" + mongo + "/?replicaSet=rs0"
	node := func() *exec.Cmd {
		c := command(dir, "streamer", "run")
		c.Env = append(os.Environ(), "STREAMER_MONGODB_URI="+uri, "STREAMER_GRPC_LISTEN="+grpc, "STREAMER_HTTP_LISTEN="+address(t), "STREAMER_RELIABILITY_CHECKPOINT_BACKEND=mongo")
		return c
	}
	reachable(t, mongo)
	running := run(t, node())
	reachable(t, grpc)

	targets := []target{file(dir), httpServer(t, dir), subprocess(dir), natsServer(t, dir)}
	engines := make([]*exec.Cmd, len(targets))
	start := func(i int) { engines[i] = run(t, engine(t, dir, grpc, targets[i])) }
	for i := range targets {
		start(i)
	}
	ledger := &workload.Ledger{}
	ctx, stop := context.WithCancel(t.Context())
	written := make(chan error, 1)
	go func() {
		written <- workload.NewWriter(workload.Config{URI: uri, Customers: true, Rate: 300}, ledger).Run(ctx)
	}()
	for range kills {
		arrive(t, targets)
		for i := range engines {
			kill(engines[i])
			start(i)
		}
		arrive(t, targets)
		kill(running)
		running = run(t, node())
	}
	arrive(t, targets)
	stop()
	if err := <-written; err != nil {
		t.Fatal(err)
	}
	for _, to := range targets {
		judge(t, to, ledger)
	}
}

// The commands of the documents are taken: a pipeline that they run is one of docs/connect.md,
// whose configurations run in other tests.
func TestProveCommandsOfTheDocumentationAreTaken(t *testing.T) {
	dir := t.TempDir()
	build(t, dir)
	here, _ := page(t)
	text, err := os.ReadFile("../docs/connect.md")
	blocks, failed := docblock.Of("..", "sh")
	if err := errors.Join(err, failed); err != nil {
		t.Fatal(err)
	}
	for _, b := range blocks {
		text = append(text, b.Text...)
	}
	found := regexp.MustCompile("(?m)(?:^|`)bin/streamer-connect ([^`\n]+)").FindAllStringSubmatch(string(text), -1)
	for _, m := range found {
		words := strings.Fields(m[1])
		if file := words[len(words)-1]; words[0] == "run" {
			config := here[strings.TrimSuffix(file, ".yaml")]
			if config == "" {
				t.Errorf("no configuration of docs/connect.md is %s", file)
			}
			if err := os.WriteFile(filepath.Join(dir, file), []byte(config), 0o600); err != nil {
				t.Fatal(err)
			}
			words[0] = "lint"
		}
		out, err := command(dir, "streamer-connect", words...).CombinedOutput()
		if err != nil || words[0] != "lint" && !strings.Contains(string(out), "streamer") {
			t.Errorf("%s: %v: %s", m[1], err, out)
		}
	}
	if len(found) < 6 {
		t.Errorf("only %d commands were found", len(found))
	}
}

// build builds the programs as they are.
func build(t *testing.T, dir string) {
	t.Helper()
	for _, b := range []struct{ in, of string }{{"..", "./dev/demo"}, {"..", "./cmd/streamer"}, {".", "./cmd/streamer-connect"}} {
		c := exec.Command("go", "build", "-o", dir+"/", b.of)
		c.Dir = b.in
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("build %s: %v\n%s", b.of, err, out)
		}
	}
}

func command(dir, name string, args ...string) *exec.Cmd {
	c := exec.Command(filepath.Join(dir, name), args...)
	c.Dir = dir
	return c
}

// address is a free one of this machine.
func address(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func reachable(t *testing.T, address string) {
	t.Helper()
	eventually(t, address+" answers", func() bool {
		c, err := net.Dial("tcp", address)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	})
}

// eventually waits until something is so.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(4 * patience); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v", what, 4*patience)
		}
	}
}

// run starts a process, which ends with the test. What it wrote is shown if the test fails.
func run(t *testing.T, c *exec.Cmd) *exec.Cmd {
	t.Helper()
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	c.WaitDelay = time.Second
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		kill(c)
		if text := out.String(); t.Failed() {
			t.Logf("%s:\n%s", c, text[max(0, len(text)-4000):])
		}
	})
	return c
}

// kill kills a process as kill -9 does.
func kill(c *exec.Cmd) {
	if c.ProcessState == nil {
		_ = c.Process.Kill()
		_ = c.Wait()
	}
}

// engine is a streamer-connect that writes to a target.
func engine(t *testing.T, dir, grpc string, to target) *exec.Cmd {
	t.Helper()
	path := filepath.Join(dir, to.name+".yaml")
	text := fmt.Sprintf("http: {enabled: false}\ninput:\n  streamer:\n    addresses: [%q]\n    subscriber: %s\n    db: shop\n    start: earliest\noutput:\n%s", grpc, to.name, to.output)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := command(dir, "streamer-connect", "lint", path).CombinedOutput(); err != nil {
		t.Fatalf("lint: %v\n%s", err, out)
	}
	return command(dir, "streamer-connect", "run", path)
}

func file(dir string) target {
	path := filepath.Join(dir, "changes.jsonl")
	return target{"file", "  file: {path: " + path + ", codec: lines}\n", from(path)}
}

// subprocess is one that reads until the end of its input, also when the engine is killed.
func subprocess(dir string) target {
	path := filepath.Join(dir, "subprocess.jsonl")
	return target{"subprocess", "  subprocess: {name: sh, args: [-c, 'cat >> " + path + "'], codec: lines}\n", from(path)}
}

// from reads a file that grows.
func from(path string) func(int) []byte {
	return func(at int) []byte {
		f, err := os.Open(path)
		if err != nil {
			return nil
		}
		defer f.Close()
		_, _ = f.Seek(int64(at), io.SeekStart)
		b, _ := io.ReadAll(f)
		return b[:bytes.LastIndexByte(b, '\n')+1]
	}
}

// httpServer writes each request's body to a file before it answers. It refuses some.
func httpServer(t *testing.T, dir string) target {
	t.Helper()
	path := filepath.Join(dir, "http.jsonl")
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	var requests atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || requests.Add(1)%50 == 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		if _, err := f.Write(append(bytes.TrimSpace(body), '\n')); err != nil {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	t.Cleanup(s.Close)
	return target{"http", "  http_client: {url: " + s.URL + ", verb: POST, retry_period: 10ms}\n", from(path)}
}

// natsServer is a NATS server with a stream, whose messages are written to a file in its order. The
// output is that of docs/connect.md, with its header.
func natsServer(t *testing.T, dir string) target {
	t.Helper()
	s, err := devbroker.StartNATS(filepath.Join(dir, "nats"), 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	stream, nc, err := s.Stream(t.Context(), "changes", "changes.>")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	path := filepath.Join(dir, "nats.jsonl")
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	consumer, err := stream.OrderedConsumer(t.Context(), jetstream.OrderedConsumerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	messages, err := consumer.Consume(func(m jetstream.Msg) {
		if _, err := f.Write(append(bytes.TrimSpace(m.Data()), '\n')); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		messages.Stop()
		<-messages.Closed()
	})
	here, _ := page(t)
	_, documented, _ := strings.Cut(here["nats"], "\noutput:\n")
	return target{"nats", strings.Replace(documented, "nats://127.0.0.1:4222", s.URL(), 1), from(path)}
}

// arrive waits until something more has come everywhere.
func arrive(t *testing.T, targets []target) {
	t.Helper()
	for _, to := range targets {
		had := len(to.read(0))
		eventually(t, "something arrives at "+to.name, func() bool { return len(to.read(had)) > 100_000 })
	}
}

// judge compares what has arrived with what was written.
func judge(t *testing.T, to target, ledger *workload.Ledger) {
	t.Helper()
	check := workload.NewCheck(ledger)
	at := 0
	eventually(t, to.name+" has everything", func() bool {
		b := to.read(at)
		at += len(b)
		for line := range strings.Lines(string(b)) {
			if err := check.JSON([]byte(line), time.Now()); err != nil {
				t.Errorf("%s: %v", to.name, err)
			}
		}
		return check.Missing() == 0
	})
	r := check.Report()
	t.Logf("%s: written %d, missing %d, out of order %d, duplicates %d", to.name, r.Written, r.Missing, r.OutOfOrder, r.Duplicates)
	if r.OutOfOrder != 0 {
		t.Errorf("%s: %d changes came before an earlier one of their document", to.name, r.OutOfOrder)
	}
}
