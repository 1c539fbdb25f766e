package process

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/mongostream/streamer/client"
	"github.com/mongostream/streamer/dev/mongo/devmongotest"
	"github.com/mongostream/streamer/internal/admin"
	"github.com/mongostream/streamer/sink"
)

// A copyist notes the documents whose changes it has seen, in their order.
type copyist struct {
	t    *testing.T
	mu   sync.Mutex
	seen []int64
}

func (c *copyist) take(line string) {
	e, err := sight(line)
	if err != nil {
		c.t.Errorf("%v: %s", err, line)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen = append(c.seen, e.document)
}

// distinct counts the documents that it has seen.
func (c *copyist) distinct() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	seen := map[int64]bool{}
	for _, id := range c.seen {
		seen[id] = true
	}
	return len(seen)
}

// inOrder reports whether it has seen the documents from 0 to below n, once each and in their
// order.
func (c *copyist) inOrder(n int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.seen) == n && slices.IsSorted(c.seen) && c.seen[0] == 0 && c.seen[n-1] == int64(n-1)
}

// sinkAt returns the status of the only sink of a node.
func sinkAt(t *testing.T, address string) sink.Status {
	t.Helper()
	list := decode[admin.SinkList](t, ask(t, address+"/v1/sinks").body)
	if len(list.Sinks) != 1 {
		t.Fatalf("%d sinks", len(list.Sinks))
	}
	return list.Sinks[0]
}

// Nobody reads standard output: a gateway of the same node gets everything meanwhile, operators are
// told, and whoever reads at last gets everything once.
func TestBlockedReaderOfStandardOutputHoldsUpNobodyElse(t *testing.T) {
	t.Parallel()
	grpc := devmongotest.FreeAddress()
	l := newLab(t, "etcd").with("STREAMER_GRPC_LISTEN=" + grpc)
	const documents = 300
	p, output := silent(t, l)
	address := p.address()
	p.await(nodeRuns)
	var handled atomic.Int64
	connected := make(chan struct{}, 1)
	c, err := client.New(client.Config{
		Addresses: []string{grpc}, Subscriber: "g", Start: client.StartNow,
		OnNotice: func(_ context.Context, n client.Notice) error {
			if _, is := n.(client.Connected); is {
				connected <- struct{}{}
			}
			return nil
		},
	})
	if err == nil {
		err = c.Subscribe(client.Subscription{ID: "all", DB: l.database, Format: client.JSON}, func(context.Context, client.Change) error {
			handled.Add(1)
			return nil
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	<-connected
	fill(t, l, p, documents)
	until(t, "the gateway has everything", func() bool { return handled.Load() == documents })
	until(t, "operators are told", func() bool {
		return sinkAt(t, address).State == sink.Stalled && p.noted("kind=problem code=STRM-SINK-TARGET")
	})
	if ready := ask(t, address+"/readyz"); ready.status != http.StatusOK {
		t.Errorf("/readyz: %+v", ready)
	}

	reader := &copyist{t: t}
	read := make(chan struct{})
	go func() {
		defer close(read)
		eachLine(output, reader.take)
	}()
	until(t, "the reader has everything once", func() bool { return reader.inOrder(documents) })
	until(t, "operators are told that it reads again", func() bool {
		return sinkAt(t, address).State == sink.Publishing && p.noted("kind=problem_over code=STRM-SINK-TARGET")
	})
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	<-read
}

// A fifo is a named pipe as a standard output.
type fifo struct {
	t    *testing.T
	path string
}

// A listener reads a fifo.
type listener struct {
	file    *os.File
	reading sync.WaitGroup
}

// open opens the pipe for reading. It waits for no writer.
func (f *fifo) open() *listener {
	f.t.Helper()
	file, err := os.OpenFile(f.path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		f.t.Fatal(err)
	}
	l := &listener{file: file}
	f.t.Cleanup(l.close)
	return l
}

// begin begins to note what is in the pipe, which has a writer, until nobody writes.
func (l *listener) begin(c *copyist) { l.reading.Go(func() { eachLine(l.file, c.take) }) }

// close ends reading.
func (l *listener) close() {
	_ = l.file.Close()
	l.reading.Wait()
}

// start starts a node that writes into the pipe, which somebody must have opened.
func (f *fifo) start(l *lab, config string, args ...string) *process {
	f.t.Helper()
	w, err := os.OpenFile(f.path, os.O_WRONLY, 0)
	if err != nil {
		f.t.Fatal(err)
	}
	p := start(f.t, launch{args: append([]string{"run", "-f", config}, args...), env: l.settings, stdout: w})
	_ = w.Close()
	return p
}

// Readers of a configured standard output come and go, and the node runs on: the next one gets what
// the last one has not. An operator pauses it as any sink. Nothing is lost when the node is killed.
func TestSinkOfStandardOutputOutlivesItsReaders(t *testing.T) {
	t.Parallel()
	l := newLab(t, "etcd").with("STREAMER_RELIABILITY_CIRCUIT_BREAKER_TIMEOUT=100ms")
	config := put(t, "streamer.yaml", []byte("sinks:\n  - {name: lines, type: stdout, start: start_from}\n"))
	pipe := &fifo{t: t, path: filepath.Join(t.TempDir(), "lines")}
	if err := syscall.Mkfifo(pipe.path, 0o600); err != nil {
		t.Fatal(err)
	}
	reader, listener := &copyist{t: t}, pipe.open()
	p := pipe.start(l, config)
	listener.begin(reader)
	address := p.address()
	p.await(nodeRuns)
	l.insert(0, 100)
	until(t, "the first reader has everything", func() bool { return reader.inOrder(100) })
	if s := sinkAt(t, address); s.Name != "lines" || s.Subscriber != printer {
		t.Errorf("%+v", s)
	}

	listener.close()
	l.insert(100, 200)
	until(t, "the sink says what is the matter", func() bool {
		s := sinkAt(t, address)
		return (s.State == sink.Retrying || s.State == sink.Stalled) && strings.Contains(s.Error, "broken pipe")
	})
	command(t, "sinks", "pause", "lines", "--yes", "--address", address)
	until(t, "it is paused", func() bool { return sinkAt(t, address).State == sink.Paused })
	listener = pipe.open()
	listener.begin(reader)
	command(t, "sinks", "resume", "lines", "--yes", "--address", address)
	until(t, "the next reader has the rest, once", func() bool { return reader.inOrder(200) })

	l.insert(200, 300)
	p.kill()
	listener.reading.Wait()
	listener = pipe.open()
	p = pipe.start(l, config, "--take-over")
	listener.begin(reader)
	p.await(nodeRuns)
	l.insert(300, 400)
	until(t, "nothing is lost", func() bool { return reader.distinct() == 400 })
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if len(l.stored()) == 0 {
		t.Errorf("%s has no checkpoints", printer)
	}
}
