package checkpoint

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	saved   prometheus.Counter
	errors  prometheus.Counter
	latency prometheus.Histogram
}

func newMetrics(reg prometheus.Registerer) metrics {
	m := metrics{
		saved: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "streamer_checkpoints_saved_total", Help: "Checkpoints saved.",
		}),
		errors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "streamer_checkpoint_errors_total", Help: "Failed saves of checkpoints, without rejected ones.",
		}),
		latency: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "streamer_checkpoint_latency_seconds", Help: "Duration of saving one round.", Buckets: prometheus.ExponentialBuckets(0.001, 2, 14),
		}),
	}
	if reg != nil {
		reg.MustRegister(m.saved, m.errors, m.latency)
	}
	return m
}
