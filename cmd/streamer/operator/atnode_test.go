package operator

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/internal/admin"
)

// A node that does not answer once does not end the command: the leader continues.
func TestNodeThatDoesNotAnswerIsAskedAgain(t *testing.T) {
	lonely(t)
	looks := 0
	node := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if looks++; looks < 3 {
			panic(http.ErrAbortHandler) // closes the connection
		}
		_, _ = w.Write([]byte(`{"cluster":"c"}`))
	}))
	t.Cleanup(node.Close)
	client := &nodeClient{address: node.URL}
	if over, err := awaitStatus(t.Context(), client, time.Minute, func(s admin.Status) bool { return s.Cluster == "c" }); !over || err != nil || looks != 3 {
		t.Errorf("%t, %v after %d looks", over, err, looks)
	}
	silent := &nodeClient{address: "127.0.0.1:1"}
	if _, err := awaitStatus(t.Context(), silent, 0, func(admin.Status) bool { return true }); fault.Of(err) != fault.NodeUnreachable || !strings.Contains(err.Error(), "the leader continues") {
		t.Errorf("%v", err)
	}
}

// A node that was asked to do something, and does not answer in time or loses its connection, may
// have done it.
func TestUnknownOutcomeIsToldAsUnknown(t *testing.T) {
	lonely(t)
	away := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			<-r.Context().Done()
		}
		panic(http.ErrAbortHandler) // closes the connection
	}))
	t.Cleanup(away.Close)
	for _, tt := range []struct {
		method, path, address string
		unknown               bool
	}{
		{http.MethodPost, "slow", away.URL, true},
		{http.MethodPost, "lost", away.URL, true},
		{http.MethodPost, "lost", "127.0.0.1:1", false},
		{http.MethodGet, "slow", away.URL, false},
		{http.MethodGet, "lost", away.URL, false},
	} {
		client := &nodeClient{address: tt.address}
		if tt.path == "slow" {
			client.wait = time.Second
		}
		err := client.ask(t.Context(), tt.method, tt.path, nil, &admin.Accepted{})
		if fault.Of(err) != fault.NodeUnreachable || strings.Contains(err.Error(), "what it did is not known") != tt.unknown {
			t.Errorf("%+v: %v", tt, err)
		}
	}
}

// Part of something may have been done before it failed: the node says so, with a code or without.
func TestRefusedOperationSaysWhatTheNodeSays(t *testing.T) {
	lonely(t)
	node := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = w.Write([]byte(`{"message":"1 of 3 checkpoints are rewound"}`))
	}))
	t.Cleanup(node.Close)
	client := &nodeClient{address: node.URL}
	if err := client.ask(t.Context(), http.MethodPost, "x", nil, &admin.Accepted{}); err == nil || err.Error() != "1 of 3 checkpoints are rewound" {
		t.Errorf("%v", err)
	}
}
