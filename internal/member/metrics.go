package member

import "github.com/prometheus/client_golang/prometheus"

// metrics are what a node counts of the partitions that it hands over.
type metrics struct {
	handed *prometheus.CounterVec
	took   prometheus.Histogram
}

// newMetrics makes the metrics and registers them; nil registers them nowhere.
func newMetrics(reg prometheus.Registerer) metrics {
	m := metrics{
		handed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "streamer", Name: "handoffs_total", Help: "Partitions that the plan assigned to another node: handed over, or released for it to claim.",
		}, []string{"outcome"}),
		took: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "streamer", Name: "handoff_seconds", Help: "Time from the end of a term to the end of the transaction that hands its partition to another node.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 14),
		}),
	}
	if reg != nil {
		reg.MustRegister(m.handed, m.took)
	}
	return m
}
