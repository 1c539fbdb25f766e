package listen

import "github.com/prometheus/client_golang/prometheus"

func newRefused() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "streamer_connections_refused_total",
		Help: "Connections that a listener closed, by reason: address (too many of one address), handshakes (too many TLS handshakes under way).",
	}, []string{"reason"})
}

// Register registers the metrics.
func (l *Listeners) Register(reg prometheus.Registerer) { reg.MustRegister(l.refused) }
