package process

import (
	"strings"
	"testing"
)

// guess gives the commands that a new operator tries, with nothing but the address of a node at
// another port. The node is not alone, so that another can be drained.
func guess(t *testing.T, f *fleet) {
	t.Helper()
	other := f.ships[1].name
	alone := &lab{t: t, settings: []string{"STREAMER_ADDRESS=" + f.ships[0].http}}
	for _, tt := range []struct {
		args []string
		says []string
	}{
		{[]string{"status"}, []string{f.ships[0].name, f.lab.cluster}},
		{[]string{"sinks"}, []string{"SINK", printer}},
		{[]string{"subscribers"}, []string{"SUBSCRIBER", printer}},
		{[]string{"gaps"}, []string{"No losses of the log."}},
		{[]string{"supervisor", "status"}, nil},
		{[]string{"drain", other, "--yes"}, []string{"0 partitions left", "Node " + other + " is empty"}},
		{[]string{"drain", other, "--undo", "--yes"}, []string{"its share"}},
		{[]string{"audit"}, []string{"drain " + other}},
	} {
		text := alone.result(tt.args...)
		for _, want := range tt.says {
			if !strings.Contains(text, want) {
				t.Errorf("streamer %v does not say %q:\n%s", tt.args, want, text)
			}
		}
	}
	tail := alone.operate("tail", "--count", "1", "--start", "-10m", "-o", "json")
	stop := f.write(20)
	if code := tail.wait(); code != 0 || len(tail.output.all()) != 1 || !strings.Contains(tail.output.all()[0], `"documentKey"`) {
		t.Errorf("exit code %d of a tail: %q, %q", code, tail.output.all(), tail.notes.all())
	}
	stop()
	etcd := strings.TrimPrefix(f.etcd, "http://")
	alone.operate("tail", "--address", etcd).refused("STRM-NODE-UNREACHABLE", "no node at http://"+etcd, "404 Not Found, which is not the answer of a Streamer node")
	elsewhere := &lab{t: t, settings: []string{"STREAMER_ADDRESS=127.0.0.1:1"}}
	for _, args := range [][]string{{"status"}, {"sinks"}, {"subscribers"}, {"tail"}, {"drain", other, "--yes"}, {"audit"}, {"gaps"}} {
		elsewhere.operate(args...).refused("STRM-NODE-UNREACHABLE", "127.0.0.1:1 (STREAMER_ADDRESS)")
	}
}
