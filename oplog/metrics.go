package oplog

import "github.com/prometheus/client_golang/prometheus"

// metrics are the metrics of a Log.
type metrics struct {
	window                            prometheus.Gauge
	events, repeated, duplicates      prometheus.Counter
	rescanned                         prometheus.Counter
	detached, joins, catchups, pauses prometheus.Counter
	jumps, reread, gaps               prometheus.Counter
	losses                            *prometheus.CounterVec
}

// newMetrics creates the metrics and registers them unless reg is nil.
func newMetrics(reg prometheus.Registerer, stats func() Stats) *metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "streamer", Subsystem: "log", Name: name, Help: help})
	}
	// design makes a counter that has a name of its own in the design of the service's reliability.
	design := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "streamer", Name: name, Help: help})
	}
	m := &metrics{
		window: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: "streamer", Name: "dedup_cache_size", Help: "Events of the latest cluster time that the tail's deduplication window remembers.",
		}),
		gaps:       design("gaps_detected_total", "Stretches of the oplog that were or may have been missed: read again, or lost."),
		events:     counter("events_total", "Change events read from MongoDB, by all readers."),
		repeated:   counter("events_repeated_total", "Change events that a reopened stream repeated, dropped by position."),
		duplicates: design("duplicate_events_total", "Change events dropped because their changes came before under another form of resume token."),
		rescanned:  design("rescan_events_total", "Change events of stretches that were read again because cluster time had jumped over them without proof of continuity, up to the one at which that was seen."),
		detached:   counter("cursors_detached_total", "Cursors whose place in the tail's ring was overwritten."),
		joins:      counter("cursors_joined_total", "Cursors that moved from a catch-up to the tail."),
		catchups:   counter("catchups_total", "Catch-up streams opened."),
		pauses:     counter("tail_pauses_total", "Pauses of the tail for a catch-up without progress."),
		jumps:      counter("jumps_total", "Jumps of cluster time beyond the limit, whether or not continuity was proven."),
		reread:     counter("rereads_total", "Stretches read again because continuity across a jump was not proven."),
		losses: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "streamer", Subsystem: "log", Name: "losses_total", Help: "Losses found by the tail, which are everybody's, by reason.",
		}, []string{"reason"}),
	}
	if reg != nil {
		reg.MustRegister(
			m.window, m.events, m.repeated, m.duplicates, m.rescanned, m.detached, m.joins, m.catchups, m.pauses, m.jumps, m.reread, m.gaps, m.losses, collector{stats},
		)
	}
	return m
}

// A collector computes metrics at each scrape: cursors and ring bytes by reader, and the lag of the
// last cursor.
type collector struct{ stats func() Stats }

//nolint:gochecknoglobals // descriptions are constants
var (
	streamsDesc  = prometheus.NewDesc("streamer_log_streams_open", "Open change streams, including the tail and those being opened.", nil, nil)
	retainedDesc = prometheus.NewDesc("streamer_log_retained_readers", "Catch-ups that read the retained log, and cost MongoDB nothing.", nil, nil)
	cursorsDesc  = prometheus.NewDesc("streamer_log_cursors", "Cursors by where they read: tail, catchup, or waiting for a reader.", []string{"reader"}, nil)
	ringDesc     = prometheus.NewDesc("streamer_log_ring_bytes", "Bytes held in rings.", []string{"reader"}, nil)
	distanceDesc = prometheus.NewDesc("streamer_log_distance_seconds", "Log time between the tail's end and the rearmost cursor.", nil, nil)
)

// Describe implements prometheus.Collector.
func (c collector) Describe(ch chan<- *prometheus.Desc) {
	ch <- streamsDesc
	ch <- retainedDesc
	ch <- cursorsDesc
	ch <- ringDesc
	ch <- distanceDesc
}

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	s := c.stats()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	gauge(streamsDesc, float64(s.Streams))
	gauge(retainedDesc, float64(s.Retained))
	gauge(cursorsDesc, float64(s.TailCursors), "tail")
	gauge(cursorsDesc, float64(s.CatchupCursors), "catchup")
	gauge(cursorsDesc, float64(s.Waiting), "waiting")
	gauge(ringDesc, float64(s.TailBytes), "tail")
	gauge(ringDesc, float64(s.CatchupBytes), "catchup")
	if s.Open {
		gauge(distanceDesc, s.Distance.Seconds())
	}
}
