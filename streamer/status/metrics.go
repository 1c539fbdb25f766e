package status

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

// Counters count what consumers meet.
type Counters struct {
	Duplicates prometheus.Counter
	Restarts   prometheus.Counter
	Gaps       prometheus.Counter
	Jumps      prometheus.Counter
	Rescans    prometheus.Counter
	Lost       prometheus.Counter
	Rescanned  prometheus.Counter
}

// NewCounters makes counters, and registers them and the gauges; a nil registerer registers nothing.
func NewCounters(reg prometheus.Registerer, g Gauges) Counters {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	m := Counters{
		Duplicates: counter("streamer_duplicate_events_total", "Events that a lane's window recognised as duplicates."),
		Restarts:   counter("streamer_partition_restarts_total", "Consumers begun."),
		Gaps:       counter("streamer_gaps_detected_total", "Spans of the log that were or may have been missed."),
		Jumps:      counter("streamer_time_jumps_total", "Jumps of cluster time above max_gap, proven quiet ones included."),
		Rescans:    counter("streamer_rescans_total", "Spans that were read again from the log."),
		Lost:       counter("streamer_history_lost_total", "Spans that the log no longer had, by partition and span."),
		Rescanned:  counter("streamer_rescan_events_total", "Documents that were read again after a loss and delivered."),
	}
	if reg != nil {
		reg.MustRegister(m.Duplicates, m.Restarts, m.Gaps, m.Jumps, m.Rescans, m.Lost, m.Rescanned, g)
	}
	return m
}

// Gauges collects what is measured when it is asked for.
type Gauges struct {
	Partitions func() []Partition
	Sessions   func() int
}

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
func (g Gauges) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{lagDesc, roomDesc, healthDesc, windowDesc, passedDesc, sessionsDesc, partitionsDesc} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (g Gauges) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	partitions := g.Partitions()
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
	gauge(sessionsDesc, float64(g.Sessions()))
	gauge(partitionsDesc, float64(len(partitions)))
}
