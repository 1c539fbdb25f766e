package node

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	devmongo "github.com/mongostream/streamer/dev/mongo"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway/access/accesstest"
	"github.com/mongostream/streamer/gateway/streampb"
	"github.com/mongostream/streamer/internal/retry"
)

// The addresses of attackers and of honest clients.
const attacker, honest = "127.0.0.1", "127.0.0.2"

// from returns what dials from an address of this machine.
func from(address string) *net.Dialer {
	return &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
}

// hello opens a session over gRPC, with a token if there is one, and waits for its welcome. It
// comes again as clients do as long as the node says that MongoDB does not answer, as at the start
// of one on a machine that is short of breath, until its patience ends.
func (n *live) hello(conn grpc.ClientConnInterface, token string, change func(*streampb.Hello)) (streampb.Gateway_ConnectClient, error) {
	n.Helper()
	ctx, cancel := context.WithTimeout(n.Context(), patience)
	n.Cleanup(cancel)
	if token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
	}
	for {
		stream, err := greet(ctx, conn, change)
		if !strings.Contains(fmt.Sprint(err), string(fault.MongoUnreachable)) || !n.again(ctx, err) {
			return stream, err
		}
	}
}

// again waits before what has failed is tried again. It reports whether there is time for that.
func (n *live) again(ctx context.Context, failed any) bool {
	n.Logf("tried again after: %v", failed)
	return retry.Sleep(ctx, 100*time.Millisecond) == nil
}

func greet(ctx context.Context, conn grpc.ClientConnInterface, change func(*streampb.Hello)) (streampb.Gateway_ConnectClient, error) {
	stream, err := streampb.NewGatewayClient(conn).Connect(ctx)
	if err != nil {
		return nil, err
	}
	h := &streampb.Hello{Start: streampb.Start_START_NOW, Subscriptions: []*streampb.Subscription{{Id: "all"}}}
	if change != nil {
		change(h)
	}
	if err := stream.Send(&streampb.ConnectRequest{Message: &streampb.ConnectRequest_Hello{Hello: h}}); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	_, err = stream.Recv()
	return stream, err
}

// do sends a request, again as long as the node says that MongoDB does not answer.
func (n *live) do(client *http.Client, req *http.Request) *http.Response {
	n.Helper()
	ctx, cancel := context.WithTimeout(req.Context(), patience)
	defer cancel()
	for {
		resp, err := client.Do(req)
		if err != nil {
			n.Fatal(err)
		}
		if resp.StatusCode != http.StatusServiceUnavailable {
			return resp
		}
		text, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil {
			n.Fatal(err)
		}
		if !bytes.Contains(text, []byte(fault.MongoUnreachable)) || !n.again(ctx, string(text)) {
			resp.Body = io.NopCloser(bytes.NewReader(text))
			return resp
		}
	}
}

// conn makes a connection to the node's gateway.
func (n *live) conn(options ...grpc.DialOption) *grpc.ClientConn {
	n.Helper()
	conn, err := grpc.NewClient(n.service.Gateway(), append([]grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}, options...)...)
	if err != nil {
		n.Fatal(err)
	}
	n.Cleanup(func() { _ = conn.Close() })
	return conn
}

// reason returns the code of ours in the error of a call.
func reason(err error) string {
	for _, d := range status.Convert(err).Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok {
			return info.GetReason()
		}
	}
	return ""
}

