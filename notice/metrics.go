package notice

import "github.com/prometheus/client_golang/prometheus"

// metrics count what a Board takes.
type metrics struct {
	posted *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer) metrics {
	m := metrics{posted: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "streamer_notices_total", Help: "Notices that this node has posted.",
	}, []string{"channel", "severity"})}
	if reg != nil {
		reg.MustRegister(m.posted)
	}
	return m
}

// recorderMetrics are the counters of a Recorder.
type recorderMetrics struct {
	written, dropped, failures prometheus.Counter
}

func newRecorderMetrics(reg prometheus.Registerer) recorderMetrics {
	r := recorderMetrics{
		written: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "streamer_notice_history_written_total", Help: "Notices of this node that were written into the cluster's history.",
		}),
		dropped: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "streamer_notice_history_dropped_total",
			Help: "Notices of this node that the cluster's history lacks, because it was away and too many waited.",
		}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "streamer_notice_history_failures_total", Help: "Times the cluster's history could not be read or written.",
		}),
	}
	if reg != nil {
		reg.MustRegister(r.written, r.dropped, r.failures)
	}
	return r
}
