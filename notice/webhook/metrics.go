package webhook

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	sent, failed, retries, summarised, missed prometheus.Counter
}

func newMetrics(reg prometheus.Registerer, queued func() float64) metrics {
	deliveries := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "streamer_webhook_deliveries_total", Help: "Deliveries, notices or summaries, that the webhook's receiver has taken (sent) or not (failed).",
	}, []string{"result"})
	m := metrics{
		sent: deliveries.WithLabelValues("sent"), failed: deliveries.WithLabelValues("failed"),
		retries: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "streamer_webhook_retries_total", Help: "Attempts of deliveries that failed and were made again.",
		}),
		summarised: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "streamer_webhook_summarised_total", Help: "Notices that were not sent singly, but counted in a summary.",
		}),
		missed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "streamer_webhook_dropped_total", Help: "Notices that left the board before they were seen; a summary has their number.",
		}),
	}
	if reg != nil {
		reg.MustRegister(deliveries, m.retries, m.summarised, m.missed, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "streamer_webhook_queue", Help: "Deliveries that wait.",
		}, queued))
	}
	return m
}
