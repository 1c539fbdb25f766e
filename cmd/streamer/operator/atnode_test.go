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
