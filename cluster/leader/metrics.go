package leader

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/cluster/plan"
)

// metrics are the leader's metrics. They do not change on other nodes.
type metrics struct {
	replans   *prometheus.CounterVec
	moves     prometheus.Counter
	resynced  prometheus.Counter
	evictions prometheus.Counter
	failures  prometheus.Counter
	steps     prometheus.Histogram
}

func newMetrics(reg prometheus.Registerer, l *Leader) metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "streamer", Subsystem: "cluster", Name: name, Help: help})
	}
	m := metrics{
		replans: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "streamer", Subsystem: "cluster", Name: "replans_total", Help: "Plans published by this node, by cause.",
		}, []string{"cause"}),
		moves:     counter("moves_total", "Partitions that plans of this node took from one member to another."),
		resynced:  counter("resynced_partitions_total", "Partitions that were announced again to restarted members."),
		evictions: counter("evictions_total", "Owners whose keys were taken away because they did not serve or give up their partition."),
		failures:  counter("govern_failures_total", "Times that the leader could not look, publish or evict."),
		steps: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "streamer", Subsystem: "cluster", Name: "govern_step_seconds", Help: "How long the leader takes to decide.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 4, 8),
		}),
	}
	for _, r := range plan.Replans() {
		m.replans.WithLabelValues(string(r))
	}
	if reg != nil {
		reg.MustRegister(m.replans, m.moves, m.resynced, m.evictions, m.failures, m.steps, gauges{l})
	}
	return m
}

// gauges are collected at scrape time.
type gauges struct{ leader *Leader }

//nolint:gochecknoglobals // descriptions are constants
var (
	leaderDesc   = prometheus.NewDesc("streamer_cluster_is_leader", "1 on the node that leads the cluster.", nil, nil)
	planDesc     = prometheus.NewDesc("streamer_cluster_plan_version", "Version of the current plan, on the leader.", nil, nil)
	membersDesc  = prometheus.NewDesc("streamer_cluster_members", "Members by their status at the leader, on the leader.", []string{"status"}, nil)
	breakersDesc = prometheus.NewDesc("streamer_cluster_assignment_breakers", "Members by the state of their assignment breaker, on the leader.", []string{"state"}, nil)
)

// Describe implements prometheus.Collector.
func (g gauges) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{leaderDesc, planDesc, membersDesc, breakersDesc} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (g gauges) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v int, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v), labels...)
	}
	now := g.leader.Explain()
	if !now.Leading {
		gauge(leaderDesc, 0)
		return
	}
	gauge(leaderDesc, 1)
	gauge(planDesc, int(now.Plan.Version))
	members := map[cluster.Status]int{
		cluster.StatusStarting: 0, cluster.StatusHealthy: 0, cluster.StatusDegraded: 0, cluster.StatusUnhealthy: 0, cluster.StatusStopping: 0,
		plan.StatusDead: 0, plan.StatusRefused: 0,
	}
	breakers := map[string]int{plan.BreakerClosed: 0, plan.BreakerHalfOpen: 0, plan.BreakerOpen: 0}
	for _, m := range now.Members {
		if m.Kind == cluster.KindGateway {
			continue
		}
		if _, known := members[m.Status]; known { // a member may call itself anything
			members[m.Status]++
		}
		breakers[m.Breaker]++
	}
	for status, n := range members {
		gauge(membersDesc, n, string(status))
	}
	for state, n := range breakers {
		gauge(breakersDesc, n, state)
	}
}