// request asks the node over HTTP. header holds names and values in turn.
func (n *live) request(client *http.Client, url string, header ...string) *http.Response {
	n.Helper()
	req, err := http.NewRequestWithContext(n.Context(), http.MethodGet, url, nil)
	if err != nil {
		n.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp := n.do(client, req)
	n.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

// answer returns the status and the text of an answer that ends.
func (n *live) answer(client *http.Client, url string, header ...string) (*http.Response, string) {
	n.Helper()
	resp := n.request(client, url, header...)
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		n.Fatal(err)
	}
	return resp, string(text)
}

// Sessions over gRPC, event streams and streams of notices count together for an identity; others
// are not affected, and nothing is left of attempts that fail.
func TestIdentityKeepsWithinItsQuotas(t *testing.T) {
	t.Parallel()
	list := filepath.Join(t.TempDir(), "identities")
	enlist(t, list, "greedy name=greedy namespace=* max_sessions=3 max_notices=1 starts_per_second=100000", "other name=other namespace=*",
		"quick name=quick namespace=* max_sessions=2 starts_per_second=1", "wired name=wired namespace=* max_connections=1")
	n := newRig(t, devmongo.Config{}, "STREAMER_ACCESS_IDENTITIES_FILE="+list, "STREAMER_GATEWAY_MAX_SESSIONS=8", "STREAMER_HTTP_MAX_CLIENTS=2").begin()
	n.status()
	web := &http.Client{Transport: &http.Transport{}}
	defer web.CloseIdleConnections()
	url, conn, bearer := "http://"+n.service.Addr(), n.conn(), "Bearer greedy"

	// Attempts that fail on their way take nothing with them.
	for i := range 100 {
		_, err := n.hello(conn, "greedy", func(h *streampb.Hello) { h.Start = 77 })
		if status.Code(err) != codes.InvalidArgument {
			t.Fatalf("bad hello %d: %v", i, err)
		}
		_, err = n.hello(conn, "greedy", func(h *streampb.Hello) { h.Start = streampb.Start_START_RESUME })
		if status.Code(err) != codes.NotFound {
			t.Fatalf("nothing to resume %d: %v", i, err)
		}
		for _, query := range []string{"?filter=key._id+%3D%3D", "?start=2100-01-01T00:00:00Z", "?database=x"} {
			if resp, _ := n.answer(web, url+"/v1/events"+query, "Authorization", bearer); resp.StatusCode < 400 || resp.StatusCode == http.StatusTooManyRequests {
				t.Fatalf("%s %d: %s", query, i, resp.Status)
			}
		}
	}

	var sessions []streampb.Gateway_ConnectClient
	for range 2 {
		s, err := n.hello(conn, "greedy", nil)
		if err != nil {
			t.Fatal(err)
		}
		sessions = append(sessions, s)
	}
	events := n.request(web, url+"/v1/events", "Authorization", bearer)
	notices := n.request(web, url+"/v1/notices", "Authorization", bearer)
	if events.StatusCode != http.StatusOK || notices.StatusCode != http.StatusOK {
		t.Fatalf("%s %s", events.Status, notices.Status)
	}
	for range 20 {
		if _, err := n.hello(conn, "greedy", nil); status.Code(err) != codes.ResourceExhausted || reason(err) != string(fault.AccessLimit) {
			t.Fatalf("a session above: %v", err)
		}
		for _, path := range []string{"/v1/events", "/v1/notices"} {
			resp, text := n.answer(web, url+path, "Authorization", bearer)
			if resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("Retry-After") == "" || !strings.Contains(text, string(fault.AccessLimit)) {
				t.Fatalf("%s above: %s %s", path, resp.Status, text)
			}
			// A browser would give up on any other status: it is told when to come back.
			resp, text = n.answer(web, url+path, "Authorization", bearer, "Accept", "text/event-stream")
			if resp.StatusCode != http.StatusOK || !strings.HasPrefix(text, "retry: ") || !strings.Contains(text, string(fault.AccessLimit)) || !strings.HasSuffix(text, "\n\n") {
				t.Fatalf("%s above, for a browser: %s %q", path, resp.Status, text)
			}
		}
	}
	// By default an identity has half of the node.
	for range 4 {
		if _, err := n.hello(conn, "other", nil); err != nil {
			t.Fatalf("another identity: %v", err)
		}
	}
	if _, err := n.hello(conn, "other", nil); reason(err) != string(fault.AccessLimit) {
		t.Errorf("above its share: %v", err)
	}
	for i, want := range []int{http.StatusOK, http.StatusTooManyRequests} {
		if resp := n.request(web, url+"/v1/events", "Authorization", "Bearer other"); resp.StatusCode != want {
			t.Errorf("event stream %d of another: %s", i, resp.Status)
		}
	}
	// What an identity has open ends with its connection, and so does its claim to it.
	wire := n.conn()
	if _, err := n.hello(wire, "wired", nil); err != nil {
		t.Fatal(err)
	}
	if resp, _ := n.answer(web, url+"/v1/gaps", "Authorization", "Bearer wired"); resp.StatusCode != http.StatusTooManyRequests {
		t.Errorf("a second connection: %s", resp.Status)
	}
	_ = wire.Close()
	n.until("the connection is given back", func() bool {
		resp, _ := n.answer(web, url+"/v1/gaps", "Authorization", "Bearer wired")
		return resp.StatusCode == http.StatusOK
	})
	// What ends is given back.
	if err := sessions[0].CloseSend(); err != nil {
		t.Fatal(err)
	}
	_ = events.Body.Close()
	for range 2 {
		n.until("there is room again", func() bool { _, err := n.hello(conn, "greedy", nil); return err == nil })
	}
	// Starts have a rate, whatever becomes of them.
	refused := 0
	for range 10 {
		if resp, _ := n.answer(web, url+"/v1/gaps", "Authorization", "Bearer quick"); resp.StatusCode == http.StatusTooManyRequests {
			refused++
		}
	}
	if refused == 0 {
		t.Error("ten requests in a moment, where one a second is allowed")
	}
	if n.metric("streamer_sessions_ended_total") < 400 {
		t.Error("ends are not counted")
	}
}

// A gateway that takes nothing of what it is sent loses its session although it sends heartbeats,
// and then its connection.
func TestStalledGatewayLosesItsConnection(t *testing.T) {
	t.Parallel()
	n := newRig(t, devmongo.Config{}, "STREAMER_GRPC_STALL_TIMEOUT=1s").begin()
	n.status()
	closed := make(chan struct{})
	conn := n.conn(grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		if err != nil {
			return nil, err
		}
		return &noticed{Conn: conn, ended: sync.OnceFunc(func() { close(closed) })}, nil
	}))
	s, err := n.hello(conn, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	pad := strings.Repeat("x", 100_000)
	for i := range 20 {
		n.insertPadded(i, pad)
	}
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	beat := time.NewTicker(50 * time.Millisecond)
	defer beat.Stop()
	for over := false; !over; {
		select {
		case <-beat.C:
			_ = s.Send(&streampb.ConnectRequest{Message: &streampb.ConnectRequest_Heartbeat{Heartbeat: &streampb.Heartbeat{}}})
		case <-closed:
			over = true
		case <-timeout.C:
			t.Fatal("its connection is still open")
		}
	}
}

