package listen_test

import (
	"bufio"
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway/access"
	"github.com/mongostream/streamer/gateway/access/accesstest"
	"github.com/mongostream/streamer/internal/config"
	"github.com/mongostream/streamer/internal/leaktest"
	"github.com/mongostream/streamer/internal/listen"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// load reads a configuration of the settings.
func load(t *testing.T, settings ...string) config.Config {
	t.Helper()
	cfg, err := config.Load("", append(settings, "STREAMER_HTTP_LISTEN=127.0.0.1:0", "STREAMER_GRPC_LISTEN=127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func write(t *testing.T, name, text string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// serve serves a handler through listeners, and returns its address.
func serve(t *testing.T, cfg config.Config, handler http.Handler) string {
	t.Helper()
	l, err := listen.New(cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := l.ListenHTTP(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	server := l.Server(t.Context(), l.Protect(handler), nil)
	served := make(chan error, 1)
	go func() { served <- l.Serve(server, listener) }()
	t.Cleanup(func() {
		_ = server.Close()
		if err := <-served; err != http.ErrServerClosed { //nolint:errorlint // it is returned as it is
			t.Error(err)
		}
	})
	return listener.Addr().String()
}

func TestPlaintextForOtherMachinesMustBeAskedFor(t *testing.T) {
	ca := accesstest.NewAuthority(t)
	cert, key := ca.Files(t)
	for _, tt := range []struct {
		name     string
		settings []string
		want     fault.Code
	}{
		{"plaintext", []string{"LISTEN=:0"}, fault.AccessPlaintext},
		{"asked for", []string{"LISTEN=:0", "INSECURE=true"}, ""},
		{"TLS", []string{"LISTEN=:0", "TLS_CERT_FILE=" + cert, "TLS_KEY_FILE=" + key}, ""},
		{"loopback", []string{"LISTEN=127.0.0.1:0"}, ""},
	} {
		for _, server := range []string{"HTTP", "GRPC"} {
			settings := []string{}
			for _, s := range tt.settings {
				settings = append(settings, "STREAMER_"+server+"_"+s)
			}
			cfg, err := config.Load("", settings)
			if err != nil {
				t.Fatal(err)
			}
			l, err := listen.New(cfg, nil)
			if err != nil {
				t.Fatal(err)
			}
			listen := l.ListenHTTP
			if server == "GRPC" {
				listen = l.ListenGRPC
			}
			listener, err := listen(t.Context())
			if err == nil {
				_ = listener.Close()
			}
			if fault.Of(err) != tt.want || err != nil && !strings.Contains(err.Error(), strings.ToLower(server)+".listen") {
				t.Errorf("%s %s: %v", server, tt.name, err)
			}
		}
	}
}

func TestProbesAreInPlaintextOnThisMachine(t *testing.T) {
	for want, setting := range map[fault.Code][]string{fault.AccessPlaintext: nil, "": {"STREAMER_HTTP_INSECURE=true"}} {
		l, err := listen.New(load(t, append(setting, "STREAMER_HTTP_PROBES_LISTEN=:0")...), nil)
		if err != nil {
			t.Fatal(err)
		}
		listener, err := l.ListenProbes(t.Context())
		if err == nil {
			_ = listener.Close()
		}
		if fault.Of(err) != want || err != nil && !strings.Contains(err.Error(), "http.probes_listen") {
			t.Errorf("%q: %v", setting, err)
		}
	}
}

// A token from another machine in plaintext is refused although it is good, and the refusal says
// that it must be replaced.
func TestTokenInPlaintextFromElsewhereIsRefused(t *testing.T) {
	l, err := listen.New(load(t, "STREAMER_ACCESS_IDENTITIES_FILE="+write(t, "i", "token "+access.Hash("good")+" name=a namespace=*\n")), nil)
	if err != nil {
		t.Fatal(err)
	}
	for address, want := range map[string]fault.Code{"127.0.0.1:9": "", "[::1]:9": "", "192.0.2.1:9": fault.AccessTokenExposed, "": fault.AccessTokenExposed} {
		_, err := l.Access.Authenticate(access.Peer{Address: address, Authorization: []string{"Bearer good"}})
		if fault.Of(err) != want {
			t.Errorf("from %q: %v", address, err)
		}
	}
	if _, err := l.Access.Authenticate(access.Peer{Address: "192.0.2.1:9", TLS: &tls.ConnectionState{}, Authorization: []string{"Bearer good"}}); err != nil {
		t.Error(err)
	}
}

// Clients that send slowly, take nothing or send what nobody asked for hold nothing for long.
func TestHostileClientsAreLetGo(t *testing.T) {
	cfg := load(t, "STREAMER_HTTP_STALL_TIMEOUT=500ms")
	ended := make(chan struct{}, 1)
	address := serve(t, cfg, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/much" {
			for err := error(nil); err == nil; {
				_, err = w.Write(make([]byte, 1<<20))
			}
			ended <- struct{}{}
		}
	}))
	for name, said := range map[string]string{
		"half a header":     "GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: ",
		"nothing":           "",
		"a body that drips": "GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nx",
		"an endless body":   "POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			if _, err := io.WriteString(conn, said); err != nil {
				t.Fatal(err)
			}
			_ = conn.SetReadDeadline(time.Now().Add(30 * time.Second))
			if _, err := io.Copy(io.Discard, conn); err != nil && strings.Contains(err.Error(), "timeout") {
				t.Errorf("still open: %v", err)
			}
		})
	}
	t.Run("taking nothing", func(t *testing.T) {
		t.Parallel()
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		if _, err := io.WriteString(conn, "GET /much HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		<-ended
	})
	t.Run("headers without end", func(t *testing.T) {
		t.Parallel()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Large", strings.Repeat("x", 64<<10))
		resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		if resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("%s", resp.Status)
		}
	})
}

