package admin_test

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/cluster/clustertest"
	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/gateway/access"
	"github.com/mongostream/streamer/handoff"
	"github.com/mongostream/streamer/health"
	"github.com/mongostream/streamer/internal/admin"
	"github.com/mongostream/streamer/internal/config"
	"github.com/mongostream/streamer/internal/input"
	"github.com/mongostream/streamer/notice"
	published "github.com/mongostream/streamer/sink"
	"github.com/mongostream/streamer/supervisor"
)

// A reached is every name that operators' requests have brought to a store or to the node.
type reached struct{ names []string }

func (r *reached) OperateSnapshot(subscriber string, _ delivery.Operation, subscription string, _ change.Namespace) (int, bool) {
	r.names = append(r.names, subscriber, subscription)
	return 1, true
}

func (r *reached) Pin(_ context.Context, _ change.Partition, pin cluster.Pin, _ time.Duration) error {
	r.names = append(r.names, pin.To, pin.By)
	return nil
}

func (r *reached) Unpin(context.Context, change.Partition, cluster.Pin) error { return nil }

func (r *reached) Drain(_ context.Context, node string, _ cluster.Drain) error {
	r.names = append(r.names, node)
	return nil
}

func (r *reached) Undrain(_ context.Context, node string) error {
	r.names = append(r.names, node)
	return nil
}

// A beating is a view of a cluster whose members send a heartbeat between any two looks, so that no
// handoff waits for one.
type beating struct {
	of    handoff.View
	beats int64
}

func (b *beating) View(ctx context.Context) (cluster.View, error) {
	v, err := b.of.View(ctx)
	b.beats++
	for i := range v.Members {
		v.Members[i].Beat += b.beats
	}
	return v, err
}

func (b *beating) Hints(ctx context.Context) <-chan struct{} {
	hints := make(chan struct{})
	go func() {
		defer close(hints)
		for {
			select {
			case hints <- struct{}{}:
			case <-ctx.Done():
				return
			}
		}
	}()
	return hints
}

// A control is what operators say to the supervisor, over what it keeps.
type control struct {
	*supervisor.Memory
	*reached
}

func (c control) Pause(ctx context.Context, p supervisor.Pause, ttl time.Duration) error {
	c.names = append(c.names, p.Slug, p.By)
	return c.Memory.Pause(ctx, p, ttl)
}

func (c control) Unpause(ctx context.Context, slug string) error {
	c.names = append(c.names, slug)
	return c.Memory.Unpause(ctx, slug)
}

// operators returns the patterns of a node's endpoints for operators, and serves them with the
// parameters that they have, both as package wiring says.
func operators(t *testing.T, o admin.Operations, to *reached, restarts supervisor.Reader, store admin.Store) (patterns []string, mux *http.ServeMux) {
	t.Helper()
	sinks := admin.ServeSinks("a", func() []*published.Sink { return nil }, o.Board, func(context.Context) error { return nil })
	handlers := map[string]http.Handler{
		"ServeAudit": admin.ServeAudit(o.Board), "sinks": sinks, "ServeGaps": admin.ServeGaps(keeper{}, o.Logger),
		"ServeSubscribers": admin.ServeSubscribers("a", node(nil), store, &source{}, o.Logger), "ServeReports": admin.ServeReports(restarts, o.Logger),
		"ServeSnapshots": admin.ServeSnapshots(to, o.Board), "ServeStatus": admin.ServeStatus(func() *admin.Status { return admin.NewStatus(health.Report{}, cluster.View{}) }, o.May),
		"ServeDrain": o.ServeDrain(), "ServeHandoff": o.ServeHandoff(), "ServeRestarts": o.ServeRestarts(),
		"ServeConfiguration": admin.ServeConfiguration(config.Config{}, "v1.0.0"), "ServeHistory": admin.ServeHistory("a", admin.NewHistory()),
		"ServeDetail": admin.ServeDetail(node(nil), store, o.Logger), "ServeRewindPlan": o.ServeRewindPlan(), "ServeRewind": o.ServeRewind(), "ServeDelete": o.ServeDelete(),
	}
	text, err := os.ReadFile("../wiring/http.go")
	if err != nil {
		t.Fatal(err)
	}
	mux = http.NewServeMux()
	for _, row := range regexp.MustCompile(`(?m)^\t\t\{"((?:GET|POST) /v1/[^"]*)", (?:admin\.|operations\.)?(\w+).*, (nil|\[\]string\{.*\})\},$`).FindAllStringSubmatch(string(text), -1) {
		handler := handlers[row[2]]
		if handler == nil {
			t.Fatalf("%s is served by %s, which is not fuzzed", row[1], row[2])
		}
		var parameters []string
		for _, name := range regexp.MustCompile(`"(\w+)"`).FindAllStringSubmatch(row[3], -1) {
			parameters = append(parameters, name[1])
		}
		patterns = append(patterns, row[1])
		mux.Handle(row[1], access.Parameters(handler, parameters...))
	}
	if len(patterns) < 17 {
		t.Fatalf("only %v", patterns)
	}
	return patterns, mux
}

