package wiring

import (
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mongostream/streamer/internal/admin"
)

// A spoilt collector panics, or collects what no series can be made of, or one series twice.
type spoilt struct{ name, how string }

func (f spoilt) Describe(ch chan<- *prometheus.Desc) { ch <- f.desc() }

func (f spoilt) desc() *prometheus.Desc {
	return prometheus.NewDesc(f.name, "help", []string{"l"}, nil)
}

func (f spoilt) Collect(ch chan<- prometheus.Metric) {
	series := func(label string) { ch <- prometheus.MustNewConstMetric(f.desc(), prometheus.GaugeValue, 1, label) }
	series("before")
	switch f.how {
	case "panics":
		panic("broken")
	case "is not UTF-8":
		series("\xff")
	case "is there twice":
		series("before")
	}
	series("after")
}

// Whatever a collector does, the others are shown, and that something is missing is counted.
func TestMetricsAnswerAlthoughACollectorFails(t *testing.T) {
	for _, how := range []string{"panics", "is not UTF-8", "is there twice"} {
		r := newMetricsRegistry("v", slog.New(slog.DiscardHandler))
		r.MustRegister(spoilt{"bad", how}, spoilt{"good", ""})
		for range 2 {
			w := httptest.NewRecorder()
			r.handler(r, false).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
			for _, want := range []string{"streamer_build_info{", `good{l="before"} 1`, `good{l="after"} 1`, `bad{l="before"} 1`} {
				if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), want) {
					t.Errorf("a metric that %s: %d, without %s", how, w.Code, want)
				}
			}
		}
		families, err := r.Gather()
		if err == nil && how != "panics" && how != "is not UTF-8" {
			t.Errorf("a metric that %s is no error", how)
		}
		for _, f := range families {
			if f.GetName() == "streamer_metrics_failures_total" && f.GetMetric()[0].GetCounter().GetValue() < 2 {
				t.Errorf("a metric that %s: %v", how, f)
			}
		}
	}
	r := newMetricsRegistry("v", slog.New(slog.DiscardHandler))
	r.MustRegister(spoilt{"good", ""})
	if r.Register(spoilt{"good", ""}) == nil {
		t.Error("one metric was registered twice")
	}
}

// A scraper that goes away meanwhile is no failure of the metrics, whatever the connection's error
// is: promhttp would tell it once for each of them. What fails before is told.
func TestScraperThatGoesAwayIsNotLogged(t *testing.T) {
	for _, broken := range []error{syscall.EPIPE, errors.New("client disconnected")} { // by HTTP/1.1 and HTTP/2
		var text strings.Builder
		r := newMetricsRegistry("v", slog.New(slog.NewTextHandler(&text, nil)))
		scrape := func() {
			r.handler(r, false).ServeHTTP(gone{httptest.NewRecorder(), broken}, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
		}
		scrape()
		if text.Len() > 0 {
			t.Error(text.String())
		}
		r.MustRegister(spoilt{"bad", "is there twice"})
		scrape()
		if n := strings.Count(text.String(), "level=ERROR"); n != 1 {
			t.Errorf("%d failures are logged, not 1: %s", n, &text)
		}
	}
}

// gone writes to a connection that is broken.
type gone struct {
	http.ResponseWriter

	broken error
}

func (g gone) Write([]byte) (int, error) { return 0, g.broken }

// The charts of the last hour ask the histograms alone: not what has a series for each subscriber,
// nor what judges the node.
func TestStagesOfTheHistoryAskHistogramsOnly(t *testing.T) {
	s := &Service{registry: newMetricsRegistry("v", slog.New(slog.DiscardHandler))}
	stages := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "streamer_stage_seconds", Help: "h"}, []string{"stage"})
	held := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "streamer_mongodb_held_seconds", Help: "h"})
	s.registry.MustRegister(stages, held, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "g", Help: "h"}, func() float64 {
		t.Error("a gauge was asked")
		return 0
	}))
	stages.WithLabelValues("hub").Observe(2)
	held.Observe(3)
	if got, want := s.stages(), []admin.Stage{{Name: "mongodb", Seconds: 3, Count: 1}, {Name: "hub", Seconds: 2, Count: 1}}; !slices.Equal(got, want) {
		t.Errorf("%+v, not %+v", got, want)
	}
}

// Who may not read everything gets no name of a client: not by the labels that name them, and not
// by one that nobody has thought of. A name has the same text at all nodes, whatever it is no name
// has that of another, and sums are what they are.
func TestMetricsWithoutTheNamesOfClients(t *testing.T) {
	text := func(from prometheus.Gatherer) string {
		r := newMetricsRegistry("v", slog.New(slog.DiscardHandler))
		w := httptest.NewRecorder()
		r.handler(from, false).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
		if w.Code != http.StatusOK {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		return w.Body.String()
	}
	r := prometheus.NewRegistry()
	for label, values := range map[string][]string{
		"subscriber": {"tenant/secret-a", "secret-b", "sink/orders", "stdout"}, "identity": {"secret-c", "other"}, "unheard": {"secret-d"}, "reason": {"left"},
	} {
		gauge := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "of_" + label, Help: "h"}, []string{label})
		for i, value := range values {
			gauge.WithLabelValues(value).Set(float64(10 + i))
		}
		r.MustRegister(gauge)
	}
	whole := text(r)
	veiled := text(veiledMetrics{r, []byte("k")})
	if strings.Contains(veiled, "secret") || strings.Count(veiled, "hidden-") != 4 {
		t.Errorf("%s", veiled)
	}
	for _, want := range []string{`{subscriber="sink/orders"} 12`, `{subscriber="stdout"} 13`, `{identity="other"} 11`, `{reason="left"} 10`} {
		if !strings.Contains(veiled, want) {
			t.Errorf("without %s: %s", want, veiled)
		}
	}
	if strings.Count(veiled, "\n") != strings.Count(whole, "\n") || text(r) != whole {
		t.Errorf("%s, of\n%s", veiled, whole)
	}
	if text(veiledMetrics{r, []byte("k")}) != veiled {
		t.Error("another node has other texts")
	}
	if text(veiledMetrics{r, []byte("another")}) == veiled {
		t.Error("who knows the names knows their texts")
	}
}

// Each label of a metric is known as one that names clients, or as one that does not.
func TestLabelsThatNameClientsAreKnown(t *testing.T) {
	reference, err := os.ReadFile("../../docs/reference/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	var labels []string
	for _, row := range regexp.MustCompile("(?m)^\\| `streamer_\\w+` \\| ([^|]+) \\|").FindAllStringSubmatch(string(reference), -1) {
		for _, label := range regexp.MustCompile("`(\\w+)`").FindAllStringSubmatch(row[1], -1) {
			labels = append(labels, label[1])
		}
	}
	if !slices.Contains(labels, "subscriber") || !slices.Contains(labels, "identity") {
		t.Fatalf("%v", labels)
	}
	for _, label := range labels {
		naming := label == "subscriber" || label == "identity"
		if namesClients(label, "x") != naming {
			t.Errorf("label %s: decide whether its values are names of clients", label)
		}
	}
}
