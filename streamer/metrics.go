package streamer

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	duplicates prometheus.Counter
	restarts   prometheus.Counter
	gaps       prometheus.Counter
	jumps      prometheus.Counter
	rescans    prometheus.Counter
	lost       prometheus.Counter
	rescanned  prometheus.Counter
}

func newMetrics(reg prometheus.Registerer, n *Node) metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	m := metrics{
		duplicates: counter("streamer_duplicate_events_total", "Events that a lane's window recognised as duplicates."),
		restarts:   counter("streamer_partition_restarts_total", "Consumers begun."),
		gaps:       counter("streamer_gaps_detected_total", "Spans of the log that were or may have been missed."),
		jumps:      counter("streamer_time_jumps_total", "Jumps of cluster time above max_gap, proven quiet ones included."),
		rescans:    counter("streamer_rescans_total", "Spans that were read again from the log."),
		lost:       counter("streamer_history_lost_total", "Spans that the log no longer had, by partition and span."),
		rescanned:  counter("streamer_rescan_events_total", "Documents that were read again after a loss and delivered."),
	}
	if reg != nil {
		reg.MustRegister(m.duplicates, m.restarts, m.gaps, m.jumps, m.rescans, m.lost, m.rescanned, gauges{node: n})
	}
	return m
}

// gauges collects what is measured when it is asked for.
type gauges struct{ node *Node }

//nolint:gochecknoglobals // descriptions are constants
var (
	lagDesc        = prometheus.NewDesc("streamer_partition_lag_seconds", "Log time between a partition and the log's end; absent while unknown.", []string{"partition"}, nil)
	roomDesc       = prometheus.NewDesc("streamer_partition_head_room_seconds", "Log time between the oplog's oldest entry and a partition; absent while unknown.", []string{"partition"}, nil)
	healthDesc     = prometheus.NewDesc("streamer_partition_health", "1 for the state that a partition is in.", []string{"partition", "status"}, nil)
	windowDesc     = prometheus.NewDesc("streamer_dedup_cache_size", "Events remembered by the lanes' windows.", nil, nil)
	passedDesc     = prometheus.NewDesc("streamer_partition_events_total", "Events that have passed a partition in this term.", []string{"partition"}, nil)
	sessionsDesc   = prometheus.NewDesc("streamer_sessions", "Sessions attached to the consumers.", nil, nil)
	partitionsDesc = prometheus.NewDesc("streamer_partitions_owned", "Partitions with a running term.", nil, nil)
)

// Describe implements prometheus.Collector.
func (g gauges) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{lagDesc, roomDesc, healthDesc, windowDesc, passedDesc, sessionsDesc, partitionsDesc} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (g gauges) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	partitions := g.node.Status()
	remembered := 0
	for _, p := range partitions {
		label := strconv.Itoa(int(p.Partition))
		remembered += p.Remembered
		if p.Lag != nil {
			gauge(lagDesc, p.Lag.Seconds(), label)
		}
		if p.HeadRoom != nil {
			gauge(roomDesc, p.HeadRoom.Seconds(), label)
		}
		gauge(healthDesc, 1, label, string(p.State))
		ch <- prometheus.MustNewConstMetric(passedDesc, prometheus.CounterValue, float64(p.Events), label)
	}
	gauge(windowDesc, float64(remembered))
	gauge(sessionsDesc, float64(len(g.node.attached())))
	gauge(partitionsDesc, float64(len(partitions)))
}
