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
	if reg == nil {
		return m
	}
	reg.MustRegister(m.joined, m.left, m.lost, m.failed)
	gauge := func(name, help string, labels prometheus.Labels, of func(Load) int) {
		opts := prometheus.GaugeOpts{Namespace: "streamer", Subsystem: "gateway", Name: name, Help: help, ConstLabels: labels}
		reg.MustRegister(prometheus.NewGaugeFunc(opts, func() float64 { return float64(of(h.Load())) }))
	}
	const sessions = "Sessions by where they read: live, or behind."
	gauge("sessions", sessions, prometheus.Labels{"path": "live"}, func(l Load) int { return l.Live })
	gauge("sessions", sessions, prometheus.Labels{"path": "behind"}, func(l Load) int { return l.Behind })
	gauge("subscriptions", "Subscriptions of all sessions.", nil, func(l Load) int { return l.Subscriptions })
	gauge("unacknowledged_bytes", "Bytes queued or sent and not acknowledged, of all sessions.", nil, func(l Load) int { return l.Bytes })
	return m
}

// A Load is how much a hub has to do now.
type Load struct {
	Live, Behind  int // sessions by where they read
	Subscriptions int
	Bytes         int  // queued or sent and not acknowledged
	Stands        bool // it knows where it stands in the log, and can take sessions on
}

// Load returns how much the hub has to do now.
func (h *Hub) Load() (l Load) {
	h.mu.Lock()
	defer h.mu.Unlock()
	l.Subscriptions, l.Stands = len(h.mu.subscriptions), !h.at().IsZero()
	for s := range h.mu.sessions {
		if s.live {
			l.Live++
		} else {
			l.Behind++
		}
		s.mu.Lock()
		l.Bytes += s.mu.trails.Bytes
		s.mu.Unlock()
	}
	return l
}
