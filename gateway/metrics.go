package gateway

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	clients prometheus.Gauge
	events  prometheus.Counter
	ended   endings
}

func newMetrics(reg prometheus.Registerer) metrics {
	m := metrics{
		clients: prometheus.NewGauge(prometheus.GaugeOpts{Name: "streamer_sse_clients", Help: "Connected clients of /v1/events."}),
		events:  prometheus.NewCounter(prometheus.CounterOpts{Name: "streamer_sse_events_total", Help: "Events written to clients of /v1/events."}),
		ended:   newEnded(reg, "sse"),
	}
	if reg != nil {
		reg.MustRegister(m.clients, m.events)
	}
	return m
}

// endings counts the sessions of a transport that have ended.
type endings struct{ by *prometheus.CounterVec }

func (e endings) count(reason string) { e.by.WithLabelValues(reason).Inc() }

func newEnded(reg prometheus.Registerer, transport string) endings {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "streamer_sessions_ended_total", ConstLabels: prometheus.Labels{"transport": transport},
		Help: "Sessions that ended, by transport (grpc, sse) and reason: left, silent, stalled, lost, replaced, costly, revoked, stopped, ended, limited, refused, failed.",
	}, []string{"reason"})
	if reg != nil {
		reg.MustRegister(c)
	}
	return endings{c}
}
