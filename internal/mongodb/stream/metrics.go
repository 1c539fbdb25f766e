package stream

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	opened   prometheus.Counter
	failures prometheus.Counter
	tooLarge prometheus.Counter

	incomplete, elsewhere prometheus.Counter

	held prometheus.Histogram

	shardMetrics // unset for replica sets
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
		Name: "streamer_mongodb_images_missing_total", Help: "Times a stream met an event without the full document that is required, and continued without requiring it.",
	})
	m.elsewhere = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "streamer_mongodb_member_reads_total", Help: "Times a position was lost on one member of the replica set and found on another.",
	})
	m.held = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "streamer_mongodb_held_seconds",
		Help:    "About how long MongoDB held the first change of a reply before change streams showed it, by the changes' own wall times. Stalls of the node or the network, and look-ups, count, too. Not of sharded clusters, nor before 6.0.",
		Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5},
	})
	if reg != nil {
		reg.MustRegister(m.opened, m.failures, m.tooLarge, m.incomplete, m.elsewhere, m.held)
	}
	return m
}

// shardMetrics are the metrics of sharded clusters.
type shardMetrics struct {
	wait        prometheus.Histogram
	ticks       *prometheus.CounterVec
	ticksFailed prometheus.Counter
}

func newShardMetrics(reg prometheus.Registerer) shardMetrics {
	m := shardMetrics{
		wait: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "streamer_mongodb_shard_wait_seconds",
			Help:    "How long the slowest shard took to report that it had reached the newest time of the cluster: how long mongos held changes.",
			Buckets: []float64{.05, .1, .25, .5, 1, 2.5, 5, 10, 20},
		}),
		ticks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "streamer_mongodb_shard_ticks_total",
			Help: "Ticks by shard and outcome: moved (its log was behind, and got a no-op) or ahead (it had written by itself).",
		}, []string{"shard", "outcome"}),
		ticksFailed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "streamer_mongodb_ticks_failed_total", Help: "Ticks that failed or were refused.",
		}),
	}
	if reg != nil {
		reg.MustRegister(m.wait, m.ticks, m.ticksFailed)
	}
	return m
}
