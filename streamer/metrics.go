package streamer

import (
	"slices"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

// gauges are collected at scrape time.
type gauges struct {
	partitions  func() []PartitionStatus
	subscribers func() []SubscriberStatus
}

//nolint:gochecknoglobals // descriptions are constants
var (
	lagDesc        = prometheus.NewDesc("streamer_partition_lag_seconds", "Log time from a partition's position to the end of the oplog; absent while unknown.", []string{"partition"}, nil)
	roomDesc       = prometheus.NewDesc("streamer_partition_head_room_seconds", "Log time until a partition's position leaves the oplog; absent while unknown, and while nothing leaves it.", []string{"partition"}, nil)
	healthDesc     = prometheus.NewDesc("streamer_partition_health", "1 for the current state of a partition.", []string{"partition", "status"}, nil)
	passedDesc     = prometheus.NewDesc("streamer_partition_events_total", "Events of a partition read in this term.", []string{"partition"}, nil)
	partitionsDesc = prometheus.NewDesc("streamer_partitions_owned", "Partitions owned by this node.", nil, nil)

	subscriberLagDesc  = prometheus.NewDesc("streamer_subscriber_lag_seconds", "Log time from a subscriber's acknowledged position to the end of the oplog.", []string{"subscriber"}, nil)
	subscriberRoomDesc = prometheus.NewDesc("streamer_subscriber_head_room_seconds", "Log time until a subscriber's position leaves the oplog; absent while unknown, and while nothing leaves it.", []string{"subscriber"}, nil)
	subscriberLeftDesc = prometheus.NewDesc("streamer_subscriber_unacknowledged_events", "Queued or sent events of a subscriber that are not acknowledged.", []string{"subscriber"}, nil)
	subscriberLostDesc = prometheus.NewDesc("streamer_subscriber_losses_total", "Losses of a subscriber alone, because it came back too late, that its session was sent; absent while there are none.", []string{"subscriber"}, nil)
	subscribersDesc    = prometheus.NewDesc("streamer_subscribers", "Named subscribers with a session at this node.", nil, nil)
)

// maxLabels bounds the subscribers with their own series: those with the greatest lag.
const maxLabels = 200

// Describe implements prometheus.Collector.
func (g gauges) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		lagDesc, roomDesc, healthDesc, passedDesc, partitionsDesc, subscriberLagDesc, subscriberRoomDesc, subscriberLeftDesc, subscriberLostDesc, subscribersDesc,
	} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (g gauges) Collect(ch chan<- prometheus.Metric) {
	series := func(d *prometheus.Desc, kind prometheus.ValueType, v float64, labels ...string) {
		if m, err := prometheus.NewConstMetric(d, kind, v, labels...); err == nil { // a label that cannot be shown costs its series
			ch <- m
		}
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) { series(d, prometheus.GaugeValue, v, labels...) }
	partitions := g.partitions()
	for _, p := range partitions {
		label := strconv.Itoa(int(p.Partition))
		if p.Lag != nil {
			gauge(lagDesc, p.Lag.Seconds(), label)
		}
		if p.HeadRoom != nil {
			gauge(roomDesc, p.HeadRoom.Seconds(), label)
		}
		gauge(healthDesc, 1, label, string(p.State))
		series(passedDesc, prometheus.CounterValue, float64(p.Events), label)
	}
	gauge(partitionsDesc, float64(len(partitions)))
	subscribers := g.subscribers()
	gauge(subscribersDesc, float64(len(subscribers)))
	slices.SortStableFunc(subscribers, func(a, b SubscriberStatus) int { return a.Position.Compare(b.Position) })
	for _, s := range subscribers[:min(len(subscribers), maxLabels)] {
		if s.Lag != nil {
			gauge(subscriberLagDesc, s.Lag.Seconds(), s.Name)
		}
		if s.HeadRoom != nil {
			gauge(subscriberRoomDesc, s.HeadRoom.Seconds(), s.Name)
		}
		gauge(subscriberLeftDesc, float64(s.Unacknowledged), s.Name)
		if s.Lost > 0 {
			series(subscriberLostDesc, prometheus.CounterValue, float64(s.Lost), s.Name)
		}
	}
}

func newRestarts() restarts {
	return restarts{prometheus.NewCounter(prometheus.CounterOpts{
		Namespace: "streamer", Name: "partition_restarts_total",
		Help: "Partitions that the node serves again in a new term after it served them before.",
	})}
}

// restarts counts the partitions that the node serves again in a new term.
type restarts struct{ prometheus.Counter }
