//go:build clients

package process

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mongostream/streamer/dev/mongo/devmongotest"
)

// inPython is the program of the Python client, which prints changes.
func inPython(args ...string) launch {
	return launch{program: "python3", args: append([]string{"-B", "-m", "mongostream_streamer"}, args...), env: []string{"PYTHONPATH=../../client/python"}}
}

// The program of the Python client handles every change, also while its node and it itself are
// killed, and begins where it was.
func TestConsumerInPythonMissesNothing(t *testing.T) {
	t.Parallel()
	listen, position := devmongotest.FreeAddress(), filepath.Join(t.TempDir(), "position.txt")
	l := newLab(t, "etcd").with("STREAMER_HTTP_LISTEN=" + listen)
	run := func() *process {
		p := l.node("--take-over")
		p.await(nodeRuns)
		return p
	}
	consume := func() *process {
		return start(t, inPython("http://"+listen+"/v1/events?db="+l.database, position))
	}
	knows := func() bool {
		text, err := os.ReadFile(position)
		return err == nil && len(text) > 0
	}
	node := run()
	consumer := consume()
	until(t, "it knows where it is", knows)
	l.insert(1, 3)
	consumer.awaitIn(consumer.output, `"documentKey":{"_id":2}`)
	node.kill()
	l.insert(3, 5)
	node = run()
	consumer.awaitIn(consumer.output, `"documentKey":{"_id":4}`)
	consumer.kill()
	first := sightings(t, consumer.output.all())
	l.insert(5, 7)
	consumer = consume()
	consumer.awaitIn(consumer.output, `"documentKey":{"_id":6}`)
	consumer.signal(syscall.SIGTERM)
	consumer.wait()
	node.kill()
	second := sightings(t, consumer.output.all())
	if first[len(first)-1] == second[0] { // killed between handling a change and saving its position
		second = second[1:]
	}
	if got, want := described(append(first, second...)), "insert 1, insert 2, insert 3, insert 4, insert 5, insert 6"; got != want {
		t.Errorf("%s; want %s", got, want)
	}
}

// It leaves with whoever reads what it prints.
func TestConsumerInPythonLeavesWithItsReader(t *testing.T) {
	t.Parallel()
	node := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for i := 0; r.Context().Err() == nil; i++ {
			if _, err := fmt.Fprintf(w, "data: {\"operationType\":\"insert\"}\nid: %d\n\n", i); err != nil {
				return
			}
		}
	}))
	defer node.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	l := inPython(node.URL+"/v1/events", filepath.Join(t.TempDir(), "position.txt"))
	consumer := exec.CommandContext(ctx, l.program, l.args...)
	consumer.Env = append(os.Environ(), l.env...)
	var complaints strings.Builder
	consumer.Stderr = &complaints
	out, err := consumer.StdoutPipe()
	if err == nil {
		err = consumer.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || !strings.Contains(line, "insert") {
		t.Errorf("%q, %v", line, err)
	}
	_ = out.Close()
	if err := consumer.Wait(); err != nil || complaints.Len() > 0 {
		t.Errorf("%v: %s", err, &complaints)
	}
}

// What another attempt would not change ends it, with the node's own words.
func TestConsumerInPythonEndsWithABadFilter(t *testing.T) {
	t.Parallel()
	listen := devmongotest.FreeAddress()
	l := newLab(t, "etcd").with("STREAMER_HTTP_LISTEN=" + listen)
	node := l.node()
	node.await(nodeRuns)
	consumer := start(t, inPython("http://"+listen+"/v1/events?filter=nonsense(", filepath.Join(t.TempDir(), "position.txt")))
	if code := consumer.wait(); code != 1 || !consumer.noted("STRM-FILTER-INVALID") {
		t.Errorf("exit code %d", code)
	}
	node.kill()
}