// insertPadded inserts a document of a size.
func (r *rig) insertPadded(id int, pad string) {
	r.Helper()
	if _, err := r.coll("orders").InsertOne(r.Context(), map[string]any{"_id": id, "pad": pad}); err != nil {
		r.Fatal(err)
	}
}

// A noticed connection tells when its peer has ended it.
type noticed struct {
	net.Conn

	ended func()
}

func (c *noticed) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err != nil {
		c.ended()
	}
	return n, err
}

// A siege is a node that speaks TLS, and a listener of its own for probes.
type siege struct {
	*live

	ca *accesstest.Authority

	mu    sync.Mutex
	conns []net.Conn // the attacker's
}

// served is how long an honest client waits under attack, which is less than it takes until
// attackers' connections are found to be idle.
const served = 30 * time.Second

// besiege starts a node with room for few clients.
func besiege(t *testing.T) *siege {
	t.Helper()
	ca := accesstest.NewAuthority(t)
	cert, key := ca.Files(t)
	list := filepath.Join(t.TempDir(), "identities")
	enlist(t, list, "good name=shipping namespace=*")
	n := newRig(t, devmongo.Config{}, "STREAMER_HTTP_TLS_CERT_FILE="+cert, "STREAMER_HTTP_TLS_KEY_FILE="+key,
		"STREAMER_GRPC_TLS_CERT_FILE="+cert, "STREAMER_GRPC_TLS_KEY_FILE="+key, "STREAMER_ACCESS_IDENTITIES_FILE="+list,
		"STREAMER_HTTP_PROBES_LISTEN=127.0.0.1:0", "STREAMER_HTTP_MAX_CLIENTS=20", "STREAMER_GATEWAY_MAX_SESSIONS=20").begin()
	n.status()
	s := &siege{live: n, ca: ca}
	t.Cleanup(s.end)
	for _, path := range []string{"/readyz", "/health"} { // which takes a while after the partitions are there
		s.until(path+" is answered", func() bool { code, _ := s.probe(path); return code == http.StatusOK })
	}
	return s
}

