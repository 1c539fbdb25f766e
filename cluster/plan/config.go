package plan

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/notice"
)

// Config says how a cluster is governed. The leader's Config has the same fields and says what they mean; their defaults are here.
type Config struct {
	Node                    string
	Partitions, Expected    int
	TTL, Beat, Late, Silent time.Duration
	Confirm, Settle, Grace  time.Duration
	Moves                   int
	Rebalance               time.Duration
	RebalanceFloor          float64
	RebalanceCooldown       time.Duration
	ResyncDelay             time.Duration
	ResyncRate              int
	Failures, Successes     int
	OpenFor                 time.Duration
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

// Validate says what is wrong with the values, all at once.
func (c Config) Validate() error {
	d := c.WithDefaults()
	var wrong []error
	if d.Node == "" {
		wrong = append(wrong, errors.New("no node"))
	}
	if d.Partitions < 1 || d.Partitions > change.MaxPartitions {
		wrong = append(wrong, fmt.Errorf("%d partitions, must be 1 to %d", d.Partitions, change.MaxPartitions))
	}
	if d.Late < d.Beat || d.Silent <= d.Late {
		wrong = append(wrong, fmt.Errorf("heartbeats every %s cannot be late after %s and missed after %s", d.Beat, d.Late, d.Silent))
	}
	if d.Grace < d.TTL {
		wrong = append(wrong, fmt.Errorf("a grace of %s is shorter than the TTL of %s: what a dead member had would count as not taken", d.Grace, d.TTL))
	}
	if min(d.TTL, d.Beat, d.Confirm, d.Settle, d.Rebalance, d.RebalanceCooldown, d.ResyncDelay, d.OpenFor) < 0 ||
		min(d.Expected, d.Moves, d.ResyncRate, d.Failures, d.Successes) < 0 {
		wrong = append(wrong, errors.New("times and numbers must not be negative"))
	}
	return errors.Join(wrong...)
}

// Directives are what operators want of the plan. The zero value is nothing.
type Directives struct {
	// Drained are members that are to give up what they have.
	Drained map[string]bool
	// Pinned says where partitions are to be, where those members take them.
	Pinned map[change.Partition]string
}

// DirectivesOf are the wishes of a view.
func DirectivesOf(view cluster.View) Directives {
	wishes := Directives{Pinned: make(map[change.Partition]string), Drained: make(map[string]bool)}
	for p, pin := range view.Directives.Pinned {
		wishes.Pinned[p] = pin.To
	}
	for node := range view.Directives.Drained {
		wishes.Drained[node] = true
	}
	return wishes
}

// A Decision is what is to be done: publish the plan, then evict, tell, and look again.
type Decision struct {
	// Publish is the next plan; nil where the one that stands is right. At is not set.
	Publish *cluster.Plan
	// Replan is what the plan is made for, and Moved how many partitions it takes from one member to another.
	Replan Replan
	Moved  int
	// Evict are owners that are to lose their keys, after the plan is published.
	Evict   []Eviction
	Notices []notice.Notice
	Resync  []Resync
	// News says in short sentences what an operator may find in the log.
	News []string
	// Next is the reading of the clock at which to look again, if nothing changes before.
	Next time.Duration
}

// An Eviction takes a partition from an owner that does not give it up.
type Eviction struct {
	Partition change.Partition
	Epoch     change.Epoch
}

// A Resync is a step of telling a member again what is its own.
type Resync struct {
	Node string
	Kind cluster.Kind
	// Partitions are those looked at in this step, Missing how many of them the member does not serve.
	Partitions []change.Partition
	Missing    int
	// Recent are the last notices, for a gateway that was not there when they were posted: at most 10, of the last 30 minutes.
	Recent []notice.Notice
}

// A Replan is what a plan was made for; metrics count by it.
type Replan string

// The replans, the more urgent first where several come together.
const (
	ReplanColdStart Replan = "cold_start"
	ReplanEmergency Replan = "emergency" // a member is dead
	ReplanUnhealthy Replan = "unhealthy"
	ReplanFailure   Replan = "failure" // a member did not take what it was given
	ReplanLeave     Replan = "leave"
	ReplanDirective Replan = "wish"
	ReplanJoin      Replan = "join"
	ReplanRebalance Replan = "rebalance"
	ReplanResync    Replan = "resync"
)

// Replans returns all of them, the more urgent first.
func Replans() []Replan {
	return []Replan{
		ReplanColdStart, ReplanEmergency, ReplanUnhealthy, ReplanFailure, ReplanLeave, ReplanDirective, ReplanJoin, ReplanRebalance, ReplanResync,
	}
}
