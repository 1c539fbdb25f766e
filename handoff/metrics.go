package handoff

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	ended *prometheus.CounterVec
	steps *prometheus.HistogramVec
	gap   prometheus.Histogram
}

func newMetrics(reg prometheus.Registerer) metrics {
	m := metrics{
		ended: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "streamer_handoffs_total",
			Help: "Handoffs that have ended here, by side (giving, taking) and outcome: moved, stayed (rolled back), lost.",
		}, []string{"side", "outcome"}),
		steps: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "streamer_handoff_step_seconds",
			Help:    "How long each step of a handoff took.",
			Buckets: prometheus.ExponentialBuckets(0.001, 4, 9),
		}, []string{"side", "step"}),
	}
	m.gap = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "streamer_handoff_gap_seconds",
		Help:    "How long nobody's marks moved: from when the recipient saw that it owns the partition until it served it.",
		Buckets: prometheus.ExponentialBuckets(0.001, 4, 9),
	})
	if reg != nil {
		reg.MustRegister(m.ended, m.steps, m.gap)
	}
	return m
}

func (m metrics) note(r Report) {
	m.ended.WithLabelValues(string(r.Side), string(r.Outcome)).Inc()
	for at, took := range r.Spent {
		m.steps.WithLabelValues(string(r.Side), at).Observe(took.Seconds())
	}
	if r.Side == Taking && r.Outcome == Moved {
		m.gap.Observe(r.Spent[string(serving)].Seconds())
	}
}
