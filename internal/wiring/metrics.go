package wiring

import (
	"fmt"
	"log/slog"
	"net/http"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/mongostream/streamer/fault"
)

// newMetricsRegistry returns a registry with the standard metrics of a process, and its build
// information.
func newMetricsRegistry(version string, logger *slog.Logger) *metricsRegistry {
	r := &metricsRegistry{Registry: prometheus.NewRegistry(), logger: logger, failed: prometheus.NewCounter(prometheus.CounterOpts{
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

	logger *slog.Logger
	failed prometheus.Counter
}

// Register implements prometheus.Registerer.
func (r *metricsRegistry) Register(c prometheus.Collector) error {
	return r.Registry.Register(guardedCollector{c, r})
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

// Println implements promhttp.Logger, for errors of collected metrics.
func (r *metricsRegistry) Println(v ...any) { r.fail(fmt.Errorf("%s", fmt.Sprint(v...))) }

// handler serves the metrics, those that can be collected.
func (r *metricsRegistry) handler(openMetrics bool) http.Handler {
	return promhttp.HandlerFor(r.Registry, promhttp.HandlerOpts{
		Registry: r.Registry, EnableOpenMetrics: openMetrics, ErrorHandling: promhttp.ContinueOnError, ErrorLog: r,
	})
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
