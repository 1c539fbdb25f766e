package operator

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway/access/accesstest"
)

// shown is what a node has been shown.
type shown struct{ token, subject string }

// serve is a node that sends whoever asks for /away elsewhere.
func serve(t *testing.T, cfg *tls.Config) (address string, last *shown) {
	t.Helper()
	last = &shown{}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*last = shown{token: r.Header.Get("Authorization")}
		if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
			last.subject = r.TLS.PeerCertificates[0].Subject.CommonName
		}
		if r.URL.Path == "/away" {
			http.Redirect(w, r, "/", http.StatusFound)
		}
		w.Header().Set("Connection", "close")
	}))
	if server.TLS = cfg; cfg != nil {
		server.StartTLS()
	} else {
		server.Start()
	}
	t.Cleanup(server.Close)
	return server.URL, last
}

func put(t *testing.T, text []byte) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "file")
	write(t, path, text)
	return path
}

func write(t *testing.T, path string, text []byte) {
	t.Helper()
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// made makes a client of a command's flags.
func made(t *testing.T, flags ...string) *nodeClient {
	t.Helper()
	c := &nodeClient{}
	cmd := &cobra.Command{Use: "ask", RunE: func(*cobra.Command, []string) error { return nil }}
	c.addFlags(cmd)
	cmd.SetArgs(flags)
	if err := cmd.Execute(); err != nil {
		t.Fatal(err)
	}
	return c
}

func ask(t *testing.T, c *nodeClient, url string) (status int, err error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Close = true
	resp, err := c.do(req)
	if err != nil {
		return 0, err
	}
	return resp.StatusCode, resp.Body.Close()
}

func TestTokensGoOverTLSOrToThisMachine(t *testing.T) {
	address, last := serve(t, nil)
	file := put(t, []byte(" first\n"))
	c := made(t, "--token-file", file)
	if status, err := ask(t, c, address); status != http.StatusOK || err != nil || last.token != "Bearer first" {
		t.Errorf("%d, %v, shown %+v", status, err, last)
	}
	write(t, file, []byte("second"))
	if _, err := ask(t, c, address); err != nil || last.token != "Bearer second" {
		t.Errorf("%v, shown %+v", err, last)
	}
	for _, elsewhere := range []string{"http://192.0.2.1:1", "http://node-1:8080", "http://localhost.example:1"} {
		if _, err := ask(t, c, elsewhere); fault.Of(err) != fault.CommandBadArgument || !strings.Contains(err.Error(), "plaintext") {
			t.Errorf("%s: %v", elsewhere, err)
		}
	}
	t.Setenv(tokenVariable, "of the environment, which is none")
	if _, err := ask(t, c, address); err != nil || last.token != "Bearer second" {
		t.Errorf("a file is given: %v, shown %+v", err, last)
	}
	if _, err := ask(t, made(t), address); fault.Of(err) != fault.CommandBadArgument || strings.Contains(err.Error(), "which is none") {
		t.Errorf("%v", err)
	}
	t.Setenv(tokenVariable, "third")
	if _, err := ask(t, made(t), address); err != nil || last.token != "Bearer third" {
		t.Errorf("%v, shown %+v", err, last)
	}
	if status, err := ask(t, c, address+"/away"); status != http.StatusFound || err != nil {
		t.Errorf("it follows elsewhere: %d, %v", status, err)
	}
}

func TestNodeAndCommandShowEachOtherCertificates(t *testing.T) {
	ca := accesstest.NewAuthority(t)
	certificate, key := ca.Files(t)
	pair, err := tls.LoadX509KeyPair(certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	pem, err := os.ReadFile(ca.CAFile(t))
	if err != nil {
		t.Fatal(err)
	}
	clients := x509.NewCertPool()
	clients.AppendCertsFromPEM(pem)
	address, last := serve(t, &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients})
	own, ownKey := ca.Issue(t, "operator", time.Hour)
	ownFile, keyFile := put(t, own), put(t, ownKey)
	flags := []string{"--ca-file", ca.CAFile(t), "--server-name", "localhost", "--cert-file", ownFile, "--key-file", keyFile}
	c := made(t, flags...)
	if status, err := ask(t, c, address); status != http.StatusOK || err != nil || last.subject != "operator" {
		t.Errorf("%d, %v, shown %+v", status, err, last)
	}
	next, nextKey := ca.Issue(t, "next", time.Hour)
	write(t, ownFile, next)
	write(t, keyFile, nextKey)
	if _, err := ask(t, c, address); err != nil || last.subject != "next" {
		t.Errorf("a certificate that was replaced: %v, shown %+v", err, last)
	}
	if _, err := ask(t, made(t, flags[:4]...), address); err == nil || fault.Of(err) != "" {
		t.Errorf("without a certificate: %v", err)
	}
	if _, err := ask(t, made(t), address); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("of an authority that the machine does not know: %v", err)
	}
}

func TestFilesThatCannotBeUsedAreNamed(t *testing.T) {
	empty, nowhere := put(t, nil), filepath.Join(t.TempDir(), "nowhere")
	for _, tt := range []struct {
		flags []string
		says  string
	}{
		{[]string{"--token-file", nowhere}, "--token-file"},
		{[]string{"--token-file", empty}, "one token"},
		{[]string{"--token-file", put(t, []byte("two\ntokens"))}, "one token"},
		{[]string{"--ca-file", nowhere}, "--ca-file"},
		{[]string{"--ca-file", empty}, "no certificate"},
		{[]string{"--cert-file", empty, "--key-file", nowhere}, "--key-file"},
	} {
		if _, err := ask(t, made(t, tt.flags...), "https://localhost:1"); fault.Of(err) != fault.CommandBadArgument || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%v: %v", tt.flags, err)
		}
	}
	for _, address := range []string{"", "localhost", "8080", ":8080", "http://", "http://:8080", "ftp://node", "node:http", "%zz"} {
		if _, err := parseAddress("--address", address); fault.Of(err) != fault.CommandBadArgument || !strings.Contains(err.Error(), "--address") {
			t.Errorf("%q: %v", address, err)
		}
	}
}

func TestAddressNeedsNoScheme(t *testing.T) {
	for address, want := range map[string]string{
		"127.0.0.1:8080": "http://127.0.0.1:8080", "localhost:8080": "http://localhost:8080", "[::1]:8080": "http://[::1]:8080", "node-1:8080/below": "http://node-1:8080/below",
		"http://node-1": "http://node-1", "https://node-1:8443": "https://node-1:8443",
	} {
		if u, err := parseAddress("--address", address); err != nil || u.String() != want {
			t.Errorf("%q: %v, %v", address, u, err)
		}
	}
}
