package supervisor

import (
	"bytes"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// registered are the names of the supervisor's metrics.
func registered(t *testing.T) (names []string) {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	m := newMetrics(registry)
	m.misses.WithLabelValues("a/hub").Inc()
	m.restarts.WithLabelValues("a/hub").Inc()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		names = append(names, f.GetName())
	}
	return names
}

func TestMetricsHaveTheNamesOfTheDesign(t *testing.T) {
	names := registered(t)
	for _, want := range []string{"components_healthy", "components_unhealthy", "restarts_total", "misses_total", "sweep_duration_ms", "sweeps_total"} {
		if !slices.Contains(names, "streamer_supervisor_"+want) {
			t.Errorf("no %s among %v", want, names)
		}
	}
}

// That each has a runbook and a case for promtool is test.TestEveryAlertHasItsRunbook.
func TestAlertRulesNameMetrics(t *testing.T) {
	rules, err := os.ReadFile("../deploy/prometheus/rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	names := registered(t)
	used := regexp.MustCompile(`streamer_supervisor_\w+`).FindAllString(string(rules), -1)
	for _, name := range used {
		if !slices.Contains(names, strings.TrimSuffix(name, "_bucket")) {
			t.Errorf("there is no metric %s", name)
		}
	}
	if len(used) < 3 {
		t.Errorf("the rules name %d metrics", len(used))
	}
	for _, alert := range []string{"SupervisorComponentDown", "SupervisorRestartBudgetExhausted", "SupervisorSweepMissing", "SupervisorSweepLatencyHigh"} {
		if !strings.Contains(string(rules), "alert: "+alert+"\n") {
			t.Errorf("no alert %s", alert)
		}
	}
}

// Prometheus does not count what a series begins with: without the 0 the first restart would be
// missing in what the alert of the budget counts.
func TestRestartsAreCountedFromZero(t *testing.T) {
	w, store := newWard(t), NewMemory(time.Minute)
	w.add("a", "hub", "tail")
	s, _ := w.watch(store, long)
	s.Sweep(t.Context())
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(s.metrics.restarts)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	if len(families) != 1 || len(families[0].GetMetric()) != 2 {
		t.Fatalf("%v", families)
	}
	for _, m := range families[0].GetMetric() {
		if m.GetCounter().GetValue() != 0 {
			t.Errorf("%v", m)
		}
	}
}

func TestMissIsLoggedWithItsFields(t *testing.T) {
	var log bytes.Buffer
	w, store := newWard(t), NewMemory(time.Minute)
	w.add("a", "hub", "tail")
	s, _ := w.watch(store, long)
	s.logger = slog.New(slog.NewTextHandler(&log, nil))
	s.Sweep(t.Context())
	w.spoil("a/hub", says(503, nil))
	s.Sweep(t.Context())
	for _, want := range []string{`msg="component missed its heartbeat"`, "slug=a/hub", "miss_count=1", "threshold=3", "cause=bad_body", "action=none"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("no %s in %s", want, &log)
		}
	}
	if strings.Contains(log.String(), "last_seen_ms=0") {
		t.Error("it was seen")
	}
}

// Settings that delay pages are told once in the log, whenever they change.
func TestSettingsThatDelayPagesAreLogged(t *testing.T) {
	var log bytes.Buffer
	w, store := newWard(t), NewMemory(time.Minute)
	w.add("a", "hub")
	s, _ := w.watch(store, 30*time.Second)
	s.logger = slog.New(slog.NewTextHandler(&log, nil))
	told := func() int {
		s.Sweep(t.Context())
		s.Sweep(t.Context())
		return strings.Count(log.String(), `msg="pages are delayed by the supervisor's settings"`)
	}
	seconds, misses := 31.0, 4
	for i, c := range []struct {
		change Change
		want   int
	}{{Change{}, 0}, {Change{Interval: &seconds}, 1}, {Change{Interval: &seconds, Misses: &misses}, 2}, {Change{}, 2}, {Change{Misses: &misses}, 3}} {
		if err := store.Set(t.Context(), c.change); err != nil {
			t.Fatal(err)
		}
		if got := told(); got != c.want {
			t.Errorf("change %d: told %d times, want %d: %s", i, got, c.want, &log)
		}
	}
	if !strings.Contains(log.String(), "heartbeat_interval=31s missed_heartbeats_to_alert=4 paged_after=2m4s") {
		t.Errorf("%s", &log)
	}
}

func TestDashboardNamesMetrics(t *testing.T) {
	text, err := os.ReadFile("../deploy/grafana/dashboards/supervisor.json")
	if err != nil {
		t.Fatal(err)
	}
	names, used := registered(t), regexp.MustCompile(`streamer_supervisor_\w+`).FindAllString(string(text), -1)
	for _, name := range used {
		if !slices.Contains(names, strings.TrimSuffix(name, "_bucket")) {
			t.Errorf("there is no metric %s", name)
		}
	}
	for _, name := range names {
		if !slices.ContainsFunc(used, func(u string) bool { return strings.TrimSuffix(u, "_bucket") == name }) {
			t.Errorf("the dashboard does not show %s", name)
		}
	}
}
