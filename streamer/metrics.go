package streamer

import (
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the Hub's own metrics.
type metrics struct {
	joined, left, failed, costly, crowding, suspended, read prometheus.Counter
}

func newMetrics(reg prometheus.Registerer, h *Hub) metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "streamer", Subsystem: "hub", Name: name, Help: help})
	}
	m := metrics{
		joined: counter("sessions_joined_total", "Sessions that joined the live path."),
		left:   counter("sessions_left_total", "Sessions that left the live path because they had no credit."),
		failed: counter("filter_failures_total", "Evaluations of filters that failed."),

		read:      counter("snapshot_documents_total", "Documents read for snapshots of subscriptions, each for every subscription that wanted it."),
		crowding:  counter("sessions_crowding_total", "Sessions that left the live path because what their identity is sent costs more than its share."),
		costly:    counter("sessions_costly_total", "Sessions that left the live path because their filters cost too much."),
		suspended: counter("filters_suspended_total", "Filters that were suspended because they kept costing too much; their sessions ended."),
	}
	if reg == nil {
		return m
	}
	reg.MustRegister(m.joined, m.left, m.failed, m.costly, m.crowding, m.suspended, m.read)
	gauge := func(name, help string, labels prometheus.Labels, of func(Load) int) {
		opts := prometheus.GaugeOpts{Namespace: "streamer", Subsystem: "hub", Name: name, Help: help, ConstLabels: labels}
		reg.MustRegister(prometheus.NewGaugeFunc(opts, func() float64 { return float64(of(h.Load())) }))
	}
	const sessions = "Sessions by path: live or catching_up."
	gauge("sessions", sessions, prometheus.Labels{"path": "live"}, func(l Load) int { return l.Live })
	gauge("sessions", sessions, prometheus.Labels{"path": "catching_up"}, func(l Load) int { return l.CatchingUp })
	gauge("held_bytes", "Memory of what all sessions have queued or sent and not acknowledged, of gateway.queue_bytes.", nil, func(l Load) int { return l.Held })
	gauge("unacknowledged_bytes", "Queued or sent bytes of all sessions that are not acknowledged.", nil, func(l Load) int { return l.Bytes })
	strain := prometheus.GaugeOpts{
		Namespace: "streamer", Subsystem: "hub", Name: "strain",
		Help: "How long what is off the live path rests, in multiples of how long it runs: 1 while goroutines soon have a core, up to 15 while they wait.",
	}
	reg.MustRegister(prometheus.NewGaugeFunc(strain, func() float64 { return h.tenants.strain.now(time.Now()) }))
	gauge("snapshots", "Snapshots of subscriptions that are not complete.", nil, func(l Load) int { return l.Snapshots })
	return m
}

// A Load is the current load of a Hub.
type Load struct {
	Live, CatchingUp int  // sessions on the live path and sessions that catch up
	Snapshots        int  // snapshots of subscriptions that are not complete
	Bytes            int  // queued or sent, and not acknowledged
	Held             int  // the memory of these, which Config.QueueBytes bounds
	Ready            bool // the Hub knows its position, so that sessions can join it
}

// Load returns the current load.
func (h *Hub) Load() (l Load) {
	l.Ready, l.Held = !h.position().IsZero(), h.budget.bytes()
	for _, s := range h.Sessions() {
		s.mu.Lock()
		if s.mu.live {
			l.Live++
		} else {
			l.CatchingUp++
		}
		l.Bytes += s.mu.bytes
		for _, p := range s.mu.snapshots {
			if !p.Done {
				l.Snapshots++
			}
		}
		s.mu.Unlock()
	}
	return l
}

// gauges are collected at scrape time.
type gauges struct {
	partitions  func() []PartitionStatus
	subscribers func() []SubscriberStatus
}

//nolint:gochecknoglobals // descriptions are constants
var (
	lagDesc        = prometheus.NewDesc("streamer_partition_lag_seconds", "Log time from a partition's position to the end of the oplog; absent while unknown.", []string{"partition"}, nil)
	roomDesc       = prometheus.NewDesc("streamer_partition_head_room_seconds", "Log time until a partition's position leaves the oplog; absent while unknown.", []string{"partition"}, nil)
	healthDesc     = prometheus.NewDesc("streamer_partition_health", "1 for the current state of a partition.", []string{"partition", "status"}, nil)
	passedDesc     = prometheus.NewDesc("streamer_partition_events_total", "Events of a partition read in this term.", []string{"partition"}, nil)
	partitionsDesc = prometheus.NewDesc("streamer_partitions_owned", "Partitions owned by this node.", nil, nil)

	subscriberLagDesc  = prometheus.NewDesc("streamer_subscriber_lag_seconds", "Log time from a subscriber's acknowledged position to the end of the oplog.", []string{"subscriber"}, nil)
	subscriberRoomDesc = prometheus.NewDesc("streamer_subscriber_head_room_seconds", "Log time until a subscriber's position leaves the oplog.", []string{"subscriber"}, nil)
	subscriberLeftDesc = prometheus.NewDesc("streamer_subscriber_unacknowledged_events", "Queued or sent events of a subscriber that are not acknowledged.", []string{"subscriber"}, nil)
	subscribersDesc    = prometheus.NewDesc("streamer_subscribers", "Named subscribers with a session at this node.", nil, nil)
)

// maxLabels bounds the subscribers with their own series: those with the greatest lag.
const maxLabels = 200

// Describe implements prometheus.Collector.
func (g gauges) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		lagDesc, roomDesc, healthDesc, passedDesc, partitionsDesc, subscriberLagDesc, subscriberRoomDesc, subscriberLeftDesc, subscribersDesc,
	} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (g gauges) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
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
		ch <- prometheus.MustNewConstMetric(passedDesc, prometheus.CounterValue, float64(p.Events), label)
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
	}
}

// restarts counts the terms that a node has begun to serve.
type restarts struct{ prometheus.Counter }

func newRestarts() restarts {
	return restarts{prometheus.NewCounter(prometheus.CounterOpts{
		Namespace: "streamer", Name: "partition_restarts_total", Help: "Terms of partitions that the node has begun to serve.",
	})}
}
