package gateway_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway"
	"github.com/mongostream/streamer/gateway/access"
	"github.com/mongostream/streamer/gateway/sse"
)

// crossing serves event streams within another handler, instead of the world's own, and tells when
// that has returned from a request.
func (w *world) crossing(o gateway.EventsConfig, within func(http.Handler) http.Handler, start func(*httptest.Server)) (events *gateway.Events, returned chan struct{}) {
	w.Helper()
	o.Cluster = "c"
	events = gateway.NewEvents(o, w.node)
	handler := within(events)
	returned = make(chan struct{}, 100)
	web := httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		handler.ServeHTTP(rw, r)
		returned <- struct{}{}
	}))
	start(web)
	w.Cleanup(web.Close)
	w.web.URL = web.URL
	return events, returned
}

// itself returns the handler as it is.
func itself(h http.Handler) http.Handler { return h }

// returns waits until the handler has returned from a request.
func (w *world) returns(returned <-chan struct{}) {
	w.Helper()
	w.until("the request has returned", func() bool {
		select {
		case <-returned:
			return true
		default:
			return false
		}
	})
}

// send sends a request as it is written, and returns the connection and what comes.
func (w *world) send(request string) (net.Conn, *bufio.Reader) {
	w.Helper()
	address, secure := strings.CutPrefix(w.web.URL, "https://")
	conn, err := net.Dial("tcp", strings.TrimPrefix(address, "http://"))
	if err != nil {
		w.Fatal(err)
	}
	if secure {
		conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
	}
	w.Cleanup(func() { _ = conn.Close() })
	if _, err := io.WriteString(conn, request); err != nil {
		w.Fatal(err)
	}
	return conn, bufio.NewReader(conn)
}

// A stream holds nothing of its request: that returns as soon as the stream has begun, over TLS as
// well.
func TestRequestsOfEventStreamsReturn(t *testing.T) {
	for name, start := range map[string]func(*httptest.Server){"plain": (*httptest.Server).Start, "TLS": (*httptest.Server).StartTLS} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, options{})
			events, returned := w.crossing(gateway.EventsConfig{}, itself, start)
			conn, body := w.send("GET /v1/events HTTP/1.1\r\nHost: a\r\n\r\n")
			w.returns(returned)
			response, err := http.ReadResponse(body, nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := http.ParseTime(response.Header.Get("Date")); err != nil || !response.Close || len(response.TransferEncoding) != 1 {
				t.Errorf("%+v: %v", response, err)
			}
			r := sse.NewReader(response.Body)
			w.write(3, 0)
			for range 3 {
				event(t, r)
			}
			_ = conn.Close()
			w.until("the stream has ended", func() bool { n, _ := w.sessions(); return n == 0 })
			events.Wait(t.Context())
		})
	}
}

// What follows a request on its connection is not answered, and its client is seen to leave all the
// same.
func TestRequestsAfterAnEventStreamAreNotAnswered(t *testing.T) {
	w := newWorld(t, options{})
	events, _ := w.crossing(gateway.EventsConfig{Heartbeat: time.Hour}, itself, (*httptest.Server).Start)
	const request = "GET /v1/events HTTP/1.1\r\nHost: a\r\n\r\n"
	conn, body := w.send(request + request)
	response, err := http.ReadResponse(body, nil)
	if err != nil {
		t.Fatal(err)
	}
	r := sse.NewReader(response.Body)
	for range 3 {
		w.write(1, 0)
		event(t, r)
		if _, err := io.WriteString(conn, strings.Repeat(request, 10)); err != nil {
			t.Fatal(err)
		}
	}
	if n, _ := w.sessions(); n != 1 {
		t.Errorf("%d sessions", n)
	}
	_ = conn.Close()
	w.until("the stream has ended", func() bool { n, _ := w.sessions(); return n == 0 })
	events.Wait(t.Context())
}

