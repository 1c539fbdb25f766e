package plan

import (
	"cmp"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/notice"
)

// Config says how a cluster is planned.
type Config struct {
	// Node is the leader's own node; its heartbeat shows whether heartbeats arrive at all.
	// Required.
	Node string
	// Partitions is N. Required.
	Partitions int
	// Alone is for a cluster of one: there are no plans, only the health of members. Defaults to
	// no.
	Alone bool
	// Expected is how many nodes a cold start waits for, at most as long as Settle. Defaults to 0:
	// as long as Settle, unless all nodes of the last plan are there before.
	Expected int

	// TTL is how long leases live unless they are renewed. Defaults to 10 s.
	TTL time.Duration
	// Beat is how often members send heartbeats; the leader looks at least as often. Defaults to 2
	// s.
	Beat time.Duration
	// Late is the age of a heartbeat at which its member is degraded. Defaults to 3.5 times Beat.
	Late time.Duration
	// Silent is the age at which it is dead, though its lease lives. Defaults to 6 times Beat.
	Silent time.Duration
	// Confirm is how long a critical check must fail before its member is unhealthy and loses its
	// partitions. Defaults to 3 times Beat.
	Confirm time.Duration
	// Settle is how long a new member has been there, and no other has come or gone, before it is
	// given partitions. Defaults to 10 s.
	Settle time.Duration
	// Grace is how long a member may take until it serves a partition that the plan assigns to it.
	// Defaults to 2 times TTL.
	Grace time.Duration

	// Moves is how many partitions at most are moved at a time between members that live, for
	// balance. Defaults to N/16, at least 2: throughput exchanges pairs.
	Moves int
	// Rebalance is the interval at which the partitions' rates are measured. Defaults to 1 min.
	Rebalance time.Duration
	// RebalanceFloor is how many events a second a member must have more or less than its share for
	// partitions to be exchanged. Defaults to 10.
	RebalanceFloor float64
	// RebalanceCooldown is how long a partition that has moved is not exchanged. Defaults to 1 h.
	RebalanceCooldown time.Duration

	// ResyncDelay is how long after a restart a member is resynced. Defaults to 5 s.
	ResyncDelay time.Duration
	// ResyncRate is how many partitions are resynced a second, of all members. Defaults to 10.
	ResyncRate int

	// Failures is how many failures open a member's assignment breaker, OpenFor how long it is open
	// at first, Successes how many successes close it then. Default to 3, 30 s and 2.
	Failures  int
	OpenFor   time.Duration
	Successes int
}

// WithDefaults returns the configuration with its defaults filled in.
func (c Config) WithDefaults() Config {
	c.TTL = cmp.Or(c.TTL, 10*time.Second)
	c.Beat = cmp.Or(c.Beat, 2*time.Second)
	c.Late = cmp.Or(c.Late, 7*c.Beat/2)
	c.Silent = cmp.Or(c.Silent, 6*c.Beat)
	c.Confirm = cmp.Or(c.Confirm, 3*c.Beat)
	c.Settle = cmp.Or(c.Settle, 10*time.Second)
	c.Grace = cmp.Or(c.Grace, 2*c.TTL)
	c.Moves = cmp.Or(c.Moves, max(2, c.Partitions/16))
	c.Rebalance = cmp.Or(c.Rebalance, time.Minute)
	c.RebalanceCooldown = cmp.Or(c.RebalanceCooldown, time.Hour)
	c.RebalanceFloor = cmp.Or(c.RebalanceFloor, 10)
	c.ResyncDelay = cmp.Or(c.ResyncDelay, 5*time.Second)
	c.ResyncRate = cmp.Or(c.ResyncRate, 10)
	c.Failures = cmp.Or(c.Failures, 3)
	c.OpenFor = cmp.Or(c.OpenFor, 30*time.Second)
	c.Successes = cmp.Or(c.Successes, 2)
	return c
}

// directives are the operators' requests: members to drain, and members that should own certain
// partitions, if they take them.
type directives struct {
	drained map[string]bool
	pinned  map[change.Partition]string
}

func directivesOf(view cluster.View) directives {
	d := directives{pinned: make(map[change.Partition]string), drained: make(map[string]bool)}
	for p, pin := range view.Directives.Pinned {
		d.pinned[p] = pin.To
	}
	for node := range view.Directives.Drained {
		d.drained[node] = true
	}
	return d
}

// A Decision lists the leader's next actions: publish the plan, then evict, notify, and look again.
type Decision struct {
	// Publish is the next plan; nil if the current one is right. At is not set.
	Publish *cluster.Plan
	// Replan is the reason for the plan, and Moved the number of partitions that it moves from one
	// member to another.
	Replan Replan
	Moved  int
	// Evict are owners that are to lose their keys, after the plan is published.
	Evict   []Eviction
	Notices []notice.Notice
	Resync  []Resync
	// News are short sentences for the operators' log.
	News []string
	// Next is the reading of the clock at which to look again, if nothing changes before.
	Next time.Duration
}

// An Eviction takes a partition from an owner that does not give it up.
type Eviction struct {
	Partition change.Partition
	Epoch     change.Epoch
}

// A Resync is a step in which a restarted member learns its partitions again.
type Resync struct {
	Node string
	Kind cluster.Kind
	// Partitions are those looked at in this step, Missing how many of them the member does not
	// serve.
	Partitions []change.Partition
	Missing    int
	// Recent are the last notices, for a gateway that was not there when they were posted: at most
	// 10, of the last 30 minutes.
	Recent []notice.Notice
}

// A Replan is the reason for a plan; metrics count plans by it.
type Replan string

// The replans, the more urgent first where several come together.
const (
	replanColdStart Replan = "cold_start"
	replanEmergency Replan = "emergency" // a member is dead
	replanUnhealthy Replan = "unhealthy"
	replanFailure   Replan = "failure" // a member did not take what it was given
	replanLeave     Replan = "leave"
	replanDirective Replan = "wish"
	replanJoin      Replan = "join"
	replanRebalance Replan = "rebalance"
	replanResync    Replan = "resync"
)

// Replans returns all of them, the more urgent first.
func Replans() []Replan {
	return []Replan{
		replanColdStart, replanEmergency, replanUnhealthy, replanFailure, replanLeave, replanDirective, replanJoin, replanRebalance, replanResync,
	}
}
