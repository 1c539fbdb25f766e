package supervisor

import "github.com/prometheus/client_golang/prometheus"

// metrics are the metrics of a Supervisor.
type metrics struct {
	healthy, unhealthy, unwatched, registryAge prometheus.Gauge
	restarts, misses                           *prometheus.CounterVec
	duration                                   prometheus.Histogram
	sweeps, failures, pings                    prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) metrics {
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: "streamer_supervisor_" + name, Help: help})
	}
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "streamer_supervisor_" + name, Help: help})
	}
	bySlug := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "streamer_supervisor_" + name, Help: help}, []string{"slug"})
	}
	m := metrics{
		healthy:     gauge("components_healthy", "Components that made progress in the last sweep; 0 at nodes that do not sweep."),
		unhealthy:   gauge("components_unhealthy", "Components that have missed as many sweeps as are tolerated; 0 at nodes that do not sweep."),
		unwatched:   gauge("nodes_unwatched", "Nodes whose components cannot be asked, because they tell no address or one of the loopback of another machine."),
		registryAge: gauge("registry_age_seconds", "Time since the cluster's members were last read by the node that sweeps."),
		restarts:    bySlug("restarts_total", "Restarts ordered, by component."),
		misses:      bySlug("misses_total", "Missed heartbeats, by component."),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "streamer_supervisor_sweep_duration_ms", Help: "Duration of a sweep over all components in milliseconds.",
			Buckets: []float64{5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10000, 25000, 50000, 100000},
		}),
		sweeps:   counter("sweeps_total", "Sweeps completed by this node."),
		failures: counter("report_failures_total", "Reports that could not be written at once; they are written with the next ones."),
		pings:    counter("ping_failures_total", "Pings to the external deadman that failed."),
	}
	if reg != nil {
		reg.MustRegister(m.healthy, m.unhealthy, m.unwatched, m.registryAge, m.restarts, m.misses, m.duration, m.sweeps, m.failures, m.pings)
	}
	return m
}
