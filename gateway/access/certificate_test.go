package access_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway/access"
)

// tlsFiles writes a server's certificate and key, and with an authority of clients that too.
func tlsFiles(t *testing.T, ca *authority, clients *authority) access.TLSConfig {
	t.Helper()
	dir := t.TempDir()
	c := access.TLSConfig{Certificate: filepath.Join(dir, "tls.crt"), Key: filepath.Join(dir, "tls.key")}
	cert, key := ca.good(t, "server-1")
	write(t, c.Certificate, cert)
	write(t, c.Key, key)
	if clients != nil {
		c.ClientCA = write(t, filepath.Join(dir, "ca.crt"), clients.pem)
	}
	return c
}

// echo serves lines with a TLS configuration: whom it sees, once for each line it is sent.
func echo(t *testing.T, cfg *tls.Config) (address string) {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", cfg)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	t.Cleanup(func() { _ = l.Close(); <-served })
	go func() {
		defer close(served)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_, _ = io.Copy(conn, conn)
			}()
		}
	}()
	return l.Addr().String()
}

// dial connects and has one byte sent back, so that the server has accepted the client too.
func dial(t *testing.T, address string, cfg *tls.Config) (*tls.Conn, error) {
	t.Helper()
	conn, err := (&tls.Dialer{Config: cfg}).DialContext(t.Context(), "tcp", address)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := ping(conn); err != nil {
		return nil, err
	}
	return conn.(*tls.Conn), nil
}

func ping(conn net.Conn) error {
	if _, err := conn.Write([]byte("x")); err != nil {
		return err
	}
	_, err := io.ReadFull(conn, make([]byte, 1))
	return err
}

func serverName(c *tls.Conn) string {
	return c.ConnectionState().PeerCertificates[0].Subject.CommonName
}

func TestCertificateIsReplacedWhileConnectionsAreOpen(t *testing.T) {
	ca := newAuthority(t)
	var log bytes.Buffer
	cfg := access.Config{TLS: tlsFiles(t, ca, nil), Logger: slog.New(slog.NewTextHandler(&log, nil))}
	server, err := access.NewTLS(cfg)
	if err != nil {
		t.Fatal(err)
	}
	address := echo(t, server.Config("h2"))
	expect := func(name string) *tls.Conn {
		t.Helper()
		conn, err := dial(t, address, ca.client(t, ""))
		if err != nil || serverName(conn) != name {
			t.Fatalf("%v", err)
		}
		return conn
	}
	old := expect("server-1")
	cert, key := ca.good(t, "server-2")
	write(t, cfg.TLS.Certificate, cert) // the key still is the old one
	expect("server-1")
	if err := server.Err(); fault.Of(err) != fault.AccessBadCertificate {
		t.Errorf("between certificate and key: %v", err)
	}
	write(t, cfg.TLS.Key, key)
	expect("server-2")
	if err := server.Err(); err != nil {
		t.Error(err)
	}
	expired, expiredKey := ca.issue(t, pkix.Name{CommonName: "server-3"}, time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour))
	early, earlyKey := ca.issue(t, pkix.Name{CommonName: "server-3"}, time.Now().Add(time.Hour), time.Now().Add(2*time.Hour))
	for name, files := range map[string][2]string{
		"not yet valid": {early, earlyKey},
		"garbage":       {"garbage", key}, "empty": {"", ""}, "expired": {expired, expiredKey}, "key of another": {cert, expiredKey}, "key in its place": {key, cert},
	} {
		write(t, cfg.TLS.Certificate, files[0])
		write(t, cfg.TLS.Key, files[1])
		expect("server-2")
		if err := server.Err(); fault.Of(err) != fault.AccessBadCertificate {
			t.Errorf("%s: %v", name, err)
		}
	}
	if !strings.Contains(log.String(), "stays in force") || strings.Contains(log.String(), "PRIVATE") {
		t.Errorf("reported:\n%s", &log)
	}
	cert, key = ca.good(t, "server-4")
	write(t, cfg.TLS.Certificate, cert)
	write(t, cfg.TLS.Key, key)
	expect("server-4")
	if err := ping(old); err != nil {
		t.Errorf("the connection from before: %v", err)
	}
}

func TestClientsNeedACertificateOfTheAuthority(t *testing.T) {
	ca, strangers := newAuthority(t), newAuthority(t)
	cfg := access.Config{TLS: tlsFiles(t, ca, ca)}
	server, err := access.NewTLS(cfg)
	if err != nil {
		t.Fatal(err)
	}
	address := echo(t, server.Config())
	stranger := ca.client(t, "")
	stranger.Certificates = strangers.client(t, "gw-1").Certificates
	forced := stranger.Clone() // shows its certificate though the server's list of authorities does not have its own
	forced.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &stranger.Certificates[0], nil }
	open, err := dial(t, address, ca.client(t, "gw-1"))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]*tls.Config{"none": ca.client(t, ""), "a stranger's": stranger, "a stranger's, forced": forced} {
		if _, err := dial(t, address, c); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	// Another authority takes the first one's place: its clients come in, those from before do not
	// again, and stay.
	write(t, cfg.TLS.ClientCA, strangers.pem)
	if _, err := dial(t, address, forced); err != nil {
		t.Error(err)
	}
	resuming := ca.client(t, "gw-1")
	resuming.ClientSessionCache = tls.NewLRUClientSessionCache(10)
	if _, err := dial(t, address, resuming); err == nil {
		t.Error("a client of the former authority is taken")
	}
	if err := ping(open); err != nil {
		t.Error(err)
	}
}

