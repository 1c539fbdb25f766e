package listen

import "github.com/prometheus/client_golang/prometheus"

// refused counts connections that were closed.
type refused struct{ by *prometheus.CounterVec }

func (r refused) count(reason string) { r.by.WithLabelValues(reason).Inc() }

func newRefused() refused {
	return refused{prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "streamer_connections_refused_total",
		Help: "Connections that a listener closed, by reason: address (too many of one address), handshakes (too many TLS handshakes under way), streams (gRPC streams begin on it too fast).",
	}, []string{"reason"})}
}

// Register registers the metrics.
func (l *Listeners) Register(reg prometheus.Registerer) { reg.MustRegister(l.refused.by) }
