package wiring

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
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
			r.handler(false).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
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
