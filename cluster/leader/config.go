package leader

import (
	"cmp"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mongostream/streamer/cluster/plan"
	"github.com/mongostream/streamer/notice"
)

// Config says who leads, and how.
type Config struct {
	// Node is the leader's own node; its heartbeat tells whether heartbeats come through at all. Required.
	Node string
	// Partitions is N. Required.
	Partitions int
	// Expected is how many nodes a cold start waits for, at most as long as Settle. Defaults to 0: as long as Settle, unless all nodes of
	// the last plan are there before.
	Expected int

	// TTL is how long leases live unless they are renewed. Defaults to 10 s.
	TTL time.Duration
	// Beat is how often members send heartbeats; the leader looks at least as often. Defaults to 2 s.
	Beat time.Duration
	// Late is the age of a heartbeat at which its member is degraded. Defaults to 3.5 times Beat.
	Late time.Duration
	// Silent is the age at which it is dead, though its lease lives. Defaults to 6 times Beat.
	Silent time.Duration
	// Confirm is for how long a critical check has to fail before its member is unhealthy and loses what it has. Defaults to 3 times Beat.
	Confirm time.Duration
	// Settle is how long a new member has been there, and no other has come or gone, before it is given partitions. Defaults to 10 s.
	Settle time.Duration
	// Grace is how long a member may take until it serves what the plan gives it. Defaults to 2 times TTL.
	Grace time.Duration

	// Moves is how many partitions at most are moved at a time between members that live, for balance. Defaults to N/16, at least 2:
	// throughput exchanges pairs.
	Moves int
	// Rebalance is how often the partitions' rates are looked at anew. Defaults to 1 min.
	Rebalance time.Duration
	// RebalanceFloor is how many events a second a member must have more or less than its share for partitions to be exchanged. Defaults to 10.
	RebalanceFloor float64
	// RebalanceCooldown is how long a partition that has moved is not exchanged. Defaults to 1 h.
	RebalanceCooldown time.Duration

	// ResyncDelay is how long after a restart a member is resynced. Defaults to 5 s.
	ResyncDelay time.Duration
	// ResyncRate is how many partitions are resynced a second, of all members. Defaults to 10.
	ResyncRate int

	// Failures is how many failures open a member's assignment breaker, OpenFor how long it is open at first, Successes how many successes
	// close it then. Default to 3, 30 s and 2.
	Failures  int
	OpenFor   time.Duration
	Successes int

	// Trusted says whether the node may lead: it is attached to the cluster. Defaults to always.
	Trusted func() bool
	// Resynced hears of every step of a resync: gateways are to be sent the notices. It must not block. Defaults to nothing.
	Resynced func(plan.Resync)
	// Board takes the notices. Nil discards them.
	Board *notice.Board
	// Clock goes on while the machine is suspended; only differences of its readings count. Defaults to Go's monotonic clock, which may
	// not.
	Clock func() time.Duration
	// Log defaults to none.
	Log *slog.Logger
	// Registerer takes the metrics; nil registers them nowhere.
	Registerer prometheus.Registerer
}

func (c Config) withDefaults() Config {
	p := c.policy().WithDefaults()
	c.Beat, c.TTL = p.Beat, p.TTL
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	if c.Trusted == nil {
		c.Trusted = func() bool { return true }
	}
	if c.Resynced == nil {
		c.Resynced = func(plan.Resync) {}
	}
	if c.Clock == nil {
		began := time.Now()
		c.Clock = func() time.Duration { return time.Since(began) }
	}
	return c
}

// Validate says what is wrong with the values, all at once.
func (c Config) Validate() error { return c.policy().Validate() }

func (c Config) policy() plan.Config {
	return plan.Config{
		Node: c.Node, Partitions: c.Partitions, Expected: c.Expected, TTL: c.TTL, Beat: c.Beat, Late: c.Late, Silent: c.Silent,
		Confirm: c.Confirm, Settle: c.Settle, Grace: c.Grace, Moves: c.Moves, Rebalance: c.Rebalance,
		RebalanceFloor: c.RebalanceFloor, RebalanceCooldown: c.RebalanceCooldown, ResyncDelay: c.ResyncDelay,
		ResyncRate: c.ResyncRate, Failures: c.Failures, Successes: c.Successes, OpenFor: c.OpenFor,
	}
}
