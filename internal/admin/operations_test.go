package admin_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/cluster/clustertest"
	"github.com/mongostream/streamer/gateway/access"
	"github.com/mongostream/streamer/handoff"
	"github.com/mongostream/streamer/internal/admin"
	"github.com/mongostream/streamer/notice"
	published "github.com/mongostream/streamer/sink"
	"github.com/mongostream/streamer/supervisor"
)

// server is the operations of a cluster as a node serves them to identities without a name.
func server(t *testing.T, o admin.Operations) http.Handler {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle("POST /v1/nodes/{node}/{do}", o.ServeDrain())
	mux.Handle("POST /v1/partitions/{partition}/handoff", o.ServeHandoff())
	mux.Handle("POST /v1/restarts/{do}", o.ServeRestarts())
	mux.Handle("POST /v1/subscribers/rewind", o.ServeRewind())
	mux.Handle("POST /v1/subscribers/delete", o.ServeDelete())
	open, err := access.New(access.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return access.SameOrigin(nil, open.Handler(mux))
}

// answers checks how a server answers a request: with this status, and a text that has these words.
func answers(t *testing.T, handler http.Handler, target string, status int, says string, header ...string) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, target, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	if text := w.Body.String(); w.Code != status || !strings.Contains(text, says) {
		t.Errorf("%s %s: %d %s, want %d and %q", target, header, w.Code, text, status, says)
	}
}

// operated returns the commands in the audit log.
func operated(board *notice.Board) (commands []string) {
	all, _ := board.Since(0)
	for _, n := range all {
		command, _ := n.Fields["command"].(string)
		arguments, _ := n.Fields["arguments"].([]string)
		commands = append(commands, strings.Join(append([]string{command}, arguments...), " "))
	}
	return commands
}

// A stage is a cluster of two nodes, of which node a owns everything.
type stage struct {
	t       *testing.T
	cluster handoff.Cluster
}

// play has a test play on a stage whose nodes send heartbeats, in virtual time.
func play(t *testing.T, run func(s *stage)) {
	synctest.Test(t, func(t *testing.T) {
		memory := clustertest.NewMemory(partitions, nil)
		ctx, stop := context.WithCancel(t.Context())
		var beating sync.WaitGroup
		for _, node := range []string{"a", "b"} {
			beat := cluster.Heartbeat{Node: node, Process: "p" + node, Status: cluster.StatusHealthy, Version: "v1.0.0"}
			m, err := memory.For(node).Join(t.Context(), beat, time.Hour)
			if err == nil && node == "a" {
				_, err = m.Claim(t.Context(), []change.Partition{0, 1, 2, 3})
			}
			if err != nil {
				t.Fatal(err)
			}
			beating.Go(func() {
				tick := time.NewTicker(2 * time.Second)
				defer tick.Stop()
				for ctx.Err() == nil {
					_ = m.Beat(ctx, beat)
					select {
					case <-tick.C:
					case <-ctx.Done():
					}
				}
			})
		}
		run(&stage{t, handoff.Cluster{View: memory.For("operator"), Directives: memory.Operator("operator")}})
		stop()
		beating.Wait()
	})
}

