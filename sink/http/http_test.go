package http

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/sink"
)

// A name may resolve to an internal address: the one that is dialled is judged.
func TestInternalAddressesAreRefused(t *testing.T) {
	allow := []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("fd00:1::/32")}
	for address, want := range map[string]bool{
		"93.184.216.34:443": true, "[2606:2800:220:1::1]:443": true, "10.1.2.3:80": true, "[fd00:1::5]:80": true, "[::ffff:10.1.2.3]:80": true,
		"10.2.0.1:80": false, "127.0.0.1:80": false, "[::1]:80": false, "169.254.169.254:80": false, "192.168.0.1:80": false, "172.16.5.5:80": false,
		"100.64.0.1:80": false, "0.0.0.0:80": false, "224.0.0.1:80": false, "[fe80::1%eth0]:80": false, "[fd12::1]:80": false, "[::ffff:127.0.0.1]:80": false,
		"[::ffff:169.254.169.254]:80": false, "[64:ff9b::7f00:1]:80": false, "[2002:7f00:1::]:80": false, "255.255.255.255:80": false,
	} {
		if err := permit(address, allow); (err == nil) != want {
			t.Errorf("%s: %v", address, err)
		}
	}
}

// A request whose term ends while the client waits for a connection is not made.
func TestRequestIsNotMadeAfterItsTerm(t *testing.T) {
	t.Parallel()
	var bodies atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if body, err := io.ReadAll(r.Body); err == nil && len(body) > 0 {
			bodies.Add(1)
		}
	}))
	t.Cleanup(s.Close)
	target := New(Config{URL: s.URL, Secret: "0123456789abcdef", Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	t.Cleanup(target.Close)
	var looks atomic.Int64
	m := &sink.Message{ID: "1", Op: "insert", Value: []byte("{}")}
	sink.Own(m, func() bool { return looks.Add(1) <= 2 }) // when it is taken from its queue, and before the request
	outcome := make(chan error, 1)
	sink.Report(m, func(err error) { outcome <- err })
	target.Publish(t.Context(), m)
	if err := <-outcome; !errors.Is(err, sink.ErrReplaced) || bodies.Load() > 0 {
		t.Errorf("%v, %d requests", err, bodies.Load())
	}
}

// A refusal names the endpoint, what was refused, and the remedy, and nothing of the path, which
// often is a secret.
func TestRefusalNamesTheEndpointAndTheRemedy(t *testing.T) {
	t.Parallel()
	for code, want := range map[int]string{
		http.StatusRequestEntityTooLarge: "a change of 3 bytes is too large for HOST: raise its limit of requests, or let the sink have a dead_letter: the endpoint answered 413",
		http.StatusBadRequest:            "HOST refuses a change of shop.orders: correct the endpoint, or let the sink have a dead_letter: the endpoint answered 400",
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }))
		t.Cleanup(s.Close)
		target := New(Config{URL: s.URL + "/secret-path", Secret: "0123456789abcdef", Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
		t.Cleanup(target.Close)
		err := sink.One(t.Context(), target, &sink.Message{ID: "1", Op: "insert", DB: "shop", Coll: "orders", Value: []byte("{}")})
		refused, is := errors.AsType[*sink.RefusedError](err)
		if want := strings.ReplaceAll(want, "HOST", s.Listener.Addr().String()); !is || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret-path") {
			t.Errorf("%d: %v, want %q", code, err, want)
		}
		if is && refused.Final != (code == http.StatusRequestEntityTooLarge) {
			t.Errorf("%d: final is %t", code, refused.Final)
		}
	}
}

// An answer that is not about the change, such as that to a secret that is no longer valid, refuses
// no change: a sink with dead letters would put everything there.
func TestOnlyAnswersAboutAChangeRefuseIt(t *testing.T) {
	t.Parallel()
	about := []int{http.StatusBadRequest, http.StatusConflict, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity}
	var code atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(int(code.Load())) }))
	t.Cleanup(s.Close)
	target := New(Config{URL: s.URL + "/secret-path", Secret: "0123456789abcdef", Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	t.Cleanup(target.Close)
	for status := 300; status < 600; status++ {
		code.Store(int64(status))
		m := &sink.Message{ID: "1", Op: "insert", DB: "shop", Coll: "orders", Value: []byte("{}")}
		m.Partition = change.Partition(status) // where no earlier message has failed
		err := sink.One(t.Context(), target, m)
		_, refused := errors.AsType[*sink.RefusedError](err)
		if err == nil || refused != slices.Contains(about, status) || strings.Contains(err.Error(), "secret-path") {
			t.Errorf("%d: %v", status, err)
		}
		if remedied := strings.Contains(err.Error(), "correct http.url, http.secret"); status == http.StatusUnauthorized && !remedied {
			t.Errorf("%d has no remedy: %v", status, err)
		}
	}
}

// A request that has not left the machine when it has failed never arrives: it would follow its
// repetition, and newer changes.
func TestUnsentRequestNeverArrives(t *testing.T) {
	t.Parallel()
	certified := httptest.NewUnstartedServer(nil)
	certified.EnableHTTP2 = true
	certified.StartTLS()
	t.Cleanup(certified.Close)
	for scheme, config := range map[string]*tls.Config{"http": nil, "https": certified.TLS} {
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = l.Close() })
			begun := make(chan net.Conn, 100)
			go takeBeginnings(l, config, begun)
			target := New(Config{
				URL: scheme + "://" + l.Addr().String(), Secret: "0123456789abcdef", Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
				Timeout: time.Second, TLS: &tls.Config{InsecureSkipVerify: true},
			})
			t.Cleanup(target.Close)
			var far net.Conn
			for m := (&sink.Message{ID: "1", Op: "insert", Value: make([]byte, 512<<10)}); far == nil; {
				if err := sink.One(t.Context(), target, m); err == nil {
					t.Fatal("a request without an answer counts as acknowledged")
				}
				select {
				case far = <-begun:
				default: // the machine was too slow for the timeout
				}
			}
			t.Cleanup(func() { _ = far.Close() })
			_ = far.SetReadDeadline(time.Now().Add(30 * time.Second)) // the connection is closed already
			if arrived, err := io.Copy(io.Discard, far); arrived >= 512<<10 || !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("%d bytes have arrived, %v", arrived, err)
			}
		})
	}
}

// takeBeginnings accepts connections, and passes those on of whose first request it has read a
// byte.
func takeBeginnings(l net.Listener, config *tls.Config, begun chan<- net.Conn) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		_ = conn.(*net.TCPConn).SetReadBuffer(64 << 10)
		if config != nil {
			conn = tls.Server(conn, config)
		}
		go func() {
			if _, err := io.ReadFull(conn, make([]byte, 1)); err == nil {
				begun <- conn
			}
		}()
	}
}

// An early endpoint answers before it reads the body.
type early struct{ body io.Reader }

func (e *early) RoundTrip(r *http.Request) (*http.Response, error) {
	e.body = r.Body
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
}

// The client may read the body of a request that is over, if the endpoint has answered before it
// has read everything. By then the messages are used for other changes.
func TestBodyEndsWithItsRequest(t *testing.T) {
	t.Parallel()
	var endpoint early
	to := &Target{cfg: Config{URL: "http://127.0.0.1/"}, client: &http.Client{Transport: &endpoint}}
	if err := to.post(t.Context(), []*sink.Message{{Value: []byte("{}")}}); err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(endpoint.body); len(text) > 0 || err == nil {
		t.Errorf("after the request: %q, %v", text, err)
	}
}