func TestSessionsAreNotResumed(t *testing.T) {
	ca := newAuthority(t)
	server, err := access.NewTLS(access.Config{TLS: tlsFiles(t, ca, ca)})
	if err != nil {
		t.Fatal(err)
	}
	address := echo(t, server.Config())
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		client := ca.client(t, "gw-1")
		client.ClientSessionCache, client.MaxVersion = tls.NewLRUClientSessionCache(10), version
		for range 3 {
			conn, err := dial(t, address, client)
			if err != nil || conn.ConnectionState().DidResume {
				t.Errorf("version %x: %v", version, err)
			}
		}
	}
}

func TestOldVersionsAreRefused(t *testing.T) {
	ca := newAuthority(t)
	server, err := access.NewTLS(access.Config{TLS: tlsFiles(t, ca, nil)})
	if err != nil {
		t.Fatal(err)
	}
	address := echo(t, server.Config())
	for version, want := range map[uint16]bool{tls.VersionTLS10: false, tls.VersionTLS11: false, tls.VersionTLS12: true, tls.VersionTLS13: true} {
		client := ca.client(t, "")
		client.MinVersion, client.MaxVersion = version, version
		if _, err := dial(t, address, client); (err == nil) != want {
			t.Errorf("version %x: %v", version, err)
		}
	}
}

func TestSubjectIsWrittenInFull(t *testing.T) {
	ca := newAuthority(t)
	cfg := access.Config{TLS: tlsFiles(t, ca, ca)}
	cfg.Identities = write(t, t.TempDir()+"/i", `subject "CN=gw\\,1,OU=a+OU=b,O=Shop" name=found namespace=*`)
	a := newAuthenticator(t, cfg)
	subject := func(n pkix.Name) *access.Identity {
		t.Helper()
		cert, key := ca.issue(t, n, time.Now().Add(-time.Hour), time.Now().Add(time.Hour))
		pair, err := tls.X509KeyPair(both(cert, key))
		if err != nil {
			t.Fatal(err)
		}
		state := &tls.ConnectionState{}
		state.VerifiedChains = append(state.VerifiedChains, append(state.PeerCertificates, pair.Leaf))
		i, err := a.Authenticate(access.Peer{TLS: state})
		if err != nil && fault.Of(err) != fault.AccessUnauthenticated {
			t.Error(err)
		}
		return i
	}
	full := pkix.Name{CommonName: "gw,1", OrganizationalUnit: []string{"a", "b"}, Organization: []string{"Shop"}}
	if i := subject(full); i == nil || i.Name != "found" || i.Expires.IsZero() {
		t.Errorf("%+v", i)
	}
	for name, n := range map[string]pkix.Name{
		"empty":            {},
		"common name only": {CommonName: "gw,1"},
		"all in one":       {CommonName: "gw,1,OU=a+OU=b,O=Shop"},
		"one more": {CommonName: "gw,1", OrganizationalUnit: []string{"a", "b"}, Organization: []string{"Shop"}, ExtraNames: []pkix.AttributeTypeAndValue{
			{Type: []int{2, 5, 4, 3}, Value: "admin"},
		}},
	} {
		if i := subject(n); i != nil {
			t.Errorf("%s: %+v", name, i)
		}
	}
}

// TestServesBothVersionsOfHTTP has a browser's and a curl's way of connecting end at the same
// handler.
func TestServesBothVersionsOfHTTP(t *testing.T) {
	ca := newAuthority(t)
	cfg := access.Config{TLS: tlsFiles(t, ca, ca), Identities: write(t, t.TempDir()+"/i", "subject CN=gw-1 name=a namespace=shop.*")}
	cfg.TLS.ClientOptional = true
	files, err := access.NewTLS(cfg)
	if err != nil {
		t.Fatal(err)
	}
	a := newAuthenticator(t, cfg)
	server := &http.Server{
		ReadHeaderTimeout: time.Second, TLSConfig: files.Config("h2", "http/1.1"), ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0),
		Handler: a.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, r.Proto+" "+access.From(r.Context()).Name)
		})),
	}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() { defer close(served); _ = server.ServeTLS(l, "", "") }()
	t.Cleanup(func() { _ = server.Shutdown(context.Background()); <-served })
	for _, tt := range []struct {
		h2         bool
		cert, want string
	}{{true, "gw-1", "200 HTTP/2.0 a"}, {false, "gw-1", "200 HTTP/1.1 a"}, {true, "gw-2", "401"}, {true, "", "401"}} {
		transport := &http.Transport{TLSClientConfig: ca.client(t, tt.cert), ForceAttemptHTTP2: tt.h2}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+l.Addr().String(), nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := (&http.Client{Transport: transport}).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if got := fmt.Sprintf("%d %s", resp.StatusCode, body); err != nil || !strings.HasPrefix(got, tt.want) {
			t.Errorf("%+v: %s, %v", tt, got, err)
		}
		transport.CloseIdleConnections()
	}
}

func TestWithoutACertificateThereIsNoTLS(t *testing.T) {
	if server, err := access.NewTLS(access.Config{}); server != nil || err != nil {
		t.Errorf("%v, %v", server, err)
	}
	if _, err := access.NewTLS(access.Config{TLS: access.TLSConfig{Certificate: "/nowhere", Key: "/nowhere"}}); fault.Of(err) != fault.AccessBadCertificate {
		t.Error(err)
	}
}
