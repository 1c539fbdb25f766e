package streamer

import (
	"github.com/prometheus/client_golang/prometheus"

	"mongostream/streamer/status"
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
		reg.MustRegister(m.duplicates, m.restarts, m.gaps, m.jumps, m.rescans, m.lost, m.rescanned, status.Gauges{
			Partitions: n.Status, Sessions: func() int { return len(n.attached()) },
		})
	}
	return m
}