// However the length of a body is said, what comes after it on the connection is no request: one
// that a proxy has passed on as a body cannot become one. What has a body is refused, once.
func TestBodiesBecomeNoRequests(t *testing.T) {
	var mu sync.Mutex
	var served []string
	address := serve(t, load(t), http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		served = append(served, r.URL.Path)
	}))
	const second = "GET /second HTTP/1.1\r\nHost: localhost\r\n\r\n"
	length := fmt.Sprintf("Content-Length: %d\r\n", len(second))
	chunk := fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(second), second)
	for name, said := range map[string]struct{ method, header, body string }{
		"a length":                      {"GET", length, second},
		"a length twice":                {"GET", length + length, second},
		"two lengths":                   {"POST", length + "Content-Length: 0\r\n", second},
		"a list of lengths":             {"POST", "Content-Length: 0, 5\r\n", second},
		"a length with a sign":          {"POST", "Content-Length: +0\r\n", second},
		"a length that is no number":    {"POST", "Content-Length: 0x0\r\n", second},
		"a length and a space":          {"POST", "Content-Length : 0\r\n", second},
		"chunks":                        {"GET", "Transfer-Encoding: chunked\r\n", chunk},
		"chunks, none":                  {"POST", "Transfer-Encoding: chunked\r\n", "0\r\n\r\n" + second},
		"chunks and a length":           {"POST", "Transfer-Encoding: chunked\r\nContent-Length: 0\r\n", chunk},
		"a length and chunks":           {"POST", length + "Transfer-Encoding: chunked\r\n", "0\r\n\r\n" + second},
		"chunks twice":                  {"POST", "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", chunk},
		"chunks within identity":        {"POST", "Transfer-Encoding: identity, chunked\r\n", chunk},
		"identity":                      {"POST", "Transfer-Encoding: identity\r\n", second},
		"another encoding":              {"POST", "Transfer-Encoding: xchunked\r\n", second},
		"chunks and a space":            {"POST", "Transfer-Encoding : chunked\r\n", chunk},
		"chunks in a folded header":     {"POST", "Transfer-Encoding:\r\n chunked\r\n", chunk},
		"chunks after a vertical tab":   {"POST", "Transfer-Encoding: \x0bchunked\r\n", chunk},
		"chunks and trailers":           {"GET", "Transfer-Encoding: chunked\r\nTrailer: X\r\n", "0\r\nX: y\r\n\r\n" + second},
		"chunks with an extension":      {"GET", "Transfer-Encoding: chunked\r\n", "0;x=\n" + second},
		"a promise":                     {"POST", length + "Expect: 100-continue\r\n", second},
		"an upgrade":                    {"GET", length + "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n", second},
		"a line that ends in a line":    {"GET", "X: y\rContent-Length: 0\r\n", second},
		"a name with a character of 0":  {"GET", "X\x00: y\r\n", second},
		"a value with a character of 0": {"GET", "X: \x00\r\n", second},
	} {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, said.method+" /first HTTP/1.1\r\nHost: localhost\r\n"+said.header+"\r\n"+said.body); err != nil {
			t.Fatal(err)
		}
		_ = conn.SetReadDeadline(time.Now().Add(30 * time.Second))
		text, err := io.ReadAll(conn) // it is closed
		if err != nil && !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%s: %v", name, err)
		}
		_ = conn.Close()
		if n := strings.Count(string(text), "HTTP/1."); n > 1 && !strings.HasPrefix(string(text), "HTTP/1.1 100") || strings.Contains(string(text), " 200 OK") {
			t.Errorf("%s: %d answers: %s", name, n, text)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if len(served) > 0 {
		t.Errorf("served: %q", served)
	}
}

