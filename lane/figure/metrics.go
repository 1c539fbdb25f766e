package figure

import "github.com/prometheus/client_golang/prometheus"

// Counters are what a log counts.
type Counters struct {
	Streams  prometheus.Gauge
	Events   prometheus.Counter
	Repeated prometheus.Counter
	Detached prometheus.Counter
	Joins    prometheus.Counter
	Catchups prometheus.Counter
	Pauses   prometheus.Counter
}

// NewCounters makes counters and registers them, and a [Collector]; nil registers them nowhere.
func NewCounters(reg prometheus.Registerer, stats func() Stats) *Counters {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "streamer", Subsystem: "log", Name: name, Help: help})
	}
	m := &Counters{
		Streams: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: "streamer", Subsystem: "log", Name: "streams_open", Help: "Change streams open or being opened, the tail included.",
		}),
		Events:   counter("events_total", "Change events read from MongoDB, by all readers."),
		Repeated: counter("events_repeated_total", "Change events that a reopened stream repeated, dropped by position."),
		Detached: counter("cursors_detached_total", "Cursors that the tail's ring has left behind."),
		Joins:    counter("cursors_joined_total", "Cursors that have come back to the tail from a catch-up."),
		Catchups: counter("catchups_total", "Catch-up streams opened."),
		Pauses:   counter("tail_pauses_total", "Times the tail waited for a catch-up that came no nearer."),
	}
	if reg != nil {
		reg.MustRegister(m.Streams, m.Events, m.Repeated, m.Detached, m.Joins, m.Catchups, m.Pauses, Collector{Stats: stats})
	}
	return m
}

// A Collector collects what is measured when it is asked for: cursors and ring bytes by reader, and how far those behind stand.
type Collector struct{ Stats func() Stats }

//nolint:gochecknoglobals // descriptions are constants
var (
	cursorsDesc  = prometheus.NewDesc("streamer_log_cursors", "Cursors by where they read: tail, catchup, or behind every ring.", []string{"reader"}, nil)
	ringDesc     = prometheus.NewDesc("streamer_log_ring_bytes", "Bytes held in rings.", []string{"reader"}, nil)
	distanceDesc = prometheus.NewDesc("streamer_log_distance_seconds", "Log time between the tail's end and the rearmost cursor.", nil, nil)
)

// Describe implements prometheus.Collector.
func (c Collector) Describe(ch chan<- *prometheus.Desc) {
	ch <- cursorsDesc
	ch <- ringDesc
	ch <- distanceDesc
}

// Collect implements prometheus.Collector.
func (c Collector) Collect(ch chan<- prometheus.Metric) {
	s := c.Stats()
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