// Requests for a stretch use one connection: they stay with the HTTP server.
func TestStretchesShareAConnection(t *testing.T) {
	w := newWorld(t, options{})
	_, returned := w.crossing(gateway.EventsConfig{}, itself, (*httptest.Server).Start)
	w.write(3, 0)
	w.source.Tick(10)
	conn, body := w.send("")
	for range 2 {
		request := "GET /v1/events?start=earliest&end=" + time.Unix(1000, 0).UTC().Format(time.RFC3339) + " HTTP/1.1\r\nHost: a\r\n\r\n"
		if _, err := io.WriteString(conn, request); err != nil {
			t.Fatal(err)
		}
		response, err := http.ReadResponse(body, nil)
		if err != nil {
			t.Fatal(err)
		}
		if text, err := io.ReadAll(response.Body); err != nil || !bytes.Contains(text, []byte("event: end")) {
			t.Errorf("%s: %v", text, err)
		}
		w.returns(returned)
	}
}

// A panicking listener has connections whose writes of events panic.
type panickingListener struct{ net.Listener }

func (l panickingListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	return panickingConn{conn}, err
}

type panickingConn struct{ net.Conn }

func (c panickingConn) Write(text []byte) (int, error) {
	if bytes.Contains(text, []byte("data:")) {
		panic("as a fault of ours would")
	}
	return c.Conn.Write(text)
}

// A panic ends its stream, which leaves nothing, and not the node.
func TestPanicEndsItsStreamOnly(t *testing.T) {
	w := newWorld(t, options{})
	reg := prometheus.NewRegistry()
	events, returned := w.crossing(gateway.EventsConfig{Registerer: reg}, itself, func(web *httptest.Server) {
		web.Listener = panickingListener{web.Listener}
		web.Start()
	})
	_, body := w.send("GET /v1/events HTTP/1.1\r\nHost: a\r\n\r\n")
	w.returns(returned)
	if _, err := http.ReadResponse(body, nil); err != nil {
		t.Fatal(err)
	}
	w.write(1, 0)
	w.untilEnded(reg, "sse", "failed")
	events.Wait(t.Context())
}

// A client of HTTP/1.0, which knows no chunks, gets its events from the HTTP server.
func TestEventStreamOverHTTP10(t *testing.T) {
	w := newWorld(t, options{})
	_, returned := w.crossing(gateway.EventsConfig{}, itself, (*httptest.Server).Start)
	conn, body := w.send("GET /v1/events HTTP/1.0\r\n\r\n")
	response, err := http.ReadResponse(body, nil)
	if err != nil || len(response.TransferEncoding) > 0 {
		t.Fatalf("%+v, %v", response, err)
	}
	w.write(1, 0)
	event(t, sse.NewReader(response.Body))
	_ = conn.Close()
	w.returns(returned)
}

// Whoever waits for the ends of streams waits until they have released everything.
func TestWaitLastsUntilDetachedStreamsHaveEnded(t *testing.T) {
	w := newWorld(t, options{})
	base, stop := context.WithCancelCause(t.Context())
	var events *gateway.Events
	var over atomic.Bool
	audit := func(string, string, string, string) func(string) {
		return func(string) { // the stream ends only once somebody waits for that
			look := time.NewTicker(time.Millisecond)
			defer look.Stop()
			for bound := time.Now().Add(patience); !events.IsClosed() && time.Now().Before(bound); {
				<-look.C
			}
			over.Store(true)
		}
	}
	events, returned := w.crossing(gateway.EventsConfig{Base: base, Audit: audit}, access.Everybody().Handler, (*httptest.Server).Start)
	r := w.get("", "")
	w.returns(returned)
	w.write(1, 0)
	event(t, r)
	stop(fault.Newf(fault.NodeStopping, "the node stops"))
	events.Wait(t.Context())
	if !over.Load() {
		t.Error("a stream has not ended")
	}
}

// A stream whose request has returned ends when the node stops, and its body is complete; those
// that begin meanwhile are refused.
func TestDetachedStreamsEndWithTheNode(t *testing.T) {
	w := newWorld(t, options{})
	base, stop := context.WithCancelCause(t.Context())
	events, returned := w.crossing(gateway.EventsConfig{Base: base}, itself, (*httptest.Server).Start)
	r := w.get("", "")
	w.returns(returned)
	w.write(1, 0)
	event(t, r)
	stop(fault.Newf(fault.NodeStopping, "the node stops"))
	events.Wait(t.Context())
	w.until("no session is left", func() bool { n, _ := w.sessions(); return n == 0 })
	if m, err := r.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("%+v, %v", m, err)
	}
	resp, err := w.web.Client().Get(w.web.URL + "/v1/events")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusServiceUnavailable {
		t.Error(resp.Status)
	}
}

