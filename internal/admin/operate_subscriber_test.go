package admin_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/checkpoint/checkpointtest"
	"github.com/mongostream/streamer/gateway/access"
	"github.com/mongostream/streamer/internal/admin"
	"github.com/mongostream/streamer/internal/config"
	"github.com/mongostream/streamer/notice"
	"github.com/mongostream/streamer/streamer"
)

// movers serves what moves and deletes subscribers, and says for which the node was asked to look.
func movers(t *testing.T, o admin.Operations) http.Handler {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle("GET /v1/subscribers/rewind", o.ServeRewindPlan())
	mux.Handle("POST /v1/subscribers/rewind", o.ServeRewind())
	mux.Handle("POST /v1/subscribers/delete", o.ServeDelete())
	return access.SameOrigin(nil, access.Everybody().Handler(mux))
}

const rewindLive = "/v1/subscribers/rewind?subscriber=live&to=1970-01-01T00:20:00Z" // at(200)

func TestOperatorsRewindAndDeleteOverHTTP(t *testing.T) {
	t.Parallel()
	s, mongo := world(t)
	connect(t, s, "live", at(500), map[change.Partition]change.Position{1: at(400)})
	board, written, looked := notice.NewBoard(notice.Config{}), errors.New("etcd does not answer"), []string{}
	h := movers(t, admin.Operations{Board: board, Trusted: true, Logger: slog.New(slog.DiscardHandler), Movable: admin.Movable{
		Store: s, Source: mongo, Recorded: func(context.Context) error { return written }, Rewound: func(name string) { looked = append(looked, name) },
	}})
	live := checkpoint.Key{Subscriber: "live"}
	stands := func(what string, position change.Position, generation uint64) {
		t.Helper()
		if c := all(t, s)[live]; c.Position.Time != position.Time || c.Generation != generation {
			t.Errorf("%s: %s of generation %d", what, c.Position, c.Generation)
		}
	}

	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, rewindLive, nil))
	var plan admin.RewindPlan
	if err := json.Unmarshal(w.Body.Bytes(), &plan); err != nil || w.Code != http.StatusOK || len(plan.Steps) != 1 || !plan.Steps[0].Moves || plan.Steps[0].Events == nil || plan.Reached != admin.Reached {
		t.Errorf("preview: %d %s, %v", w.Code, w.Body, err)
	}
	stands("a preview changes nothing", at(500), 0)
	if len(operated(board)) > 0 {
		t.Errorf("a preview is recorded: %v", operated(board))
	}

	answers(t, h, rewindLive, http.StatusServiceUnavailable, `"message":"nothing was done: `)
	answers(t, h, "/v1/subscribers/delete?subscriber=live", http.StatusServiceUnavailable, `"message":"nothing was done: `)
	stands("what is not in the audit log is not done", at(500), 0)
	written = nil
	recorded := len(operated(board))
	w = httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/subscribers/rewind?subscriber=live&to=1970-01-01T00:33:20Z", nil))
	if w.Code != http.StatusConflict || !strings.Contains(w.Body.String(), "STRM-CHECKPOINT-REWIND") {
		t.Errorf("a preview of what would be refused: %d %s", w.Code, w.Body)
	}
	for target, want := range map[string]struct {
		status int
		says   string
	}{
		"/v1/subscribers/rewind?subscriber=live&to=1970-01-01T00:33:20Z": {http.StatusConflict, "STRM-CHECKPOINT-REWIND"}, // later than it is
		"/v1/subscribers/rewind?subscriber=live&to=1970-01-01T00:00:10Z": {http.StatusConflict, "the oplog begins"},
		"/v1/subscribers/rewind?subscriber=live&to=yesterday":            {http.StatusBadRequest, "a position is"},
		"/v1/subscribers/rewind?subscriber=live":                         {http.StatusBadRequest, "a position is"},
		"/v1/subscribers/rewind?to=1970-01-01T00:20:00Z":                 {http.StatusBadRequest, "subscriber: required"},
		"/v1/subscribers/rewind?subscriber=x&to=1970-01-01T00:20:00Z":    {http.StatusBadRequest, "has no checkpoint"},
		"/v1/subscribers/delete?subscriber=x":                            {http.StatusBadRequest, "has no checkpoint"},
	} {
		answers(t, h, target, want.status, want.says)
	}
	stands("what is refused is not done", at(500), 0)
	if log := operated(board); len(log) != recorded {
		t.Errorf("what is refused is recorded: %v", log[recorded:])
	}

	answers(t, h, rewindLive, http.StatusAccepted, "subscribers rewind")
	stands("rewound", at(200), 1)
	answers(t, h, "/v1/subscribers/delete?subscriber=live", http.StatusAccepted, "subscribers delete")
	if _, there := all(t, s)[live]; there {
		t.Error("it was not deleted")
	}
	if len(looked) != 1 || looked[0] != "live" {
		t.Errorf("the node was asked to look for %v", looked)
	}
	told, _ := board.Since(0)
	var rewound int
	for _, n := range told {
		if n.Kind == notice.KindRewound && n.Fields["subscriber"] == "live" {
			rewound++
		}
	}
	if log := strings.Join(operated(board), ";"); rewound != 1 || !strings.Contains(log, "subscribers rewind live --to 1200:1") || !strings.Contains(log, "subscribers delete live") {
		t.Errorf("%d notices, audit log %s", rewound, log)
	}
}

