package retention

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the metrics of a writer.
type metrics struct {
	segments prometheus.Counter
	events   prometheus.Counter
	raw      prometheus.Counter
	bytes    prometheus.Counter
	failures prometheus.Counter
	deleted  prometheus.Counter
	seconds  prometheus.Histogram
	to       prometheus.Gauge
}

func newMetrics(r prometheus.Registerer) *metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "streamer", Subsystem: "retention", Name: name, Help: help})
	}
	m := &metrics{
		segments: counter("segments_written_total", "Segments that this node has written."),
		events:   counter("events_written_total", "Changes in the segments that this node has written."),
		raw:      counter("raw_bytes_total", "Bytes of the changes in the segments that this node has written, before compression."),
		bytes:    counter("written_bytes_total", "Bytes of the segments that this node has written."),
		failures: counter("write_failures_total", "Failed attempts to write to the store of segments or to read from it, by the writer."),
		deleted:  counter("segments_deleted_total", "Expired segments that this node has deleted."),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "streamer", Subsystem: "retention", Name: "write_seconds", Help: "Time until a segment was written, repeated attempts included.",
			Buckets: []float64{.005, .02, .1, .5, 2, 10, 60},
		}),
		to: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: "streamer", Subsystem: "retention", Name: "written_to_seconds", Help: "Cluster time up to which this node has written segments, in seconds since 1970.",
		}),
	}
	if r != nil {
		r.MustRegister(m.segments, m.events, m.raw, m.bytes, m.failures, m.deleted, m.seconds, m.to)
	}
	return m
}

// written counts a segment.
func (m *metrics) written(h *Header, raw int64, took time.Duration) {
	m.segments.Inc()
	m.events.Add(float64(h.Events))
	m.raw.Add(float64(raw))
	m.bytes.Add(float64(h.Size))
	m.seconds.Observe(took.Seconds())
	m.to.Set(float64(h.To.T))
}

// readMetrics are the metrics of readers.
type readMetrics struct{ reads, bytes prometheus.Counter }

// newReadMetrics creates the metrics, and registers them unless the registerer is nil. kept returns
// how many bytes are kept.
func newReadMetrics(r prometheus.Registerer, kept func() int64) *readMetrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "streamer", Subsystem: "retention", Name: name, Help: help})
	}
	m := &readMetrics{
		reads: counter("reads_total", "Requests for parts of segments, by readers of the retained log."),
		bytes: counter("read_bytes_total", "Bytes of parts of segments that readers of the retained log have fetched."),
	}
	if r != nil {
		r.MustRegister(m.reads, m.bytes, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: "streamer", Subsystem: "retention", Name: "cache_bytes", Help: "Bytes of parts of segments that are kept for several readers, or are being fetched.",
		}, func() float64 { return float64(kept()) }))
	}
	return m
}

// fetched counts a request and the bytes of its answer.
func (m *readMetrics) fetched(n int) {
	m.reads.Inc()
	m.bytes.Add(float64(n))
}
