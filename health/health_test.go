package health_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/mongostream/streamer/health"
)

func TestHandlersShowTheVerdict(t *testing.T) {
	verdict := health.Verdict{Status: health.Healthy, Ready: true, Problems: []health.Problem{}}
	var membership *health.Membership
	lag := 1.5
	mux := http.NewServeMux()
	health.Node{
		Name: "a", Cluster: "c", Version: "v", Uptime: func() time.Duration { return 90 * time.Second },
		Partitions: func() []health.Partition {
			return []health.Partition{{ID: 0, Status: health.Healthy, Lag: &lag}, {ID: 1, Status: health.Healthy}}
		},
		Judge: func() health.Verdict { return verdict }, Membership: func() *health.Membership { return membership },
	}.Handle(mux)
	get := func(path string, status int, into any) {
		t.Helper()
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
		if w.Code != status || strings.Contains(w.Body.String(), "secret") {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
		if err := json.Unmarshal(w.Body.Bytes(), into); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
	var report map[string]any
	get("/health", 200, &report)
	partitions, _ := report["partitions"].([]any)
	first, _ := partitions[0].(map[string]any)
	second, _ := partitions[1].(map[string]any)
	if report["status"] != "healthy" || report["uptime_seconds"] != 90.0 || report["version"] != "v" || first["lag_seconds"] != 1.5 || first["id"] != 0.0 {
		t.Errorf("%v", report)
	}
	if _, known := second["lag_seconds"]; known {
		t.Error("an unknown lag is shown")
	}
	if _, told := report["membership"]; told {
		t.Error("a node that owns everything tells of a membership")
	}
	membership = &health.Membership{Leader: "b", Plan: 7}
	get("/health", 200, &report)
	if m, _ := report["membership"].(map[string]any); m["leader"] != "b" || m["plan"] != 7.0 || m["detached"] != false {
		t.Errorf("%v", report["membership"])
	}
	verdict.Status = health.Degraded
	get("/health", 200, &report)
	get("/readyz", 200, &report)
	verdict.Problems = []health.Problem{{Subject: "clients", Affects: health.Affects{Subscribers: []string{"secret"}}}}
	get("/health", 200, &report)
	verdict = health.Verdict{Status: health.Unhealthy, Problems: []health.Problem{
		{Subject: "mongodb", Detail: "dial secret", Affects: health.Affects{Nodes: []string{"a"}}}, {Subject: "nodes", Affects: health.Affects{Nodes: []string{"b"}}},
	}}
	get("/health", 503, &report)
	if problems, _ := report["problems"].([]any); report["status"] != "unhealthy" || len(problems) != 2 {
		t.Errorf("%v", report)
	}
	var ready health.Readiness
	get("/readyz", 503, &ready)
	if ready.Ready || len(ready.Problems) != 1 || ready.Problems[0].Subject != "mongodb" {
		t.Errorf("%+v", ready)
	}
	get("/livez", 200, &report)
}

func TestPartitionLagsFromTheConfiguredThreshold(t *testing.T) {
	for lag, want := range map[time.Duration]health.Status{0: health.Healthy, time.Minute: health.Healthy, time.Minute + 1: health.Lagging} {
		if got := (health.Evidence{Lag: lag, LagThreshold: time.Minute}).Status(); got != want {
			t.Errorf("%s: %s", lag, got)
		}
	}
}