// FuzzOperators sends what an operator may send to each endpoint: nothing invalid reaches a store,
// the node, the audit log or a log line, and what is refused has a code.
func FuzzOperators(f *testing.F) {
	f.Add(uint8(0), "a", "drain", "")
	f.Add(uint8(2), "kafka", "pause", "x=1")
	f.Add(uint8(5), "", "", "limit=100")
	f.Add(uint8(6), "", "", "subscriber=by/s&operation=begin&subscription=a&namespace=shop.orders")
	f.Add(uint8(6), "", "", "subscriber=s&namespace=shop.a%0Ab%1b%5B31m")
	f.Add(uint8(8), "b", "drain", "")
	f.Add(uint8(8), "b\n", "undrain", "")
	f.Add(uint8(8), "\xff", "undrain", "")
	f.Add(uint8(9), "3", "handoff", "to=b")
	f.Add(uint8(9), "4294967296", "", "to=%00")
	f.Add(uint8(10), "", "pause", "slug=b/hub&for=1h")
	f.Add(uint8(6), "", "", "subscriber=s%1b")
	f.Add(uint8(10), "", "resume", "slug=b%0A")
	f.Add(uint8(10), "", "resume", "slug=b/hub%0A&for=%FF")
	f.Add(uint8(12), "", "", "subscriber=by/s")
	f.Add(uint8(13), "", "", "subscriber=s%0A")
	f.Add(uint8(14), "", "", "subscriber=s&to=1970-01-01T00:16:40Z")
	f.Add(uint8(15), "", "", "subscriber=s&to=%1b")
	f.Add(uint8(16), "", "", "subscriber=%ff")
	open, err := access.New(access.Config{})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, endpoint uint8, first, second, query string) {
		to, lines := &reached{}, &bytes.Buffer{}
		restarts := control{supervisor.NewMemory(time.Hour), to}
		memory := clustertest.NewMemory(partitions, nil)
		for _, name := range []string{"a", "b"} {
			m, err := memory.For(name).Join(t.Context(), cluster.Heartbeat{Node: name, Process: "p" + name, Status: cluster.StatusHealthy, Version: "v1.0.0"}, time.Hour)
			if err == nil && name == "a" {
				_, err = m.Claim(t.Context(), []change.Partition{0, 1, 2, 3})
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		store, mongo := world(t)
		o := admin.Operations{
			Movable: admin.Movable{Store: store, Source: mongo, Recorded: func(context.Context) error { return nil }, Rewound: func(name string) { to.names = append(to.names, name) }},
			Cluster: handoff.Cluster{View: &beating{of: memory.For("operator")}, Directives: to}, Restarts: restarts,
			Board: notice.NewBoard(notice.Config{}), Trusted: true, Logger: slog.New(slog.NewTextHandler(lines, nil)),
		}
		patterns, mux := operators(t, o, to, restarts, store)
		method, path, _ := strings.Cut(patterns[int(endpoint)%len(patterns)], " ")
		path = strings.NewReplacer("{name}", url.PathEscape(first), "{node}", url.PathEscape(first), "{partition}", url.PathEscape(first), "{do}", url.PathEscape(second)).Replace(path)
		r := httptest.NewRequestWithContext(t.Context(), method, "/", nil)
		r.URL.Path, r.URL.RawPath, r.URL.RawQuery = mustUnescape(t, path), path, query
		if _, pattern := mux.Handler(r); pattern == "" || strings.Contains(path, "/.") || strings.Contains(path, "//") {
			return // the mux redirects it, or knows nothing there
		}
		w := httptest.NewRecorder()
		open.Handler(mux).ServeHTTP(w, r)
		switch {
		case w.Code == http.StatusOK || w.Code == http.StatusAccepted:
		case w.Code < http.StatusBadRequest || w.Code >= http.StatusInternalServerError:
			t.Errorf("%s %s?%s: %d %s", method, path, query, w.Code, w.Body)
		case !strings.Contains(w.Body.String(), `"STRM-`):
			t.Errorf("%s %s?%s is refused without a code: %d %s", method, path, query, w.Code, w.Body)
		}
		for _, name := range to.names {
			if !input.IsName(name) {
				t.Errorf("%q has come to a store", name)
			}
		}
		records, _ := o.Board.Since(0)
		for _, n := range records {
			arguments, _ := n.Fields["arguments"].([]string)
			for _, text := range append(arguments, n.Text, n.Node) {
				if !isLine(text) {
					t.Errorf("%q is in the audit log", text)
				}
			}
		}
		if lines.Len() > 0 && !isLine(strings.TrimSuffix(lines.String(), "\n")) {
			t.Errorf("%q is in the log", lines)
		}
	})
}

// isLine reports whether a text is printable UTF-8 in one line.
func isLine(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) })
}

// mustUnescape returns what an escaped path stands for.
func mustUnescape(t *testing.T, path string) string {
	t.Helper()
	plain, err := url.PathUnescape(path)
	if err != nil {
		t.Fatal(err)
	}
	return plain
}
