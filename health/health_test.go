package health_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/mongostream/streamer/health"
)

func TestOverall(t *testing.T) {
	ok := health.Result{OK: true, Severity: health.Critical}
	well, sick := health.Partition{Status: health.Healthy}, health.Partition{Status: "lagging"}
	for name, c := range map[string]struct {
		checks     []health.Result
		partitions []health.Partition
		want       health.Status
	}{
		"all well":               {[]health.Result{ok}, []health.Partition{well, well}, health.Healthy},
		"nothing to look at":     {nil, nil, health.Healthy},
		"a warning":              {[]health.Result{ok, {Severity: health.Warning}}, []health.Partition{well}, health.Degraded},
		"a critical check":       {[]health.Result{{Severity: health.Warning}, {Severity: health.Critical}}, []health.Partition{well}, health.Unhealthy},
		"one of three is sick":   {[]health.Result{ok}, []health.Partition{well, sick, well}, health.Degraded},
		"half of them are sick":  {[]health.Result{ok}, []health.Partition{well, sick}, health.Unhealthy},
		"a warning and one sick": {[]health.Result{{Severity: health.Warning}}, []health.Partition{well, sick, well}, health.Degraded},
	} {
		if got := health.Overall(c.checks, c.partitions); got != c.want {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func TestHandlersSayWhatTheChecksSay(t *testing.T) {
	var r health.Registry
	var reading, saving error
	r.Register(health.Check{Name: "reading", Severity: health.Critical, Ready: true, Text: "reads", Test: func() error { return reading }})
	r.Register(health.Check{Name: "marks", Severity: health.Warning, Text: "saves", Test: func() error { return saving }})
	var membership *health.Membership
	lag := 1.5
	mux := http.NewServeMux()
	r.Handle(mux, health.Node{
		Name: "a", Cluster: "c", Version: "v", Uptime: func() time.Duration { return 90 * time.Second },
		Partitions: func() []health.Partition {
			return []health.Partition{{ID: 0, Status: health.Healthy, Lag: &lag}, {ID: 1, Status: health.Healthy}}
		},
		Membership: func() *health.Membership { return membership },
	})
	get := func(path string, status int, into any) {
		t.Helper()
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
		if w.Code != status {
			t.Errorf("%s: %d", path, w.Code)
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
	if report["status"] != "healthy" || report["uptime"] != 90.0 || report["version"] != "v" || first["lag"] != 1.5 || first["id"] != 0.0 {
		t.Errorf("%v", report)
	}
	if _, known := second["lag"]; known {
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
	saving = errors.New("store away")
	get("/health", 200, &report)
	if report["status"] != "degraded" {
		t.Errorf("%v", report["status"])
	}
	get("/readyz", 200, &report)
	reading = errors.New("stream broken")
	get("/health", 503, &report)
	get("/readyz", 503, &report)
	get("/livez", 200, &report)
}

func TestPartitionLagsFromTheConfiguredThreshold(t *testing.T) {
	for lag, want := range map[time.Duration]health.Status{0: health.Healthy, time.Minute: health.Healthy, time.Minute + 1: health.Lagging} {
		if got := (health.Evidence{Lag: lag, LagThreshold: time.Minute}).Status(); got != want {
			t.Errorf("%s: %s", lag, got)
		}
	}
}