// A timed response has a write deadline, and tells it when it is written.
type timed struct {
	*httptest.ResponseRecorder

	deadline time.Time
	written  func(deadline time.Time)
}

func (d *timed) SetWriteDeadline(t time.Time) error {
	d.deadline = t
	return nil
}

func (d *timed) WriteHeader(status int) {
	d.written(d.deadline)
	d.ResponseRecorder.WriteHeader(status)
}

func (d *timed) Write(b []byte) (int, error) {
	d.written(d.deadline)
	return d.ResponseRecorder.Write(b)
}

func (d *timed) Flush() { d.written(d.deadline) }

// A client has the whole stall timeout to read a response, however long that took to prepare and
// whatever its handler does first, unless the handler sets a deadline of its own.
func TestSlowAnswersArrive(t *testing.T) {
	const stall = time.Hour
	l, err := listen.New(load(t, "STREAMER_HTTP_STALL_TIMEOUT=1h"), nil)
	if err != nil {
		t.Fatal(err)
	}
	own := time.Now().Add(2 * time.Hour)
	for name, test := range map[string]struct {
		answer func(http.ResponseWriter)
		writes int
		most   time.Duration
	}{
		"a status":    {func(w http.ResponseWriter) { w.WriteHeader(http.StatusNoContent) }, 1, stall},
		"a body":      {func(w http.ResponseWriter) { _, _ = io.WriteString(w, "x") }, 1, stall},
		"both, twice": {func(w http.ResponseWriter) { w.WriteHeader(http.StatusOK); _, _ = io.WriteString(w, "x") }, 2, stall},
		"a flush":     {func(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush() }, 1, stall},
		"nothing":     {func(http.ResponseWriter) {}, 0, stall},
		"a refusal":   {func(w http.ResponseWriter) { access.Refuse(w, http.StatusBadRequest, errors.New("no")) }, 2, stall},
		"a deadline": {func(w http.ResponseWriter) {
			_ = http.NewResponseController(w).SetWriteDeadline(own)
			_, _ = io.WriteString(w, "x")
		}, 1, 2 * time.Hour},
	} {
		writes := 0
		good := func(deadline time.Time) {
			if left := time.Until(deadline); left <= test.most-time.Minute || left > test.most {
				t.Errorf("%s: written with the deadline %v", name, deadline)
			}
		}
		d := &timed{ResponseRecorder: httptest.NewRecorder(), deadline: time.Now().Add(-time.Second), written: func(deadline time.Time) {
			writes++
			good(deadline)
		}}
		handler := l.Server(t.Context(), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if !d.deadline.IsZero() {
				t.Errorf("%s: while the answer is prepared, its deadline is %v", name, d.deadline)
			}
			test.answer(w)
		}), nil).Handler
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost/", nil)
		handler.ServeHTTP(d, r)
		good(d.deadline) // for what the server writes afterwards
		if writes != test.writes {
			t.Errorf("%s: %d writes", name, writes)
		}
	}
}

