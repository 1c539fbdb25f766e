package gateway

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	clients prometheus.Gauge
	events  prometheus.Counter
	ended   *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer) metrics {
	m := metrics{
		clients: prometheus.NewGauge(prometheus.GaugeOpts{Name: "streamer_sse_clients", Help: "Connected clients of /v1/events."}),
		events:  prometheus.NewCounter(prometheus.CounterOpts{Name: "streamer_sse_events_total", Help: "Events written to clients of /v1/events."}),
		ended: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "streamer_sse_ended_total", Help: "Connections to /v1/events that ended, by reason: left, stalled, lost, replaced, costly, revoked, stopped, failed.",
		}, []string{"reason"}),
	}
	if reg != nil {
		reg.MustRegister(m.clients, m.events, m.ended)
	}
	return m
}
