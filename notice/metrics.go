package notice

import "github.com/prometheus/client_golang/prometheus"

// metrics count what a Board takes.
type metrics struct {
	posted *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer) metrics {
	m := metrics{posted: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "streamer_notices_total", Help: "Notices that this node has posted.",
	}, []string{"channel", "severity"})}
	if reg != nil {
		reg.MustRegister(m.posted)
	}
	return m
}
