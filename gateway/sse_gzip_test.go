package gateway_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/mongostream/streamer/change/changetest"
	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway"
	"github.com/mongostream/streamer/gateway/access"
	"github.com/mongostream/streamer/gateway/sse"
)

// compressing is a node that compresses the streams of clients that accept it, and sends nothing
// but events.
func compressing() options {
	return options{hub: delivery.Config{Bookmark: time.Hour}, events: gateway.EventsConfig{Gzip: true, Heartbeat: time.Hour}}
}

// accepting opens a stream with a header Accept-Encoding, whose body comes as it is on the wire.
func (w *world) accepting(query, encodings string) *http.Response {
	w.Helper()
	req, err := http.NewRequestWithContext(w.Context(), http.MethodGet, w.web.URL+"/v1/events"+query, nil)
	if err != nil {
		w.Fatal(err)
	}
	req.Header.Set("Accept-Encoding", encodings)
	resp, err := w.web.Client().Do(req)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

// A counted reader counts what comes on the wire.
type counted struct {
	io.Reader

	n int
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n += n
	return n, err //nolint:wrapcheck // as it is
}

// A stream is compressed only where the node is configured so and the client accepts it, and then
// has the same events in fewer bytes, each as soon as it happens.
func TestEventStreamsAreCompressedForThoseWhoAcceptIt(t *testing.T) {
	w := newWorld(t, compressing())
	plain, packed := w.accepting("", "identity"), w.accepting("", "gzip")
	for _, tt := range []struct {
		resp *http.Response
		want string
	}{{plain, ""}, {packed, "gzip"}, {newWorld(t, options{}).accepting("", "gzip"), ""}} {
		if got := tt.resp.Header.Get("Content-Encoding"); got != tt.want {
			t.Errorf("Content-Encoding %q, want %q", got, tt.want)
		}
	}
	if plain.Header.Get("Vary") != "Accept-Encoding" || packed.Header.Get("Vary") != "Accept-Encoding" {
		t.Errorf("Vary %q and %q", plain.Header.Get("Vary"), packed.Header.Get("Vary"))
	}
	wires := []*counted{{Reader: plain.Body}, {Reader: packed.Body}}
	unpacked, err := gzip.NewReader(wires[1])
	if err != nil {
		t.Fatal(err)
	}
	readers := []*sse.Reader{sse.NewReader(wires[0]), sse.NewReader(unpacked)}
	const n = 200
	var begun [2]int
	for i := range n {
		w.source.Append(changetest.Event{ID: int64(i), Pad: 100, Noise: true})
		var got [2]sse.Message
		for side, r := range readers {
			if got[side], err = r.Next(); err != nil {
				t.Fatal(err)
			}
			if i == 0 {
				begun[side] = wires[side].n
			}
		}
		if got[0].ID != got[1].ID || !bytes.Equal(got[0].Data, got[1].Data) {
			t.Fatalf("%+v\n%+v", got[0], got[1])
		}
	}
	each := [2]int{(wires[0].n - begun[0]) / (n - 1), (wires[1].n - begun[1]) / (n - 1)}
	t.Logf("bytes of an event: %d, compressed %d", each[0], each[1])
	if each[1] > 300 || each[0] < each[1]*5/4 {
		t.Errorf("bytes of an event: %d, compressed %d", each[0], each[1])
	}
}

// Streams have the same text of an event, which is compressed for them together, and not at all if
// none of them is compressed.
func TestStreamsShareCompressedEvents(t *testing.T) {
	w := newWorld(t, compressing())
	read := func(encodings string) {
		t.Helper()
		const n, streams = 10, 5
		var readers []*sse.Reader
		for range streams {
			resp := w.accepting("", encodings)
			body := io.Reader(resp.Body)
			if resp.Header.Get("Content-Encoding") == "gzip" {
				unpacked, err := gzip.NewReader(body)
				if err != nil {
					t.Fatal(err)
				}
				body = unpacked
			}
			readers = append(readers, sse.NewReader(body))
		}
		w.write(n, 0)
		for _, r := range readers {
			for range n {
				event(t, r)
			}
		}
	}
	read("identity")
	if got := w.events.Fragments("data: "); got != 0 {
		t.Errorf("%d events were compressed for nobody", got)
	}
	read("gzip")
	if got := w.events.Fragments("data: "); got != 10 {
		t.Errorf("%d events of 10 were compressed", got)
	}
}

// A compressed stream that the node ends is whole: its checks are right.
func TestCompressedStreamIsEnded(t *testing.T) {
	w := newWorld(t, compressing())
	whole := func(what string, resp *http.Response) {
		t.Helper()
		text, err := io.ReadAll(resp.Body) // the client's library looks at the checks
		if err != nil || !resp.Uncompressed || !bytes.HasPrefix(text, []byte("retry: ")) {
			t.Errorf("%s: %q, %v, compressed %t", what, text, err, resp.Uncompressed)
		}
	}
	w.source.Tick(10)
	w.write(3, 0)
	whole("the end", w.stream("?start=earliest&end="+time.Unix(1000, 0).UTC().Format(time.RFC3339), ""))
	earlier := w.stream("?subscriber=page", "")
	w.stream("?subscriber=page", "")
	whole("replaced", earlier)
	last := w.stream("", "")
	w.write(1, 100_000)
	w.stop()
	whole("stopped", last)
}

// Bytes of a compressed stream count as they are sent. A stream that ends while changes wait for
// the rate is whole without them.
func TestCompressedBytesCountForTheRate(t *testing.T) {
	o := compressing()
	w := newWorld(t, o)
	o.events.Cluster, o.events.Accounts = "c", access.NewAccounts(access.Defaults{})
	base, stop := context.WithCancelCause(t.Context())
	o.events.Base = base
	events := gateway.NewEvents(o.events, w.node)
	server := newList(t, "token name=a namespace=* bytes_per_second=1").config(gateway.Config{}) // and 256 KiB at once
	web := httptest.NewServer(server.Access.Handler(events))
	t.Cleanup(web.Close)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, web.URL+"/v1/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer token")
	resp, err := web.Client().Do(req) // which unpacks, and looks at the checks
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	r := sse.NewReader(resp.Body)
	const n = 5
	w.write(n, 100_000)
	for range n {
		event(t, r)
	}
	w.source.Append(changetest.Event{ID: 8, Pad: 600_000, Noise: true})
	w.until("the last one is compressed", func() bool { return events.Fragments("data: ") == n+1 })
	stop(fault.Newf(fault.NodeStopping, "the node stops"))
	if m, err := r.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("%.100q, %v", m.Data, err)
	}
}
