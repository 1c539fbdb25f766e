package wiring

import (
	"cmp"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net/http"
	"runtime"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"

	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/notice"
	"github.com/mongostream/streamer/streamer"
)

// newMetricsRegistry returns a registry with the standard metrics of a process, and its build
// information.
func newMetricsRegistry(version string, logger *slog.Logger) *metricsRegistry {
	r := &metricsRegistry{Registry: prometheus.NewRegistry(), histograms: prometheus.NewRegistry(), logger: logger, failed: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "streamer_metrics_failures_total", Help: "Collections in which a part of the metrics could not be collected: its series are missing.",
	})}
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "streamer_build_info", Help: "1, with the version of the node and of Go.",
		ConstLabels: prometheus.Labels{"version": version, "goversion": runtime.Version()},
	})
	build.Set(1)
	r.MustRegister(build, r.failed, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

// registerLog exports how many lines of the log were dropped; none if unknown.
func (s *Service) registerLog() {
	if s.opts.LogState == nil {
		s.opts.LogState = func() (uint64, time.Duration) { return 0, 0 }
	}
	s.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "streamer_log_dropped_lines_total", Help: "Lines of the log that were dropped because standard error is a pipe that nobody reads.",
	}, func() float64 {
		dropped, _ := s.opts.LogState()
		return float64(dropped)
	}))
}

// logWritten returns the fault of a log that nobody reads.
func (s *Service) logWritten() error {
	const patience = 10 * time.Second
	if dropped, stuck := s.opts.LogState(); stuck > patience {
		return fault.Newf(fault.NodeLog, "a line has waited to be written for %s, %d lines were dropped", stuck.Truncate(time.Second), dropped)
	}
	return nil
}

// A metricsRegistry always answers: a collector that fails costs its own series.
type metricsRegistry struct {
	*prometheus.Registry

	histograms *prometheus.Registry // those among the metrics, which are soon gathered, however many subscribers there are
	logger     *slog.Logger
	failed     prometheus.Counter
}

// Register implements prometheus.Registerer.
func (r *metricsRegistry) Register(c prometheus.Collector) error {
	if err := r.Registry.Register(guardedCollector{c, r}); err != nil {
		return err
	}
	switch c.(type) {
	case prometheus.Histogram, *prometheus.HistogramVec:
		return r.histograms.Register(c)
	}
	return nil
}

// MustRegister implements prometheus.Registerer.
func (r *metricsRegistry) MustRegister(all ...prometheus.Collector) {
	for _, c := range all {
		if err := r.Register(c); err != nil {
			panic(err) // two parts of the node have one metric
		}
	}
}

// fail notes that something could not be collected.
func (r *metricsRegistry) fail(err error) {
	r.failed.Inc()
	r.logger.Error("collecting metrics failed, series are missing", "error", err)
}

// handler serves the metrics of a gatherer, those that can be collected.
func (r *metricsRegistry) handler(from prometheus.Gatherer, openMetrics bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		to := &scraper{ResponseWriter: w, registry: r}
		promhttp.HandlerFor(from, promhttp.HandlerOpts{
			Registry: r.Registry, EnableOpenMetrics: openMetrics, ErrorHandling: promhttp.ContinueOnError, ErrorLog: to,
		}).ServeHTTP(to, req)
	})
}

// A scraper is whoever has asked for the metrics. That it goes away meanwhile is no failure of
// them, and promhttp would tell it once for each metric.
type scraper struct {
	http.ResponseWriter

	registry *metricsRegistry
	gone     bool
}

// Write implements http.ResponseWriter.
func (s *scraper) Write(text []byte) (int, error) {
	n, err := s.ResponseWriter.Write(text)
	s.gone = s.gone || err != nil
	return n, err
}

// Println implements promhttp.Logger, for errors of collected metrics.
func (s *scraper) Println(v ...any) {
	if !s.gone {
		s.registry.fail(fmt.Errorf("%s", fmt.Sprint(v...)))
	}
}

// metrics returns the handler of /metrics at the address for clients: identities that may not read
// everything, and clients without one, get other texts for the names of clients. Without access
// control everybody may read everything.
func (s *Service) metrics() http.Handler {
	openMetrics := s.tracer != nil // traces have exemplars
	veiled := veiledMetrics{s.registry, []byte(cmp.Or(s.origin.Backend.ID, rand.Text()))}
	return s.listeners.Access.Apart(s.registry.handler(s.registry, openMetrics), s.registry.handler(veiled, openMetrics))
}

// veiledMetrics are metrics without the names of clients and of their identities. The text in place
// of a name is the same for all nodes of a cluster, so that alerts and sums count as they do with
// names, and cannot be guessed without the key.
type veiledMetrics struct {
	from prometheus.Gatherer
	key  []byte
}

// Gather implements prometheus.Gatherer.
func (v veiledMetrics) Gather() ([]*dto.MetricFamily, error) {
	families, err := v.from.Gather()
	for _, family := range families {
		for _, m := range family.GetMetric() {
			m.Label = slices.Clone(m.Label) // the labels are the collector's
			for i, label := range m.Label {
				if namesClients(label.GetName(), label.GetValue()) {
					value := v.hidden(label.GetValue())
					m.Label[i] = &dto.LabelPair{Name: label.Name, Value: &value}
				}
			}
		}
	}
	return families, err //nolint:wrapcheck // for promhttp, which shows the others
}

// hidden returns the text in place of a name.
func (v veiledMetrics) hidden(name string) string {
	sum := hmac.New(sha256.New, v.key)
	sum.Write([]byte(name))
	return "hidden-" + hex.EncodeToString(sum.Sum(nil)[:6])
}

// namesClients reports whether the value of a label may be a name that a client has chosen, or that
// of its identity. A label that is not known counts as one.
func namesClients(label, value string) bool {
	switch label {
	case "subscriber":
		return !streamer.Reserved(value) // of sinks
	case "identity":
		return value != notice.OtherIdentities
	default:
		return !slices.Contains(ownLabels(), label)
	}
}

// ownLabels are the labels whose values are words of ours, numbers, or names of the operators' own.
func ownLabels() []string {
	return []string{
		"breaker", "cause", "channel", "code", "goversion", "handler", "method", "outcome", "partition", "reader", "reason", "result", "severity", "shard", "sink", "slug",
		"stage", "state", "status", "subject", "transport", "version",
	}
}

// A guardedCollector ends a collection that panics.
type guardedCollector struct {
	prometheus.Collector

	registry *metricsRegistry
}

// Collect implements prometheus.Collector.
func (g guardedCollector) Collect(ch chan<- prometheus.Metric) {
	defer func() {
		if what := recover(); what != nil {
			g.registry.fail(fmt.Errorf("panic: %v", what))
		}
	}()
	g.Collector.Collect(ch)
}
