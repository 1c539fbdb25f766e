package operator

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// The sessions that nodes tell each other of are shown, and those of another cluster are not,
// whatever name its configuration has. A status has that name, and no origin.
func TestSessionsOfAnotherClusterAreNotShown(t *testing.T) {
	lonely(t)
	status := `{"cluster":"production","nodes":[{"node":"n2","gateways":["orders"]}]}`
	node := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := `{"origin":{"cluster":"ORIGIN"},"subscribers":[{"subscriber":"orders"},{"subscriber":"carts","session":{"node":"n1"}}]}`
		if r.URL.Path == "/v1/status" {
			answer = status
		}
		_, _ = w.Write([]byte(answer))
	}))
	t.Cleanup(node.Close)
	client := &nodeClient{address: node.URL}
	for _, tt := range []struct{ origin, name, want string }{
		{"ORIGIN", "orders", "n2"},
		{"ORIGIN", "carts", "n1"},
		{"ORIGIN", "nobody", ""},
		{"OTHER", "orders", ""},
		{"OTHER", "carts", ""},
		{"production", "orders", ""},
	} {
		if at, err := claimedAt(t.Context(), client, tt.origin, tt.name); at != tt.want || (err != nil) != (tt.origin != "ORIGIN") {
			t.Errorf("%s of the cluster with the origin %s: %q, want %q", tt.name, tt.origin, at, tt.want)
		}
	}
}