// A hurried store does nothing for a request that has ended.
type hurried struct{ *checkpointtest.Memory }

func (h hurried) Rewind(ctx context.Context, k checkpoint.Key, to change.Position, by, why string) (checkpoint.Checkpoint, error) {
	if ctx.Err() != nil {
		return checkpoint.Checkpoint{}, ctx.Err()
	}
	return h.Memory.Rewind(ctx, k, to, by, why)
}

func (h hurried) Delete(ctx context.Context, subscriber string) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return h.Memory.Delete(ctx, subscriber)
}

// What is in the audit log is done to the end, although the client that asked for it has gone.
func TestRecordedOperationIsDoneWithoutItsClient(t *testing.T) {
	t.Parallel()
	s, mongo := world(t)
	connect(t, s, "live", at(500), nil)
	var leave context.CancelFunc
	h := movers(t, admin.Operations{Board: notice.NewBoard(notice.Config{}), Trusted: true, Logger: slog.New(slog.DiscardHandler), Movable: admin.Movable{
		Store: hurried{s}, Source: mongo, Recorded: func(ctx context.Context) error { leave(); return ctx.Err() }, Rewound: func(string) {},
	}})
	post := func(target string) {
		t.Helper()
		var ctx context.Context
		ctx, leave = context.WithCancel(t.Context())
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodPost, target, nil))
		if w.Code != http.StatusAccepted || ctx.Err() == nil {
			t.Errorf("%s: %d %s, %v", target, w.Code, w.Body, ctx.Err())
		}
	}
	post(rewindLive)
	if c := all(t, s)[checkpoint.Key{Subscriber: "live"}]; c.Position.Time != at(200).Time {
		t.Errorf("it is at %s", c.Position)
	}
	post("/v1/subscribers/delete?subscriber=live")
	if _, there := all(t, s)[checkpoint.Key{Subscriber: "live"}]; there {
		t.Error("it was not deleted")
	}
}

// Who may not operate neither looks nor acts, nor does a page of another origin.
func TestStrangersMoveNoSubscriber(t *testing.T) {
	t.Parallel()
	s, mongo := world(t)
	connect(t, s, "live", at(500), nil)
	board := notice.NewBoard(notice.Config{})
	o := admin.Operations{Board: board, Logger: slog.New(slog.DiscardHandler), Movable: admin.Movable{
		Store: s, Source: mongo, Recorded: func(context.Context) error { return nil }, Rewound: func(string) {},
	}}
	targets := []string{rewindLive, "/v1/subscribers/delete?subscriber=live"}
	w := httptest.NewRecorder()
	movers(t, o).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, rewindLive, nil))
	if w.Code != http.StatusForbidden {
		t.Errorf("a preview: %d %s", w.Code, w.Body)
	}
	for _, target := range targets {
		answers(t, movers(t, o), target, http.StatusForbidden, "STRM-ACCESS-FORBIDDEN")
	}
	o.Trusted = true
	for _, target := range targets {
		for _, header := range [][]string{{"Sec-Fetch-Site", "cross-site"}, {"Origin", "https://evil.example"}} {
			answers(t, movers(t, o), target, http.StatusForbidden, "STRM-ACCESS-FOREIGN", header...)
		}
	}
	if c := all(t, s)[checkpoint.Key{Subscriber: "live"}]; c.Position.Time != at(500).Time || len(operated(board)) > 0 {
		t.Errorf("%s, %v", c.Position, operated(board))
	}
}

