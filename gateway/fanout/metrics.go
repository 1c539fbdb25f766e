package fanout

import "github.com/prometheus/client_golang/prometheus"

// metrics are the hub's own figures.
type metrics struct {
	joined, left, lost, failed prometheus.Counter
}

func newMetrics(reg prometheus.Registerer, h *Hub) metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "streamer", Subsystem: "gateway", Name: name, Help: help})
	}
	m := metrics{
		joined: counter("sessions_joined_total", "Sessions that came onto the live path."),
		left:   counter("sessions_left_total", "Sessions that left the live path because they had no credit."),
		lost:   counter("sessions_lost_history_total", "Times that the log no longer held what a session wanted."),
		failed: counter("filter_failures_total", "Evaluations of filters that failed."),
	}
	if reg != nil {
		reg.MustRegister(m.joined, m.left, m.lost, m.failed, gauges{hub: h})
	}
	return m
}

// gauges collects what is measured when it is asked for.
type gauges struct{ hub *Hub }

//nolint:gochecknoglobals // descriptions are constants
var (
	sessionsDesc      = prometheus.NewDesc("streamer_gateway_sessions", "Sessions by where they read: live, or behind.", []string{"path"}, nil)
	subscriptionsDesc = prometheus.NewDesc("streamer_gateway_subscriptions", "Subscriptions of all sessions.", nil, nil)
	queuedDesc        = prometheus.NewDesc("streamer_gateway_unacknowledged_bytes", "Bytes queued or sent and not acknowledged, of all sessions.", nil, nil)
)

// Describe implements prometheus.Collector.
func (g gauges) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(g, ch) }

// Collect implements prometheus.Collector.
func (g gauges) Collect(ch chan<- prometheus.Metric) {
	h := g.hub
	h.mu.Lock()
	live, behind, bytes, subscriptions := 0, 0, 0, len(h.mu.subscriptions)
	for s := range h.mu.sessions {
		if s.live {
			live++
		} else {
			behind++
		}
		s.mu.Lock()
		bytes += s.mu.trails.Bytes
		s.mu.Unlock()
	}
	h.mu.Unlock()
	gauge := func(d *prometheus.Desc, v int, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v), labels...)
	}
	gauge(sessionsDesc, live, "live")
	gauge(sessionsDesc, behind, "behind")
	gauge(subscriptionsDesc, subscriptions)
	gauge(queuedDesc, bytes)
}
