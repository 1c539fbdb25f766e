package member

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics of a member of a cluster.
type metrics struct {
	detached  prometheus.Gauge
	failures  prometheus.Counter
	streak    prometheus.Gauge
	unseen    prometheus.Counter
	attempts  prometheus.Counter
	exhausted prometheus.Counter
	claimed   prometheus.Counter
	released  prometheus.Counter
}

func newMetrics(r prometheus.Registerer, s *Member) metrics {
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "streamer", Name: name, Help: help})
	}
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "streamer", Name: name, Help: help})
	}
	m := metrics{
		detached:  gauge("sharding_detached", "1 while the node is detached: it has ended its terms because its lease may have run out."),
		failures:  counter("lease_keepalive_failures_total", "Renewals of the lease that failed."),
		streak:    gauge("lease_keepalive_failure_streak", "Renewals of the lease that failed in a row."),
		unseen:    counter("cluster_view_failures_total", "Times that the node could not read the cluster: members, owners, and the plan."),
		attempts:  counter("acquire_retry_attempts_total", "Further attempts to claim partitions that the plan gives to this node and another one still owned."),
		exhausted: counter("acquire_retry_window_exhausted_total", "Times that such partitions were still owned by another node after the retry time."),
		claimed:   counter("terms_claimed_total", "Terms that began with a claim."),
		released:  counter("terms_released_total", "Terms that were given up for another node."),
	}
	live := func(name, help string, value func() time.Duration) prometheus.Collector {
		opts := prometheus.GaugeOpts{Namespace: "streamer", Name: name, Help: help}
		return prometheus.NewGaugeFunc(opts, func() float64 { return value().Seconds() })
	}
	if r != nil {
		r.MustRegister(
			live("lease_deadline_lag_seconds", "The deadline of the lease less now: how long it lives unless it is renewed. The node is detached at a third of cluster.lease_ttl.", s.DeadlineLag),
			live("cluster_view_age_seconds", "How long ago the node last read the cluster.", s.viewAge))
		r.MustRegister(m.detached, m.failures, m.streak, m.unseen, m.attempts, m.exhausted, m.claimed, m.released)
	}
	return m
}
