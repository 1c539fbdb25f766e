package operator

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// The sessions that a node of another cluster knows are not those of this one.
func TestSessionsOfAnotherClusterAreNotShown(t *testing.T) {
	lonely(t)
	node := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/status") {
			_, _ = w.Write([]byte(`{"cluster":"other","nodes":[{"node":"n1","gateways":["orders"]}]}`))
			return
		}
		_, _ = w.Write([]byte(`{"origin":{"cluster":"other"},"subscribers":[{"subscriber":"orders","session":{"node":"n1"}}]}`))
	}))
	t.Cleanup(node.Close)
	client := &nodeClient{address: node.URL}
	for cluster, want := range map[string]string{"other": "n1", "c": ""} {
		if at := strings.Join(connectedAt(t.Context(), client, cluster)["orders"], ","); at != want {
			t.Errorf("cluster %s: %q, want %q", cluster, at, want)
		}
		if at := claimedAt(t.Context(), client, cluster, "orders"); at != want {
			t.Errorf("cluster %s: %q, want %q", cluster, at, want)
		}
	}
}
