package sink

import "github.com/prometheus/client_golang/prometheus"

// metrics are the metrics of one sink.
type metrics struct {
	published, retries, dead prometheus.Counter
}

// A Metrics has the metrics of all sinks of a node.
type Metrics struct {
	published, retries, dead *prometheus.CounterVec
}

// NewMetrics registers the metrics; reg may be nil.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	counter := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "streamer_sink_" + name, Help: help}, []string{"sink"})
	}
	m := &Metrics{
		published: counter("published_total", "Messages that a sink's target has acknowledged."),
		retries:   counter("retries_total", "Messages that were handed to the target again after a failure."),
		dead:      counter("dead_letters_total", "Messages that a sink's target has refused and that were written as dead letters."),
	}
	if reg != nil {
		reg.MustRegister(m.published, m.retries, m.dead)
	}
	return m
}

// of returns the metrics of a sink.
func (m *Metrics) of(sink string) metrics {
	return metrics{m.published.WithLabelValues(sink), m.retries.WithLabelValues(sink), m.dead.WithLabelValues(sink)}
}
