package hub

import "github.com/prometheus/client_golang/prometheus"

// metrics are the Hub's own figures.
type metrics struct {
	joined, left, failed prometheus.Counter
}

func newMetrics(reg prometheus.Registerer, h *Hub) metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "streamer", Subsystem: "hub", Name: name, Help: help})
	}
	m := metrics{
		joined: counter("sessions_joined_total", "Sessions that joined the live path."),
		left:   counter("sessions_left_total", "Sessions that left the live path because they had no credit."),
		failed: counter("filter_failures_total", "Evaluations of filters that failed."),
	}
	if reg == nil {
		return m
	}
	reg.MustRegister(m.joined, m.left, m.failed)
	gauge := func(name, help string, labels prometheus.Labels, of func(Load) int) {
		opts := prometheus.GaugeOpts{Namespace: "streamer", Subsystem: "hub", Name: name, Help: help, ConstLabels: labels}
		reg.MustRegister(prometheus.NewGaugeFunc(opts, func() float64 { return float64(of(h.Load())) }))
	}
	const sessions = "Sessions by where they read: live, or catching up."
	gauge("sessions", sessions, prometheus.Labels{"path": "live"}, func(l Load) int { return l.Live })
	gauge("sessions", sessions, prometheus.Labels{"path": "catching_up"}, func(l Load) int { return l.CatchingUp })
	gauge("unacknowledged_bytes", "Bytes queued or sent and not acknowledged, of all sessions.", nil, func(l Load) int { return l.Bytes })
	return m
}

// A Load is how much a Hub has to do now.
type Load struct {
	Live, CatchingUp int  // sessions by where they read
	Bytes            int  // queued or sent and not acknowledged
	Ready            bool // it knows where it is in the log, and sessions can join it
}

// Load returns how much the Hub has to do now.
func (h *Hub) Load() (l Load) {
	l.Ready = !h.position().IsZero()
	for _, s := range h.Sessions() {
		s.mu.Lock()
		if s.mu.live {
			l.Live++
		} else {
			l.CatchingUp++
		}
		l.Bytes += s.mu.bytes
		s.mu.Unlock()
	}
	return l
}
