package operator

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// Losses that a node cannot read are an error, and not shown as no losses.
func TestUnreadLossesOfANodeAreAnError(t *testing.T) {
	lonely(t)
	d := &fixture{T: t}
	node := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"gaps":[],"error":"entry 3 is damaged"}`))
	}))
	t.Cleanup(node.Close)
	text, err := d.command("gaps", "--address", node.URL)
	if err == nil || !strings.Contains(err.Error(), "entry 3 is damaged") || strings.Contains(text, "No losses") {
		t.Errorf("%v: %s", err, text)
	}
}