// So many connections are open at a time, and those above are served when others have gone.
func TestConnectionsAreBounded(t *testing.T) {
	const most = 2*1 + 200
	address := serve(t, load(t, "STREAMER_HTTP_MAX_CLIENTS=1", fmt.Sprint("STREAMER_ACCESS_CONNECTIONS_PER_ADDRESS=", most+1)), http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	ask := func(ctx context.Context) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		if deadline, ok := ctx.Deadline(); ok {
			_ = conn.SetReadDeadline(deadline)
		}
		if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		_, err = bufio.NewReader(conn).ReadString('\n')
		return conn, err
	}
	var open []net.Conn
	for i := range most {
		conn, err := ask(t.Context())
		if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		open = append(open, conn)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	above, err := ask(ctx)
	if err == nil {
		t.Error("one more is served")
	}
	_ = above.Close()
	_ = open[0].Close()
	conn, err := ask(t.Context())
	if err != nil {
		t.Error(err)
	}
	for _, c := range append(open[1:], conn) {
		_ = c.Close()
	}
}

func TestFilesThatCannotBeUsedFailTheirCheck(t *testing.T) {
	ca := accesstest.NewAuthority(t)
	cert, key := ca.Files(t)
	identities := write(t, "i", "token "+access.Hash("good")+" name=a namespace=*\n")
	cfg := load(t, "STREAMER_GRPC_TLS_CERT_FILE="+cert, "STREAMER_GRPC_TLS_KEY_FILE="+key, "STREAMER_ACCESS_IDENTITIES_FILE="+identities)
	l, err := listen.New(cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	failing := func() (names []string) {
		if l.Certificates() != nil {
			names = append(names, "certificates")
		}
		if l.Identities() != nil {
			names = append(names, "identities")
		}
		return names
	}
	if names := failing(); names != nil {
		t.Errorf("%v fail", names)
	}
	for _, path := range []string{cert, identities} {
		if err := os.WriteFile(path, []byte("nonsense"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if names := fmt.Sprint(failing()); names != "[certificates identities]" {
		t.Errorf("%s fail", names)
	}
	if _, err := l.Access.Authenticate(access.Peer{Address: "127.0.0.1:1", Authorization: []string{"Bearer good"}}); err != nil {
		t.Errorf("what was in force before is not: %v", err)
	}
	if _, err := listen.New(cfg, nil); fault.Of(err) != fault.AccessBadCertificate {
		t.Errorf("at the start: %v", err)
	}
}

// A browser on the machine reaches loopback addresses for every page that it shows: what pages of
// others ask for there is refused, programs and pages that are listed are not.
func TestPagesOfOthersAreRefusedOnLoopback(t *testing.T) {
	served := make(chan string, 100)
	address := serve(t, load(t, "STREAMER_HTTP_CORS_ORIGINS=https://app.example.com,https://proxy.example"),
		http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { served <- r.URL.Path }))
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	own := "127.0.0.1:" + port
	preflight := []string{"Access-Control-Request-Method", "GET", "Access-Control-Request-Headers", "authorization"}
	for _, tt := range []struct {
		name, method, host string
		header             []string
		want               int
	}{
		{"curl", "GET", own, nil, 200},
		{"by name", "GET", "localhost:" + port, nil, 200},
		{"through a tunnel", "GET", "LocalHost.:9999", nil, 200},
		{"IPv6", "GET", "[::1]:" + port, nil, 200},
		{"a probe by another IP", "GET", "10.1.2.3:" + port, nil, 200},
		{"a proxy with its own Host", "GET", "proxy.example", nil, 200},
		{"DNS rebinding", "GET", "evil.example:" + port, nil, 403},
		{"DNS rebinding, as its own origin", "GET", "evil.example", []string{"Origin", "http://evil.example", "Sec-Fetch-Site", "same-origin"}, 403},
		{"a name that begins alike", "GET", "localhost.evil.example:" + port, nil, 403},
		{"a name like an address", "GET", "127.0.0.1.evil.example", nil, 403},
		{"another origin", "GET", own, []string{"Origin", "https://evil.example"}, 403},
		{"no origin's page", "GET", own, []string{"Origin", "null"}, 403},
		{"another port of this machine", "GET", own, []string{"Origin", "http://127.0.0.1:1"}, 403},
		{"two origins", "GET", own, []string{"Origin", "https://app.example.com", "Origin", "https://evil.example"}, 403},
		{"an image of another site", "GET", own, []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors"}, 403},
		{"a script of another port", "GET", own, []string{"Sec-Fetch-Site", "same-site"}, 403},
		{"a listed origin", "GET", own, []string{"Origin", "https://app.example.com", "Sec-Fetch-Site", "cross-site"}, 200},
		{"its own page", "GET", own, []string{"Origin", "http://" + own, "Sec-Fetch-Site", "same-origin"}, 200},
		{"an address that was typed", "GET", own, []string{"Sec-Fetch-Site", "none"}, 200},
		{"another origin's preflight", "OPTIONS", own, append(preflight, "Origin", "https://evil.example"), 403},
		{"a listed origin's preflight", "OPTIONS", own, append(preflight, "Origin", "https://app.example.com"), 204},
		{"a preflight after DNS rebinding", "OPTIONS", "evil.example", append(preflight, "Origin", "https://app.example.com"), 403},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, err := http.NewRequestWithContext(t.Context(), tt.method, "http://"+address+"/v1/subscribers", nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Host = tt.host
			for i := 0; i < len(tt.header); i += 2 {
				r.Header.Add(tt.header[i], tt.header[i+1])
			}
			resp, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = resp.Body.Close() }()
			body, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			if resp.StatusCode != tt.want {
				t.Errorf("%s: %s", resp.Status, body)
			}
			if tt.want == 403 {
				if !strings.Contains(string(body), string(fault.AccessForeign)) || !strings.Contains(string(body), "http.cors_origins") || len(served) > 0 {
					t.Errorf("%d served, refused with %s", len(served), body)
				}
				if allowed := resp.Header.Get("Access-Control-Allow-Origin"); allowed != "" {
					t.Errorf("%q may read it", allowed)
				}
			}
			for len(served) > 0 {
				<-served
			}
		})
	}
	t.Run("HTTP/1.0 without a Host", func(t *testing.T) {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		if _, err := io.WriteString(conn, "GET / HTTP/1.0\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		if line, err := bufio.NewReader(conn).ReadString('\n'); err != nil || !strings.Contains(line, " 200 ") {
			t.Errorf("%s %v", line, err)
		}
	})
}

// On other addresses programs come by any name. A browser comes to an open node, and to the probes
// of every node, by names only that no page can have for its own.
func TestPagesOfOthersAreRefusedOnOtherAddresses(t *testing.T) {
	chromium := []string{"User-Agent", "Mozilla/5.0 Chrome/150.0"}
	disguised := []string{"User-Agent", "curl/8", "Accept-Language", ""} // what a page in Firefox can make of its own requests
	machine, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	open := []string{"STREAMER_HTTP_INSECURE=true", "STREAMER_HTTP_ADVERTISE=node-1.example.com:8080", "STREAMER_HTTP_CORS_ORIGINS=https://proxy.example"}
	identities := "STREAMER_ACCESS_IDENTITIES_FILE=" + write(t, "i", "token sha256:"+strings.Repeat("0", 64)+" name=a namespace=*\n")
	for _, tt := range []struct {
		name, host string
		header     []string
		open       int // what an open node answers
	}{
		{"a program by any name", "streamer.example.com:8080", nil, 204},
		{"a page with a name of its own", "evil.example:8080", chromium, 403},
		{"a page that denies that it is in a browser", "evil.example:8080", disguised, 403},
		{"a page whose name begins as the node's", "node-1.example.com.evil.example", chromium, 403},
		{"a page whose name ends as the node's", "evil-node-1.example.com", chromium, 403},
		{"a page with a dot at the end", "evil.example.:8080", chromium, 403},
		{"a page below an address", "10.1.2.3.evil.example", chromium, 403},
		{"a browser at an address", "10.1.2.3:8080", chromium, 204},
		{"a browser at an address of IPv6", "[fd00::1]:8080", chromium, 204},
		{"a browser on the machine", "localhost:8080", chromium, 204},
		{"a browser at the machine's name", machine, chromium, 204},
		{"a browser in Compose", "streamer:8080", chromium, 204},
		{"a browser in Kubernetes", "streamer-0.streamer.default.svc.cluster.local:8080", chromium, 204},
		{"a browser in Kubernetes, short", "streamer.default.svc", chromium, 204},
		{"a browser in a private network", "node-1.eu.internal", chromium, 204},
		{"a browser at home", "node.home.arpa", chromium, 204},
		{"a browser at what the node says of itself", "node-1.example.com:8080", chromium, 204},
		{"a browser through a proxy", "Proxy.Example", chromium, 204},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+tt.host+"/v1/events", nil)
			for i := 0; i < len(tt.header); i += 2 {
				r.Header.Set(tt.header[i], tt.header[i+1])
			}
			ask := func(probes bool, settings ...string) int {
				cfg := load(t, settings...)
				cfg.HTTP.Listen, cfg.HTTP.ProbesListen = ":8080", ":8081" // but nobody listens there
				l, err := listen.New(cfg, nil)
				if err != nil {
					t.Fatal(err)
				}
				server := l.Server
				if probes {
					server = l.ProbesServer
				}
				w := httptest.NewRecorder()
				server(t.Context(), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }), nil).Handler.ServeHTTP(w, r)
				return w.Code
			}
			if got := ask(false, open...); got != tt.open {
				t.Errorf("an open node: %d", got)
			}
			if got := ask(false, append(open, identities)...); got != http.StatusNoContent {
				t.Errorf("a node that asks for tokens: %d", got)
			}
			if got := ask(true, append(open, identities)...); got != tt.open && tt.name != "a browser through a proxy" {
				t.Errorf("its probes: %d", got)
			}
		})
	}
}