// Whoever waits for the ends of streams waits for none that begins later.
func TestStreamsThatBeginAfterTheWaitEndWithTheirRequests(t *testing.T) {
	w := newWorld(t, options{})
	events, returned := w.crossing(gateway.EventsConfig{}, itself, (*httptest.Server).Start)
	events.Wait(t.Context())
	ctx, leave := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.web.URL+"/v1/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := w.web.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	w.write(1, 0)
	event(t, sse.NewReader(resp.Body))
	select {
	case <-returned:
		t.Error("the request has returned")
	default:
	}
	leave()
	_ = resp.Body.Close()
	w.returns(returned)
}

// A client whose request has returned is told when its identity is no longer accepted.
func TestDetachedStreamsEndWithTheirRights(t *testing.T) {
	w := newWorld(t, options{})
	list := newList(t, "token name=a namespace=*")
	server := list.config(gateway.Config{})
	_, returned := w.crossing(gateway.EventsConfig{Accounts: access.NewAccounts(access.Defaults{})}, server.Access.Handler, (*httptest.Server).Start)
	_, body := w.send("GET /v1/events HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer token\r\n\r\n")
	w.returns(returned)
	response, err := http.ReadResponse(body, nil)
	if err != nil {
		t.Fatal(err)
	}
	r := sse.NewReader(response.Body)
	list.write("other name=a namespace=*")
	for {
		m, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		if m.Event == "error" {
			if !bytes.Contains(m.Data, []byte(fault.AccessUnauthenticated)) {
				t.Errorf("%s", m.Data)
			}
			break
		}
	}
	if m, err := r.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("%+v, %v", m, err)
	}
}

// A client that takes nothing is disconnected, although its request has returned.
func TestDetachedStreamStalls(t *testing.T) {
	w := newWorld(t, options{})
	reg := prometheus.NewRegistry()
	events, returned := w.crossing(gateway.EventsConfig{StallTimeout: 300 * time.Millisecond, Registerer: reg}, itself, (*httptest.Server).Start)
	w.send("GET /v1/events HTTP/1.1\r\nHost: a\r\n\r\n")
	w.returns(returned)
	w.until("the client is disconnected", func() bool {
		w.write(10, 100_000)
		n, _ := w.sessions()
		return n == 0
	})
	w.untilEnded(reg, "sse", "stalled")
	events.Wait(t.Context())
}

// A client that closes its side of the connection, and still reads the other one, is told why its
// stream ends, in a complete body.
func TestClientThatClosesItsSideIsTold(t *testing.T) {
	for _, proto := range []string{"1.1", "1.0"} {
		t.Run(proto, func(t *testing.T) {
			w := newWorld(t, options{})
			_, returned := w.crossing(gateway.EventsConfig{}, itself, (*httptest.Server).Start)
			conn, body := w.send("GET /v1/events HTTP/" + proto + "\r\nHost: a\r\n\r\n")
			response, err := http.ReadResponse(body, nil)
			if err != nil {
				t.Fatal(err)
			}
			r := sse.NewReader(response.Body)
			w.write(1, 0)
			event(t, r)
			if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
				t.Fatal(err)
			}
			m, err := r.Next()
			for err == nil && m.Event != "error" {
				m, err = r.Next()
			}
			if err != nil || !bytes.Contains(m.Data, []byte(fault.SessionBadRequest)) || !bytes.Contains(m.Data, []byte("closed its side")) {
				t.Errorf("%s: %v", m.Data, err)
			}
			if m, err := r.Next(); !errors.Is(err, io.EOF) {
				t.Errorf("%+v, %v", m, err)
			}
			w.returns(returned)
			w.until("the stream has ended", func() bool { n, _ := w.sessions(); return n == 0 })
		})
	}
}
