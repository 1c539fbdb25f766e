package lane

import "github.com/prometheus/client_golang/prometheus"

// metrics are the Log's own figures.
type metrics struct {
	streams  prometheus.Gauge
	events   prometheus.Counter
	repeated prometheus.Counter
	detached prometheus.Counter
	joins    prometheus.Counter
	catchups prometheus.Counter
	pauses   prometheus.Counter
}

func newMetrics(reg prometheus.Registerer, l *Log) metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "streamer", Subsystem: "log", Name: name, Help: help})
	}
	m := metrics{
		streams: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: "streamer", Subsystem: "log", Name: "streams_open", Help: "Change streams open or being opened, the tail included.",
		}),
		events:   counter("events_total", "Change events read from MongoDB, by all readers."),
		repeated: counter("events_repeated_total", "Change events that a reopened stream repeated, dropped by position."),
		detached: counter("cursors_detached_total", "Cursors that the tail's ring has left behind."),
		joins:    counter("cursors_joined_total", "Cursors that have come back to the tail from a catch-up."),
		catchups: counter("catchups_total", "Catch-up streams opened."),
		pauses:   counter("tail_pauses_total", "Times the tail waited for a catch-up that came no nearer."),
	}
	if reg != nil {
		reg.MustRegister(m.streams, m.events, m.repeated, m.detached, m.joins, m.catchups, m.pauses, gauges{log: l})
	}
	return m
}

// gauges collects what is measured when it is asked for: cursors and ring bytes by reader, and how far those behind stand.
type gauges struct{ log *Log }

//nolint:gochecknoglobals // descriptions are constants
var (
	cursorsDesc  = prometheus.NewDesc("streamer_log_cursors", "Cursors by where they read: tail, catchup, or behind every ring.", []string{"reader"}, nil)
	ringDesc     = prometheus.NewDesc("streamer_log_ring_bytes", "Bytes held in rings.", []string{"reader"}, nil)
	distanceDesc = prometheus.NewDesc("streamer_log_distance_seconds", "Log time between the tail's end and the rearmost cursor.", nil, nil)
)

// Describe implements prometheus.Collector.
func (g gauges) Describe(ch chan<- *prometheus.Desc) {
	ch <- cursorsDesc
	ch <- ringDesc
	ch <- distanceDesc
}

// Collect implements prometheus.Collector.
func (g gauges) Collect(ch chan<- prometheus.Metric) {
	s := g.log.Stats()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	gauge(cursorsDesc, float64(s.TailCursors), "tail")
	gauge(cursorsDesc, float64(s.CatchupCursors), "catchup")
	gauge(cursorsDesc, float64(s.Behind), "behind")
	gauge(ringDesc, float64(s.TailBytes), "tail")
	gauge(ringDesc, float64(s.CatchupBytes), "catchup")
	if s.Open {
		gauge(distanceDesc, s.Distance.Seconds())
	}
}