// probe asks the listener for probes.
func (s *siege) probe(path string) (code int, text string) {
	s.Helper()
	probes := &http.Client{Timeout: served, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, text := s.answer(probes, "http://"+s.service.Probes()+path)
	return resp.StatusCode, text
}

// end ends an attack.
func (s *siege) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, conn := range s.conns {
		_ = conn.Close()
	}
	s.conns = nil
}

// dial opens a connection of the attacker, and sends something. The node may close it at any time.
func (s *siege) dial(address string, said []byte) {
	if conn := s.connect(address); conn != nil {
		_, _ = conn.Write(said)
	}
}

// connect opens a connection of the attacker. It returns nil if the node has closed it.
func (s *siege) connect(address string) net.Conn {
	conn, err := from(attacker).DialContext(s.Context(), "tcp", address)
	if err != nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns = append(s.conns, conn)
	return conn
}

// secure opens a connection of TLS of the attacker and says something. It returns nil if the node
// has closed it.
func (s *siege) secure(address, said string, protocols ...string) *tls.Conn {
	raw := s.connect(address)
	if raw == nil {
		return nil
	}
	_ = raw.SetDeadline(time.Now().Add(5 * time.Second)) // it does not wait for a node that is full
	defer func() { _ = raw.SetDeadline(time.Time{}) }()
	cfg := s.ca.Client(s.T, "")
	cfg.NextProtos = protocols
	conn := tls.Client(raw, cfg)
	if _, err := io.WriteString(conn, said); err != nil {
		return nil
	}
	return conn
}

// http2 opens a connection of HTTP/2 of the attacker, as soon as there is room after another
// attack.
func (s *siege) http2(address string) *http2.Framer {
	s.Helper()
	var conn *tls.Conn
	s.until("the attacker has a connection", func() bool {
		conn = s.secure(address, http2.ClientPreface, "h2")
		return conn != nil
	})
	s.drain(conn)
	framer := http2.NewFramer(conn, conn)
	if err := framer.WriteSettings(); err != nil {
		s.Fatal(err)
	}
	return framer
}

// drain reads what comes until the connection ends.
func (s *siege) drain(conn net.Conn) {
	var reading sync.WaitGroup
	reading.Go(func() { _, _ = io.Copy(io.Discard, conn) })
	s.Cleanup(func() { _ = conn.Close(); reading.Wait() })
}

// holds fails the test unless honest clients of both transports are served, and probes and metrics
// answered.
func (s *siege) holds() {
	s.Helper()
	for _, path := range []string{"/livez", "/readyz", "/health", "/metrics"} {
		if code, text := s.probe(path); code != http.StatusOK {
			s.Errorf("%s: %d %s", path, code, text)
		}
	}
	_, port, _ := strings.Cut(s.service.Addr(), ":")
	dialer := from(honest)
	web := &http.Client{Timeout: served, Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: s.ca.Client(s.T, ""),
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "tcp", "127.0.0.1:"+port)
		}}}
	if resp, _ := s.answer(web, "https://localhost:"+port+"/v1/gaps", "Authorization", "Bearer good"); resp.StatusCode != http.StatusOK {
		s.Errorf("an honest request: %s", resp.Status)
	}
	if resp, _ := s.answer(web, "https://localhost:"+port+"/livez"); resp.StatusCode != http.StatusNotFound {
		s.Errorf("probes are where clients are: %s", resp.Status)
	}
	conn := s.conn(grpc.WithTransportCredentials(credentials.NewTLS(s.ca.Client(s.T, ""))), grpc.WithContextDialer(
		func(ctx context.Context, address string) (net.Conn, error) {
			return dialer.DialContext(ctx, "tcp", address)
		}))
	session, err := s.hello(conn, "good", nil)
	if err != nil {
		s.Fatalf("an honest session: %v", err)
	}
	_ = session.CloseSend()
	_ = conn.Close()
}

