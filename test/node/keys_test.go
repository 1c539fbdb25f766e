package node

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	devmongo "github.com/mongostream/streamer/dev/mongo"
)

// An idle event stream is written to as often as http.heartbeat says.
func TestIdleEventStreamsAreWrittenToAsConfigured(t *testing.T) {
	t.Parallel()
	n := newRig(t, devmongo.Config{}, "STREAMER_HTTP_HEARTBEAT=20ms").beginWith(nil)
	n.status()
	n.awaitHeartbeats("/v1/events", 100) // at every 15 s, which is the default, they take longer than patience
}

// An idle stream is written to before the deadline of its last write, at which HTTP/2 ends it.
func TestIdleStreamsAreWrittenToWithinTheStallTimeout(t *testing.T) {
	t.Parallel()
	n := newRig(t, devmongo.Config{}, "STREAMER_HTTP_HEARTBEAT=1h", "STREAMER_HTTP_STALL_TIMEOUT=2s").beginWith(nil)
	n.status()
	n.awaitHeartbeats("/v1/events", 2)
	n.awaitHeartbeats("/v1/notices", 2)
}

// awaitHeartbeats reads a stream until some heartbeats have come.
func (n *live) awaitHeartbeats(path string, wanted int) {
	t := n.T
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.service.Addr()+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	web := &http.Client{Transport: &http.Transport{}}
	defer web.CloseIdleConnections()
	resp, err := web.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	beats := 0
	for lines := bufio.NewScanner(resp.Body); beats < wanted && lines.Scan(); {
		if lines.Text() == ": heartbeat" {
			beats++
		}
	}
	if beats < wanted {
		t.Errorf("%s: %d heartbeats in %s", path, beats, patience)
	}
}

// A client of an event stream that reads nothing is disconnected after http.stall_timeout.
func TestEventStreamThatIsNotReadEndsAsConfigured(t *testing.T) {
	t.Parallel()
	n := newRig(t, devmongo.Config{}, "STREAMER_HTTP_STALL_TIMEOUT=1s").beginWith(nil)
	n.status()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", n.service.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := fmt.Fprintf(conn, "GET /v1/events?db=shop HTTP/1.1\r\nHost: %s\r\n\r\n", n.service.Addr()); err != nil {
		t.Fatal(err)
	}
	n.until("the client is connected", func() bool { return n.metric("streamer_sse_clients") == 1 })
	pad := strings.Repeat("x", 1<<20)
	for id := range 16 { // more than the system takes for a client
		n.insertPadded(id, pad)
	}
	begun := time.Now()
	n.until("it is disconnected", func() bool { return n.metric("streamer_sessions_ended_total") > 0 })
	if took := time.Since(begun); took > 20*time.Second { // the default is 30 s
		t.Errorf("after %v", took)
	}
}

// Event streams are compressed for clients that accept it if http.compression says so, and a change
// comes as soon as it happens.
func TestEventStreamsAreCompressedAsConfigured(t *testing.T) {
	t.Parallel()
	n := newRig(t, devmongo.Config{}, "STREAMER_HTTP_COMPRESSION=gzip").beginWith(nil)
	n.status()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.service.Addr()+"/v1/events?db=shop", nil)
	if err != nil {
		t.Fatal(err)
	}
	web := &http.Client{Transport: &http.Transport{}} // which accepts gzip, and unpacks it
	defer web.CloseIdleConnections()
	resp := n.do(web, req)
	defer func() { _ = resp.Body.Close() }()
	if !resp.Uncompressed || resp.StatusCode != http.StatusOK {
		t.Errorf("status %d, compressed: %t", resp.StatusCode, resp.Uncompressed)
	}
	n.insertPadded(1, "what is inserted")
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "data: ") && strings.Contains(lines.Text(), "what is inserted") {
			return
		}
	}
	t.Error("the stream has ended")
}