func TestOperatorsActOverHTTP(t *testing.T) {
	play(t, func(s *stage) {
		t := s.t
		board, restarts := notice.NewBoard(notice.Config{}), supervisor.NewMemory(time.Hour)
		h := server(t, admin.Operations{Cluster: s.cluster, Restarts: restarts, Board: board, Trusted: true, Supervised: func(slug string) bool { return strings.HasPrefix(slug, "a") }})
		for _, step := range []struct {
			target string
			status int
			says   string
		}{
			{"/v1/nodes/b/drain", http.StatusAccepted, `"drain"`},
			{"/v1/partitions/1/handoff?to=b", http.StatusConflict, "STRM-HANDOFF-TARGET-UNFIT"},
			{"/v1/nodes/a/drain", http.StatusConflict, "STRM-DRAIN-NOBODY"},
			{"/v1/nodes/b/undrain", http.StatusAccepted, "--undo"},
			{"/v1/nodes/b/undrain", http.StatusBadRequest, "not being drained"},
			{"/v1/nodes/c/drain", http.StatusConflict, "STRM-HANDOFF-TARGET-UNKNOWN"},
			{"/v1/nodes/b/kill", http.StatusBadRequest, "drained or undrained"},
			{"/v1/partitions/1/handoff?to=b", http.StatusAccepted, `"handoff"`},
			{"/v1/partitions/1/handoff?to=b", http.StatusConflict, "STRM-HANDOFF-MOVING"},
			{"/v1/partitions/99/handoff?to=b", http.StatusBadRequest, "partition 99 of"},
			{"/v1/partitions/x/handoff?to=b", http.StatusBadRequest, "no partition"},
			{"/v1/restarts/pause?slug=a/hub&for=2h", http.StatusAccepted, "2h0m0s"},
			{"/v1/restarts/pause?slug=a/hub&for=1000h", http.StatusBadRequest, "between"},
			{"/v1/restarts/pause?slug=c/hub", http.StatusNotFound, "c/hub"},
			{"/v1/restarts/resume?slug=c/hub", http.StatusAccepted, "--undo"},
			{"/v1/restarts/pause", http.StatusBadRequest, "slug"},
			{"/v1/restarts/stop?slug=a", http.StatusBadRequest, "paused or resumed"},
		} {
			answers(t, h, step.target, step.status, step.says)
		}
		view, err := s.cluster.View.View(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if pin := view.Directives.Pinned[1]; pin.To != "b" || len(view.Directives.Pinned) != 1 || len(view.Directives.Drained) != 0 {
			t.Errorf("%+v", view.Directives)
		}
		standing, err := restarts.Look(t.Context())
		if err != nil || len(standing.Paused) != 1 || standing.Paused[0].Slug != "a/hub" || standing.Paused[0].By != "anonymous" {
			t.Errorf("%+v, %v", standing.Paused, err)
		}
		want := "drain b; drain b --undo; handoff 1 --to b; supervisor pause-restart a/hub --for 2h0m0s; supervisor pause-restart c/hub --undo"
		if got := strings.Join(operated(board), "; "); got != want {
			t.Errorf("audit log: %s", got)
		}
		answers(t, h, "/v1/restarts/resume?slug=a/hub", http.StatusAccepted, "")
		if standing, err = restarts.Look(t.Context()); err != nil || len(standing.Paused) != 0 {
			t.Errorf("%+v, %v", standing.Paused, err)
		}
	})
}

// Nobody without a name operates on a node that other machines reach, no page of another origin
// does, and nothing of what is refused is recorded or done.
func TestStrangersDoNotOperate(t *testing.T) {
	play(t, func(s *stage) {
		t := s.t
		board := notice.NewBoard(notice.Config{})
		o := admin.Operations{Cluster: s.cluster, Restarts: supervisor.NewMemory(time.Hour), Board: board}
		targets := []string{"/v1/nodes/b/drain", "/v1/partitions/1/handoff?to=b", "/v1/restarts/pause?slug=a/hub"}
		for _, target := range targets {
			answers(t, server(t, o), target, http.StatusForbidden, "STRM-ACCESS-FORBIDDEN")
		}
		o.Trusted = true
		for _, target := range targets {
			for _, header := range [][]string{{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"}, {"Origin", "https://evil.example"}} {
				answers(t, server(t, o), target, http.StatusForbidden, "STRM-ACCESS-FOREIGN", header...)
			}
		}
		view, err := s.cluster.View.View(t.Context())
		if err != nil || len(view.Directives.Drained)+len(view.Directives.Pinned) > 0 || len(operated(board)) > 0 {
			t.Errorf("%+v, %v, %v", view.Directives, operated(board), err)
		}
		answers(t, server(t, o), targets[0], http.StatusAccepted, "", "Sec-Fetch-Site", "same-origin") // the page of the node
		answers(t, server(t, admin.Operations{Board: board, Trusted: true}), targets[0], http.StatusBadRequest, "single node")
	})
}

// A mute etcd answers nothing more: at all, or to those who write.
type mute struct {
	handoff.DirectiveStore
	supervisor.Control
	cluster handoff.View
	reads   bool
	tried   int // writes
}

func (m *mute) View(ctx context.Context) (cluster.View, error) {
	if m.reads {
		return m.cluster.View(ctx)
	}
	return cluster.View{}, wait(ctx)
}

func (m *mute) Hints(ctx context.Context) <-chan struct{} { return m.cluster.Hints(ctx) }

func (m *mute) write(ctx context.Context) error {
	m.tried++
	return wait(ctx)
}

func (m *mute) Drain(ctx context.Context, _ string, _ cluster.Drain) error { return m.write(ctx) }
func (m *mute) Undrain(ctx context.Context, _ string) error                { return m.write(ctx) }
func (m *mute) Pin(ctx context.Context, _ change.Partition, _ cluster.Pin, _ time.Duration) error {
	return m.write(ctx)
}
func (m *mute) Pause(ctx context.Context, _ supervisor.Pause, _ time.Duration) error {
	return m.write(ctx)
}
func (m *mute) Unpause(ctx context.Context, _ string) error { return m.write(ctx) }

// While etcd answers nothing an operation is refused in time, with its code, and nothing of it
// happens later. Where etcd falls silent while it is written, the answer says that the outcome is
// unknown.
func TestOperationsAreTrueWhileEtcdIsSilent(t *testing.T) {
	for _, c := range []struct {
		target     string
		reads      bool
		within     time.Duration
		says       string
		mayBeDone  bool
		isRecorded string
	}{
		{"/v1/nodes/a/drain", false, 8 * time.Second, "etcd has not answered", false, ""},
		{"/v1/nodes/b/undrain", false, 8 * time.Second, "etcd has not answered", false, ""},
		{"/v1/partitions/1/handoff?to=b", false, 8 * time.Second, "etcd has not answered", false, ""},
		{"/v1/subscribers/rewind?subscriber=sink&to=earliest", false, 8 * time.Second, "etcd has not answered", false, ""},
		{"/v1/subscribers/delete?subscriber=sink", false, 8 * time.Second, "etcd has not answered", false, ""},
		{"/v1/nodes/a/drain", true, admin.AnswerTimeout, "whether it is done is unknown", true, "drain a"},
		{"/v1/nodes/b/undrain", true, admin.AnswerTimeout, "whether it is done is unknown", true, "drain b --undo"},
		{"/v1/partitions/1/handoff?to=b", true, admin.AnswerTimeout, "whether it is done is unknown", true, "handoff 1 --to b"},
		{"/v1/restarts/pause?slug=a", true, admin.AnswerTimeout, "whether it is done is unknown", true, "supervisor pause-restart a --for 1h0m0s"},
		{"/v1/restarts/resume?slug=a", true, admin.AnswerTimeout, "whether it is done is unknown", true, "supervisor pause-restart a --undo"},
	} {
		play(t, func(s *stage) {
			t := s.t
			if strings.Contains(c.target, "undrain") {
				if err := s.cluster.Directives.Drain(t.Context(), "b", cluster.Drain{}); err != nil {
					t.Fatal(err)
				}
			}
			etcd := &mute{cluster: s.cluster.View, reads: c.reads}
			board := notice.NewBoard(notice.Config{})
			h := server(t, admin.Operations{
				Cluster: handoff.Cluster{View: etcd, Directives: etcd}, Restarts: etcd, Board: board, Trusted: true,
				Movable: admin.Movable{Store: silent{}, Source: &source{}}, Logger: slog.New(slog.DiscardHandler),
			})
			begun := time.Now()
			answers(t, h, c.target, http.StatusServiceUnavailable, "STRM-ETCD-UNREACHABLE")
			answers(t, h, c.target, http.StatusServiceUnavailable, c.says)
			if took := time.Since(begun) / 2; took > c.within {
				t.Errorf("%s: answered after %s", c.target, took)
			}
			time.Sleep(5 * time.Minute)
			if done := etcd.tried > 0; done != c.mayBeDone {
				t.Errorf("%s: written: %v", c.target, done)
			}
			if told := strings.Join(operated(board), "; "); !strings.HasPrefix(told, c.isRecorded) || c.isRecorded == "" && told != "" {
				t.Errorf("%s: recorded: %s", c.target, told)
			}
		})
	}
}

// A client that closes its side of the connection meanwhile, and still reads the other one, gets
// the same answer: the operation continues without it, so nobody may take it for refused.
func TestOperationThatContinuesIsNotCalledRefused(t *testing.T) {
	play(t, func(s *stage) {
		etcd := &mute{cluster: s.cluster.View, reads: true}
		h := server(s.t, admin.Operations{
			Cluster: handoff.Cluster{View: etcd, Directives: etcd}, Board: notice.NewBoard(notice.Config{}), Trusted: true, Logger: slog.New(slog.DiscardHandler),
		})
		ctx, leave := context.WithCancel(s.t.Context())
		defer leave()
		time.AfterFunc(time.Second, leave)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodPost, "/v1/nodes/a/drain", nil))
		if text := w.Body.String(); etcd.tried != 1 || w.Code != http.StatusServiceUnavailable || !strings.Contains(text, "whether it is done is unknown") {
			s.t.Errorf("tried %d times: %d %s", etcd.tried, w.Code, text)
		}
	})
}

// What has begun is not called failed: a node pauses a sink at once, and tells whom the others hear
// it from, and when.
func TestPausedSinkIsNoFailureWhileEtcdIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		board := notice.NewBoard(notice.Config{})
		out := published.New(published.Config{Name: "out", Metrics: published.NewMetrics(nil)}, nil, nil)
		h := access.Everybody().Handler(admin.ServeSinks("a", func() []*published.Sink { return []*published.Sink{out} }, board, wait))
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/sinks/out/pause", nil)
		r.SetPathValue("name", "out")
		r.SetPathValue("do", "pause")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if text := w.Body.String(); w.Code != http.StatusAccepted || !strings.Contains(text, `"pending":"this node does so now`) || len(operated(board)) != 1 {
			t.Errorf("%d %s, recorded %v", w.Code, text, operated(board))
		}
	})
}