// Whoever has not shown who it is can hold up nobody: neither with connections and handshakes, nor
// with headers and streams. A node has room for 240 connections here.
func TestNodeIsServingUnderAttack(t *testing.T) {
	t.Parallel()
	s := besiege(t)
	for name, attack := range map[string]func(address string){
		"connections that say nothing": func(address string) {
			for range 4000 {
				s.dial(address, nil)
			}
		},
		"connections without a call": func(address string) { // which are closed after two minutes
			var attackers sync.WaitGroup
			for range 300 {
				attackers.Go(func() {
					if conn := s.secure(address, http2.ClientPreface, "h2"); conn != nil {
						_ = http2.NewFramer(conn, conn).WriteSettings()
					}
				})
			}
			attackers.Wait()
		},
		"unfinished handshakes": func(address string) {
			var hello bytes.Buffer // the first message of a handshake, of which the server waits for the next
			_ = tls.Client(recorder{&hello}, s.ca.Client(t, "")).HandshakeContext(t.Context())
			for i := range 1000 {
				s.dial(address, hello.Bytes()[:hello.Len()/(1+i%2)])
			}
		},
		"slow headers": func(address string) {
			for range 50 {
				s.secure(address, "GET /v1/events HTTP/1.1\r\nHost: x\r\nX-Slow: ")
			}
		},
		"rapid resets": func(address string) {
			for range 4 {
				framer := s.http2(address)
				for id := uint32(1); id < 4000; id += 2 {
					if framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: s.headers(), EndHeaders: true}) != nil ||
						framer.WriteRSTStream(id, http2.ErrCodeCancel) != nil {
						break // it has been closed
					}
				}
			}
		},
		"headers without end": func(address string) {
			for range 4 {
				framer, more := s.http2(address), bytes.Repeat([]byte("x"), 16<<10)
				err := framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: s.headers()})
				for range 1000 {
					if err = errors.Join(err, framer.WriteContinuation(1, false, more)); err != nil {
						break // it has been closed
					}
				}
			}
		},
		"frames that ask for answers": func(address string) {
			for range 4 {
				framer := s.http2(address)
				for id := uint32(1); id < 4000; id += 2 {
					if errors.Join(framer.WriteSettings(), framer.WritePing(false, [8]byte{}), framer.WriteWindowUpdate(0, 1),
						framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: s.headers(), EndHeaders: true}), framer.WriteData(id, false, nil),
						framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: s.headers(), EndHeaders: true, EndStream: true})) != nil { // as trailers
						break
					}
				}
			}
		},
		"many streams": func(address string) {
			for range 4 {
				framer := s.http2(address)
				for id := uint32(1); id < 4000; id += 2 {
					if framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: s.headers(), EndHeaders: true}) != nil {
						break
					}
				}
			}
		},
	} {
		for _, address := range []string{s.service.Addr(), s.service.Gateway()} {
			t.Log(name, address)
			attack(address)
			s.holds()
			s.end()
		}
	}
	if s.metric("streamer_connections_refused_total") == 0 {
		t.Error("no connection was refused")
	}
}

// headers returns those of a request, compressed.
func (s *siege) headers() []byte {
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for _, field := range [][2]string{
		{":method", "POST"}, {":scheme", "https"}, {":path", streampb.Gateway_Connect_FullMethodName}, {":authority", "x"}, {"content-type", "application/grpc"},
		{"te", "trailers"},
	} {
		if err := encoder.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]}); err != nil {
			s.Fatal(err)
		}
	}
	return block.Bytes()
}

// A recorder is a connection that keeps what is written to it, and from which nothing comes.
type recorder struct{ *bytes.Buffer }

func (recorder) Read([]byte) (int, error)         { return 0, io.EOF }
func (recorder) Close() error                     { return nil }
func (recorder) LocalAddr() net.Addr              { return nil }
func (recorder) RemoteAddr() net.Addr             { return nil }
func (recorder) SetDeadline(time.Time) error      { return nil }
func (recorder) SetReadDeadline(time.Time) error  { return nil }
func (recorder) SetWriteDeadline(time.Time) error { return nil }
