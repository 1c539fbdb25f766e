package breaker

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	states *prometheus.GaugeVec
	trips  *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer) metrics {
	m := metrics{
		states: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "streamer_circuit_breaker_state", Help: "State of a circuit breaker: 0 closed, 1 half-open, 2 open.",
		}, []string{"breaker"}),
		trips: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "streamer_circuit_breaker_trips_total", Help: "Times a circuit breaker opened.",
		}, []string{"breaker"}),
	}
	if reg != nil {
		reg.MustRegister(m.states, m.trips)
	}
	return m
}
