package stream

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	opened   prometheus.Counter
	failures prometheus.Counter
	tooLarge prometheus.Counter

	incomplete, elsewhere prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) metrics {
	m := metrics{
		opened: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "streamer_mongodb_streams_opened_total", Help: "Change streams opened or reopened.",
		}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "streamer_mongodb_stream_failures_total", Help: "Times a change stream broke or could not be opened.",
		}),
	}
	m.tooLarge = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "streamer_mongodb_too_large_total", Help: "Times a stream met an event that was too large for it (BSONObjectTooLarge).",
	})
	m.incomplete = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "streamer_mongodb_images_missing_total", Help: "Times a stream met an event without the full document that is required, and went on without requiring it.",
	})
	m.elsewhere = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "streamer_mongodb_member_reads_total", Help: "Times a position was lost on one member of the replica set and found on another.",
	})
	if reg != nil {
		reg.MustRegister(m.opened, m.failures, m.tooLarge, m.incomplete, m.elsewhere)
	}
	return m
}
