package delivery

import "github.com/prometheus/client_golang/prometheus"

// metrics are the Hub's own metrics.
type metrics struct {
	joined, left, failed, costly, crowding, suspended, read prometheus.Counter

	stages stages
}

// newMetrics returns metrics, and registers them, the load and the strain of accounts, if there is
// a Registerer.
func newMetrics(reg prometheus.Registerer, load func() Load, strain func() float64) metrics {
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

		stages: newStages(reg),
	}
	if reg == nil {
		return m
	}
	reg.MustRegister(m.joined, m.left, m.failed, m.costly, m.crowding, m.suspended, m.read)
	gauge := func(name, help string, labels prometheus.Labels, of func(Load) int) {
		opts := prometheus.GaugeOpts{Namespace: "streamer", Subsystem: "hub", Name: name, Help: help, ConstLabels: labels}
		reg.MustRegister(prometheus.NewGaugeFunc(opts, func() float64 { return float64(of(load())) }))
	}
	const sessions = "Sessions by path: live or catching_up."
	gauge("sessions", sessions, prometheus.Labels{"path": "live"}, func(l Load) int { return l.Live })
	gauge("sessions", sessions, prometheus.Labels{"path": "catching_up"}, func(l Load) int { return l.CatchingUp })
	gauge("held_bytes", "Memory of the changes that all sessions have queued or sent and not acknowledged, of gateway.queue_bytes.", nil, func(l Load) int { return l.Held })
	gauge("unacknowledged_bytes", "Queued or sent bytes of all sessions that are not acknowledged.", nil, func(l Load) int { return l.Bytes })
	opts := prometheus.GaugeOpts{
		Namespace: "streamer", Subsystem: "hub", Name: "strain",
		Help: "How long sessions off the live path rest, in multiples of how long they run: 1 while goroutines soon have a core, up to 15 while they wait.",
	}
	reg.MustRegister(prometheus.NewGaugeFunc(opts, strain))
	gauge("snapshots", "Snapshots of subscriptions that are not complete.", nil, func(l Load) int { return l.Snapshots })
	return m
}

// stages measure how long batches with events take from MongoDB's reply to their acknowledgement,
// by the node's clock.
type stages struct {
	hub, transport, acknowledgement prometheus.Observer
}

func newStages(reg prometheus.Registerer) stages {
	v := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: "streamer", Name: "stage_seconds",
		Help: "How long batches of changes take, by stage: hub, from MongoDB's reply until they are queued for a session, on the live path; " +
			"transport, until they are written, or published by a sink; acknowledgement, until the client has acknowledged them.",
		Buckets: []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
	}, []string{"stage"})
	if reg != nil {
		reg.MustRegister(v)
	}
	return stages{hub: v.WithLabelValues("hub"), transport: v.WithLabelValues("transport"), acknowledgement: v.WithLabelValues("acknowledgement")}
}

// A Load is the current load of a Hub.
type Load struct {
	Live, CatchingUp int  // sessions on the live path and sessions that catch up
	Snapshots        int  // snapshots of subscriptions that are not complete
	Bytes            int  // queued or sent, and not acknowledged
	Held             int  // the memory of these, which Config.QueueBytes bounds
	Ready            bool // the Hub knows its position, so that sessions can join it
}
