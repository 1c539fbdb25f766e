package webhook

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	sent, failed, retries, summarised, missed prometheus.Counter
}

func newMetrics(reg prometheus.Registerer, queued func() float64) metrics {
	deliveries := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "streamer_webhook_deliveries_total", Help: "Deliveries of notices and summaries, by result: sent or failed.",
	}, []string{"result"})
	m := metrics{
		sent: deliveries.WithLabelValues("sent"), failed: deliveries.WithLabelValues("failed"),
		retries: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "streamer_webhook_retries_total", Help: "Retried delivery attempts.",
		}),
		summarised: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "streamer_webhook_summarised_total", Help: "Notices counted in a summary instead of being sent individually.",
		}),
		missed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "streamer_webhook_dropped_total", Help: "Notices dropped by the board before they were read; a summary has their number.",
		}),
	}
	if reg != nil {
		reg.MustRegister(deliveries, m.retries, m.summarised, m.missed, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "streamer_webhook_queue", Help: "Queued deliveries.",
		}, queued))
	}
	return m
}