func TestDetailShowsTheEarliestPlacesAndTheFilters(t *testing.T) {
	t.Parallel()
	s, _ := world(t)
	elsewhere := make(map[change.Partition]change.Position)
	for p := range change.Partition(partitions) {
		elsewhere[p] = at(400 - 10*uint32(p))
	}
	connect(t, s, "live", at(500), elsewhere)
	h := admin.ServeDetail(node{{Name: "live"}}, s, slog.New(slog.DiscardHandler))
	detail := func(token, name string) (d admin.SubscriberDetail, status int) {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/subscribers/detail?subscriber="+name, nil)
		r.RemoteAddr = "127.0.0.1:1"
		r.Header.Set("Authorization", "Bearer "+token)
		w := httptest.NewRecorder()
		as(t, h).ServeHTTP(w, r)
		if err := json.Unmarshal(w.Body.Bytes(), &d); err != nil {
			t.Fatal(err)
		}
		return d, w.Code
	}
	d, _ := detail("operator", "live")
	if d.Kind != admin.Exclusive || d.PlacesTotal != partitions+1 || len(d.Places) > 5 || len(d.Places) == 0 || d.Places[0].Partition == nil || int(*d.Places[0].Partition) != partitions-1 || len(d.History) == 0 {
		t.Errorf("%+v", d)
	}
	if d.FiltersTotal != 1 || len(d.Filters) != 1 || d.Filters[0].Filter != `op == "insert"` || d.Filters[0].Ops[0] != "insert" || d.Filters[0].DB != "shop" {
		t.Errorf("%+v", d.Filters)
	}
	if d, _ = detail("operator", "sink"); d.Kind != admin.Shared || d.PlacesTotal != partitions-1 || *d.Places[0].Partition != 0 || d.Places[0].Position.T != at(100).Time.T {
		t.Errorf("%+v", d)
	}
	if d, status := detail("operator", "no-such"); status != http.StatusNotFound {
		t.Errorf("nobody: %d %+v", status, d)
	}
	for _, name := range []string{"live", "no-such"} {
		if d, status := detail("tenant", name); status != http.StatusForbidden || d.PlacesTotal > 0 {
			t.Errorf("a tenant is shown %s: %d %+v", name, status, d)
		}
	}
}

func TestConfigurationIsShownWithoutSecrets(t *testing.T) {
	t.Parallel()
	c := config.Config{}
	c.Node.ID = "a"
	c.Notices.Webhook.Secret = "very secret"
	h := admin.ServeConfiguration(c, "v1.2.3")
	if status, text := get(t, h); status != http.StatusOK || !strings.Contains(text, `"version":"v1.2.3"`) || !strings.Contains(text, `{"key":"node.id","value":"a"}`) || strings.Contains(text, "very secret") {
		t.Errorf("%d %s", status, text)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/configuration", nil))
	if w.Code != http.StatusForbidden || strings.Contains(w.Body.String(), "node.id") {
		t.Errorf("without an identity: %d %s", w.Code, w.Body)
	}
}

var _ admin.Filtering = (*streamer.Node)(nil)

// Who has no right is refused before anything is looked up, so that neither the answer nor its time
// says which names there are: none of these handlers has a store, a node or a cluster to ask.
func TestWhoMayNothingIsRefusedBeforeAnythingIsLookedUp(t *testing.T) {
	t.Parallel()
	logger := slog.New(slog.DiscardHandler)
	o := admin.Operations{Logger: logger}
	for target, handler := range map[string]http.Handler{
		"GET /v1/subscribers/detail?subscriber=NAME":                      admin.ServeDetail(nil, nil, logger),
		"GET /v1/subscribers/rewind?subscriber=NAME&to=earliest":          o.ServeRewindPlan(),
		"POST /v1/subscribers/rewind?subscriber=NAME&to=earliest":         o.ServeRewind(),
		"POST /v1/subscribers/delete?subscriber=NAME":                     o.ServeDelete(),
		"POST /v1/subscribers/snapshots?subscriber=NAME":                  admin.ServeSnapshots(nil, nil),
		"POST /v1/subscribers/snapshots?subscriber=NAME&operation=wrong":  admin.ServeSnapshots(nil, nil),
		"POST /v1/subscribers/snapshots?subscriber=x&namespace=shop.NAME": admin.ServeSnapshots(nil, nil),
		"POST /v1/nodes/NAME/drain":                                       o.ServeDrain(),
		"POST /v1/partitions/1/handoff?to=NAME":                           o.ServeHandoff(),
		"POST /v1/restarts/pause?slug=NAME":                               o.ServeRestarts(),
		"POST /v1/sinks/NAME/pause":                                       admin.ServeSinks("a", nil, nil, nil),
		"GET /v1/sinks":                                                   admin.ServeSinks("a", nil, nil, nil),
		"GET /v1/audit":                                                   admin.ServeAudit(nil),
		"GET /v1/configuration":                                           admin.ServeConfiguration(config.Config{}, "v"),
	} {
		method, path, _ := strings.Cut(target, " ")
		told := make(map[string]bool)
		for _, name := range []string{"live", "no-such", strings.Repeat("x", 200)} {
			r := httptest.NewRequestWithContext(t.Context(), method, strings.ReplaceAll(path, "NAME", name), nil)
			r.RemoteAddr = "127.0.0.1:1"
			r.Header.Set("Authorization", "Bearer tenant")
			w := httptest.NewRecorder()
			as(t, handler).ServeHTTP(w, r)
			if w.Code != http.StatusForbidden || !strings.Contains(w.Body.String(), "STRM-ACCESS-FORBIDDEN") {
				t.Errorf("%s: %d %s", target, w.Code, w.Body)
			}
			told[w.Body.String()] = true
		}
		if len(told) != 1 {
			t.Errorf("%s: %v", target, told)
		}
	}
}
