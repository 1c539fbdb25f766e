package operator

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A tail of a stretch asks for both of its ends, and ends where the node says so.
func TestTailEndsWhereItIsToEnd(t *testing.T) {
	lonely(t)
	d := &fixture{T: t}
	asked := make(chan url.Values, 2)
	status := http.StatusOK
	node := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.URL.Query()
		w.Header().Set("Content-Type", "text/event-stream")
		w.WriteHeader(status)
		if status == http.StatusOK {
			fmt.Fprint(w, "data: {\"operationType\":\"insert\",\"ns\":{\"db\":\"shop\",\"coll\":\"orders\"}}\nid: 1\n\nevent: end\ndata: {\"message\":\"x\"}\nid: 2\n\ndata: {}\n\n")
		}
	}))
	t.Cleanup(node.Close)
	text, err := d.command("tail", "--address", node.URL, "--start", "2026-01-02T15:00:00Z", "--until", "2026-01-02T16:00:00Z", "-o", "json")
	if query := <-asked; err != nil || strings.Count(text, "\n") != 1 || !strings.HasPrefix(text, `{"id":"1",`) || query.Get("start") != "2026-01-02T15:00:00Z" || query.Get("end") != "2026-01-02T16:00:00Z" {
		t.Errorf("%q, %v, %v", text, query, err)
	}
	status = http.StatusNoContent
	if text, err := d.command("tail", "--address", node.URL, "--until", "-1h"); err != nil || text != "" {
		t.Errorf("%q, %v", text, err)
	}
	if at, err := time.Parse(time.RFC3339, (<-asked).Get("end")); err != nil || time.Since(at) < time.Hour || time.Since(at) > 2*time.Hour {
		t.Errorf("an hour ago is %s, %v", at, err)
	}
	if _, err := d.command("tail", "--address", node.URL, "--until", "yesterday-ish"); ExitCode(err) != exitUsage {
		t.Error(err)
	}
}

// A tail whose output cannot be written ends: another connection would not help.
func TestTailEndsWhereNobodyReads(t *testing.T) {
	lonely(t)
	node := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "data: {}\nid: 1\n\n")
	}))
	t.Cleanup(node.Close)
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	end := &tail{query: url.Values{}, output: outputJSON, out: full, notes: io.Discard, client: nodeClient{address: node.URL}}
	if err := end.run(t.Context()); !errors.Is(err, syscall.ENOSPC) {
		t.Error(err)
	}
}