// Where the servers ask for certificates of different authorities, the one of HTTP cannot vouch for
// an identity of gRPC.
func TestAuthoritiesVouchForTheirOwnListener(t *testing.T) {
	gateways, pages := accesstest.NewAuthority(t), accesstest.NewAuthority(t)
	cert, key := gateways.Files(t)
	identities := write(t, "i", "subject CN=gateway name=gateway namespace=*\nsubject CN=page listener=http name=page namespace=a.b\n")
	settings := []string{
		"STREAMER_HTTP_TLS_CERT_FILE=" + cert, "STREAMER_HTTP_TLS_KEY_FILE=" + key, "STREAMER_HTTP_TLS_CLIENT_CA_FILE=" + pages.CAFile(t),
		"STREAMER_GRPC_TLS_CERT_FILE=" + cert, "STREAMER_GRPC_TLS_KEY_FILE=" + key, "STREAMER_ACCESS_IDENTITIES_FILE=" + identities,
	}
	ask := func(address, name string) (status int) {
		t.Helper()
		cfg := gateways.Client(t, "")
		cfg.Certificates = pages.Client(t, name).Certificates
		transport := &http.Transport{TLSClientConfig: cfg, DisableKeepAlives: true}
		_, port, err := net.SplitHostPort(address)
		if err != nil {
			t.Fatal(err)
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://localhost:"+port+"/v1/gaps", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := transport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		return resp.StatusCode
	}
	handler := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	address := serve(t, load(t, append(settings, "STREAMER_GRPC_TLS_CLIENT_CA_FILE="+gateways.CAFile(t))...), handler)
	if got := ask(address, "gateway"); got != http.StatusUnauthorized {
		t.Errorf("the authority of pages vouches for a gateway: %d", got)
	}
	if got := ask(address, "page"); got != http.StatusOK {
		t.Errorf("a page: %d", got)
	}
	address = serve(t, load(t, settings...), handler) // only one of them asks for certificates
	if got := ask(address, "gateway"); got != http.StatusOK {
		t.Errorf("the only authority: %d", got)
	}
}

// A certificate that nobody vouches for, none, and a server that the client does not trust are
// refused logins. A client that comes and goes is none.
func TestFailedHandshakesAreRefusedLogins(t *testing.T) {
	ca, strangers := accesstest.NewAuthority(t), accesstest.NewAuthority(t)
	cert, key := ca.Files(t)
	l, err := listen.New(load(t, "STREAMER_HTTP_TLS_CERT_FILE="+cert, "STREAMER_HTTP_TLS_KEY_FILE="+key, "STREAMER_HTTP_TLS_CLIENT_CA_FILE="+ca.CAFile(t)), nil)
	if err != nil {
		t.Fatal(err)
	}
	seen := make(chan access.Peer, 10)
	l.Access.Seen = func(p access.Peer, _ *access.Identity, err error) {
		if !errors.Is(err, access.ErrHandshake) || access.Reason(err) != "handshake" {
			t.Errorf("%+v: %v", p, err)
		}
		seen <- p
	}
	listener, err := l.ListenHTTP(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	server := l.Server(t.Context(), http.NotFoundHandler(), nil)
	served := make(chan error, 1)
	go func() { served <- l.Serve(server, listener) }()
	shown := ca.Client(t, "")
	shown.Certificates = strangers.Client(t, "page").Certificates
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	dial := func(cfg *tls.Config, refused bool) (from string, err error) {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", net.JoinHostPort("127.0.0.1", port))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		if cfg == nil {
			return "", nil
		}
		cfg = cfg.Clone()
		cfg.ServerName = "localhost"
		secured := tls.Client(conn, cfg)
		if err = secured.HandshakeContext(t.Context()); err == nil && refused {
			_, err = secured.Read(make([]byte, 1)) // TLS 1.3 refuses after the client's part
		}
		return conn.LocalAddr().String(), err
	}
	for _, cfg := range []*tls.Config{nil, ca.Client(t, "page")} {
		if _, err := dial(cfg, false); err != nil {
			t.Error(err)
		}
	}
	for name, cfg := range map[string]*tls.Config{"strangers": shown, "none": ca.Client(t, ""), "server": strangers.Client(t, "page")} {
		from, err := dial(cfg, true)
		if p := <-seen; err == nil || p.Listener != access.HTTP || p.Address != from {
			t.Errorf("%s: %v, %+v", name, err, p)
		}
	}
	_ = server.Close()
	<-served
	close(seen)
	for p := range seen {
		t.Errorf("one more: %+v", p)
	}
}

// A listener of probes has hosts of its own, whatever the one for clients has.
func TestHostsAreThoseOfTheListener(t *testing.T) {
	const local, everywhere = "127.0.0.1:8080", ":8080" // but nobody listens there
	for _, tt := range []struct {
		http, probes, host string
		want               int
	}{
		{local, everywhere, "streamer-0.streamer:8080", http.StatusNoContent},
		{everywhere, local, "evil.example:8080", http.StatusForbidden},
		{local, local, "app.example.com", http.StatusForbidden}, // its pages are let in by the other one
		{everywhere, local, "localhost:8080", http.StatusNoContent},
	} {
		cfg := load(t, "STREAMER_HTTP_INSECURE=true", "STREAMER_HTTP_CORS_ORIGINS=https://app.example.com")
		cfg.HTTP.Listen, cfg.HTTP.ProbesListen = tt.http, tt.probes
		l, err := listen.New(cfg, nil)
		if err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+tt.host+"/health", nil)
		w := httptest.NewRecorder()
		l.ProbesServer(t.Context(), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }), nil).Handler.ServeHTTP(w, r)
		if w.Code != tt.want {
			t.Errorf("probes at %s beside clients at %s: %d for %s", tt.probes, tt.http, w.Code, tt.host)
		}
	}
}

