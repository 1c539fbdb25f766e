package process

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// fullPipe returns the ends of a pipe that takes nothing more until it is read.
func fullPipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = r.Close(), w.Close() })
	for chunk := make([]byte, 4096); ; {
		if err := w.SetWriteDeadline(time.Now().Add(time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(chunk); errors.Is(err, os.ErrDeadlineExceeded) {
			return r, w
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// Standard error is a pipe that is full and that nobody reads: the node serves, keeps its lease,
// and ends when it is told to. Afterwards everything that it has logged can be read.
func TestNodeWhoseLogNobodyReads(t *testing.T) {
	t.Parallel()
	const ttl = 3 * time.Second
	l := newLab(t, backends()[0]).with("STREAMER_RELIABILITY_CHECKPOINT_INTERVAL=100ms", fmt.Sprint("STREAMER_CLUSTER_LEASE_TTL=", ttl), "STREAMER_LOG_LEVEL=debug")
	r, w := fullPipe(t)
	n := start(t, launch{args: []string{"run", "-o", "json"}, env: l.settings, stderr: w})
	from := 0
	printed := func() bool { // it begins at its first start
		l.insert(from, from+1)
		from++
		return len(n.output.all()) > 0
	}
	until(t, "events are printed", printed)
	until(t, "a checkpoint is saved", func() bool { return len(l.stored()) == partitions })
	owner := l.stored()[0].Epoch
	for renewed := time.Now().Add(2 * ttl); time.Now().Before(renewed); { // a lease that is not renewed has ended by then
		before := len(n.output.all())
		l.insert(from, from+1)
		from++
		until(t, "the next event is printed", func() bool { return len(n.output.all()) > before })
	}
	if now := l.stored()[0].Epoch; now != owner {
		t.Errorf("the lease has ended: epoch %s, then %s", owner, now)
	}
	n.signal(syscall.SIGTERM)
	if code := n.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if lines := bufio.NewScanner(r); lines.Scan() && strings.TrimLeft(lines.Text(), "\x00") != "" {
		t.Errorf("the pipe was not full: %q", lines.Text())
	}
}
