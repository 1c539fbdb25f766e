package notice

import "github.com/prometheus/client_golang/prometheus"

// metrics are the metrics of a Board.
type metrics struct {
	posted *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer) metrics {
	m := metrics{posted: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "streamer_notices_total", Help: "Notices posted by this node.",
	}, []string{"channel", "severity"})}
	if reg != nil {
		reg.MustRegister(m.posted)
	}
	return m
}

// recorderMetrics are the metrics of a Recorder.
type recorderMetrics struct {
	written, dropped, failures prometheus.Counter
}

func newRecorderMetrics(reg prometheus.Registerer) recorderMetrics {
	r := recorderMetrics{
		written: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "streamer_notice_history_written_total", Help: "Notices of this node written to the cluster's history.",
		}),
		dropped: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "streamer_notice_history_dropped_total",
			Help: "Notices of this node dropped because the history was unavailable.",
		}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "streamer_notice_history_failures_total", Help: "Failed reads and writes of the cluster's history.",
		}),
	}
	if reg != nil {
		reg.MustRegister(r.written, r.dropped, r.failures)
	}
	return r
}

// webhookMetrics are the metrics of a Webhook.
type webhookMetrics struct {
	sent, failed, retries, summarised, missed prometheus.Counter
}

func newWebhookMetrics(reg prometheus.Registerer, queued func() float64) webhookMetrics {
	deliveries := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "streamer_webhook_deliveries_total", Help: "Deliveries of notices and summaries, by result: sent or failed.",
	}, []string{"result"})
	m := webhookMetrics{
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

// auditMetrics are the metrics of an Auditor.
type auditMetrics struct {
	logins, began *prometheus.CounterVec
	sessions      *prometheus.GaugeVec
	omitted       prometheus.Counter
}

func newAuditMetrics(reg prometheus.Registerer) auditMetrics {
	m := auditMetrics{
		logins: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "streamer_logins_total", Help: "Logins, by transport and result: accepted, or why they were refused.",
		}, []string{"transport", "result"}),
		began: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "streamer_identity_sessions_total", Help: "Sessions that began, by identity; those beyond the first 100 identities are other.",
		}, []string{"identity"}),
		sessions: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "streamer_identity_sessions", Help: "Open sessions, by identity; those beyond the first 100 identities are other.",
		}, []string{"identity"}),
		omitted: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "streamer_audit_omitted_total", Help: "Logins and sessions that the audit log only counts, because there were too many within a minute.",
		}),
	}
	if reg != nil {
		reg.MustRegister(m.logins, m.began, m.sessions, m.omitted)
	}
	return m
}