func TestGRPCInPlaintextIsForThisMachine(t *testing.T) {
	for want, setting := range map[fault.Code][]string{fault.AccessPlaintext: nil, "": {"STREAMER_GRPC_INSECURE=true"}} {
		cfg := load(t, setting...)
		cfg.GRPC.Listen = ":0"
		l, err := listen.New(cfg, nil)
		if err != nil {
			t.Fatal(err)
		}
		listener, err := l.ListenGRPC(t.Context())
		if err == nil {
			_ = listener.Close()
		}
		if fault.Of(err) != want || err != nil && !strings.Contains(err.Error(), "grpc.listen") {
			t.Errorf("%q: %v", setting, err)
		}
	}
}

// A server that asks for certificates lets clients in without one only if it is told to.
func TestCertificatesOfClientsAreOptionalAsConfigured(t *testing.T) {
	authority := accesstest.NewAuthority(t)
	cert, key := authority.Files(t)
	identities := write(t, "i", "subject CN=gateway name=gateway namespace=*\n")
	for optional, want := range map[string]bool{"false": false, "true": true} {
		l, err := listen.New(load(t, "STREAMER_GRPC_TLS_CERT_FILE="+cert, "STREAMER_GRPC_TLS_KEY_FILE="+key,
			"STREAMER_GRPC_TLS_CLIENT_CA_FILE="+authority.CAFile(t), "STREAMER_GRPC_TLS_CLIENT_OPTIONAL="+optional, "STREAMER_ACCESS_IDENTITIES_FILE="+identities), nil)
		if err != nil {
			t.Fatal(err)
		}
		dialled, accepted := net.Pipe()
		served := make(chan error, 1)
		go func() {
			err := tls.Server(accepted, l.GRPC()).HandshakeContext(t.Context())
			_ = accepted.Close()
			served <- err
		}()
		client := authority.Client(t, "")
		client.NextProtos = []string{"h2"}
		conn := tls.Client(dialled, client)
		_ = conn.HandshakeContext(t.Context()) // before the server has looked at the certificate
		_, _ = conn.Read(make([]byte, 1))
		_ = dialled.Close()
		if err := <-served; (err == nil) != want {
			t.Errorf("client_optional %s: %v", optional, err)
		}
	}
}

