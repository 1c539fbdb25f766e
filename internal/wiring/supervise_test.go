package wiring

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/mongostream/streamer/gateway/access/accesstest"
	"github.com/mongostream/streamer/internal/config"
)

// Other nodes are asked over TLS if their certificates come from the configured authorities.
func TestNodesAreAskedWithTheConfiguredAuthorities(t *testing.T) {
	authority := accesstest.NewAuthority(t)
	cert, key := authority.Files(t)
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	node := httptest.NewUnstartedServer(http.NotFoundHandler())
	node.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	node.StartTLS()
	defer node.Close()
	for file, want := range map[string]bool{authority.CAFile(t): true, accesstest.NewAuthority(t).CAFile(t): false} {
		cfg, err := config.Load("", []string{"STREAMER_SUPERVISOR_CA_FILE=" + file})
		if err != nil {
			t.Fatal(err)
		}
		transport, err := (&Service{opts: Options{Config: cfg}}).vitalsTransport()
		if err != nil {
			t.Fatal(err)
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, node.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := transport.RoundTrip(req)
		if err == nil {
			_ = resp.Body.Close()
		}
		if (err == nil) != want {
			t.Errorf("the right authority: %t, %v", want, err)
		}
		transport.CloseIdleConnections()
	}
}
