package preflight

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/internal/config"
)

// What notices, pings and traces are posted to is reached without posting anything. One that is
// away, or whose certificate nobody vouches for, is a warning, whose text has no path.
func TestReceiversAreReached(t *testing.T) {
	t.Parallel()
	posted := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("something is posted") })
	there, unknown, gone := httptest.NewServer(posted), httptest.NewTLSServer(posted), httptest.NewServer(posted)
	t.Cleanup(there.Close)
	t.Cleanup(unknown.Close)
	gone.Close()
	path := filepath.Join(t.TempDir(), "streamer.yaml")
	settings := "notices: {webhook: {url: '" + there.URL + "/hooks/secret', secret: 0123456789abcdef}}\n" +
		"supervisor: {ping_url: '" + unknown.URL + "/hooks/secret'}\ntracing: {endpoint: '" + gone.URL + "/hooks/secret'}\n"
	if err := os.WriteFile(path, []byte(settings), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Load(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	report := runChecks(t.Context(), receivers(cfg), func(Result) {})
	if !report.OK || len(report.Checks) != 3 {
		t.Fatalf("%+v", report)
	}
	for i, want := range []Result{
		{Name: "webhook", Level: OK, Text: "takes connections"},
		{Name: "ping", Level: Warn, Text: "certificate", Code: fault.ReceiverUnreachable},
		{Name: "tracing", Level: Warn, Text: "connection refused", Code: fault.ReceiverUnreachable},
	} {
		got := report.Checks[i]
		if got.Name != want.Name || got.Level != want.Level || got.Code != want.Code || !strings.Contains(got.Text, want.Text) || strings.Contains(got.Text, "hooks") {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
	if none := receivers(config.Config{}); len(none) != 0 {
		t.Errorf("%d checks of nothing", len(none))
	}
}