// By default an identity has a share of what a node has.
func TestIdentityHasItsShareOfTheNode(t *testing.T) {
	for share, want := range map[int]int{10: 4, 50: 20} {
		l, err := listen.New(load(t, "STREAMER_GATEWAY_MAX_SESSIONS=40", fmt.Sprint("STREAMER_ACCESS_SHARE=", share)), nil)
		if err != nil {
			t.Fatal(err)
		}
		opened := 0
		for {
			if _, err := l.Accounts.Open(&access.Identity{Name: "a", StartsPerSecond: 1000}, access.Session, ""); err != nil {
				break
			}
			opened++
		}
		if opened != want {
			t.Errorf("%d sessions of 40 with a share of %d %%, want %d", opened, share, want)
		}
	}
}

// Tokens of the configured issuer are taken that are made for the configured audience.
func TestTokensOfTheConfiguredIssuerAreTaken(t *testing.T) {
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	keys := write(t, "jwks", `{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"1","x":"`+base64.RawURLEncoding.EncodeToString(public)+`"}]}`)
	l, err := listen.New(load(t, "STREAMER_ACCESS_JWKS_FILE="+keys, "STREAMER_ACCESS_ISSUER=https://issuer.example", "STREAMER_ACCESS_AUDIENCES=streamer,other"), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		issuer, audience string
		taken            bool
	}{
		{"https://issuer.example", "streamer", true}, {"https://issuer.example", "other", true},
		{"https://issuer.example", "elsewhere", false}, {"https://another.example", "streamer", false},
	} {
		claims := jwt.MapClaims{"sub": "billing", "iss": tt.issuer, "aud": tt.audience, "exp": time.Now().Add(time.Hour).Unix(), "streamer": json.RawMessage(`{"namespaces":["*"]}`)}
		token, err := jwt.NewWithClaims(jwt.SigningMethodEdDSA, claims).SignedString(private)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.Access.Authenticate(access.Peer{Listener: access.HTTP, Address: "127.0.0.1:1", Authorization: []string{"Bearer " + token}}); (err == nil) != tt.taken {
			t.Errorf("%s for %s: %v", tt.issuer, tt.audience, err)
		}
	}
}
