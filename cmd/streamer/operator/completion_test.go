package operator

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestNamesAreCompletedFromANode(t *testing.T) {
	lonely(t)
	d := &fixture{T: t}
	mux := http.NewServeMux()
	for path, answer := range map[string]string{
		"/v1/subscribers": `{"subscribers":[{"subscriber":"gateway/orders"},{"subscriber":"$(date)"},{"subscriber":"a\tb"},{"subscriber":"--yes"},{"subscriber":"_activeHelp_ c"},{"subscriber":"sink/lines"}]}`,
		"/v1/status":      `{"nodes":[{"node":"node-1"},{"node":"node-2"}]}`,
		"/v1/sinks":       `{"sinks":[{"sink":"lines"}]}`,
	} {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(answer)) })
	}
	node := httptest.NewServer(mux)
	t.Cleanup(node.Close)
	complete := func(words ...string) string {
		t.Helper()
		text, err := d.command(append([]string{"__complete"}, words...)...)
		if err != nil {
			t.Errorf("%v: %v", words, err)
		}
		first, _, _ := strings.Cut(text, ":4")
		return strings.Join(strings.Fields(first), " ")
	}
	t.Setenv("STREAMER_ADDRESS", node.URL)
	for line, want := range map[string]string{
		"subscribers show ":        "gateway/orders sink/lines",
		"subscribers rewind g":     "gateway/orders sink/lines", // the shell leaves those that begin so
		"subscribers delete ":      "gateway/orders sink/lines",
		"snapshot ":                "gateway/orders sink/lines",
		"drain ":                   "node-1 node-2",
		"handoff 3 --to ":          "node-1 node-2",
		"sinks pause ":             "lines",
		"tail --op ":               "insert update replace delete drop rename dropDatabase",
		"status -o ":               "json",
		"subscribers list -o ":     "json wide",
		"subscribers list --sort ": "name lag head-room",
	} {
		if got := complete(strings.Split(line, " ")...); got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
	t.Setenv("STREAMER_ADDRESS", "127.0.0.1:1")
	if got := complete("drain", ""); got != "" {
		t.Errorf("without a node: %q", got)
	}
}
