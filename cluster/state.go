package cluster

import (
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/health"
)

// A Status is a member's condition by its own account.
type Status string

// The statuses.
const (
	StatusStarting  Status = "starting"
	StatusHealthy   Status = "healthy"
	StatusDegraded  Status = "degraded"  // keeps its partitions, gets no new ones
	StatusUnhealthy Status = "unhealthy" // loses its partitions
	StatusStopping  Status = "stopping"  // gives up its partitions
)

// A Kind is what a member is.
type Kind string

// The kinds.
const (
	KindNode    Kind = "node"    // serves partitions: resynced at once
	KindGateway Kind = "gateway" // is served: resynced when it next comes
)

// The checks that are critical for a node; others only inform.
const (
	CheckMongoDB    = "mongodb_ok"
	CheckEtcd       = "etcd_ok"
	CheckCheckpoint = "checkpoint_ok"
	CheckGateway    = "gateway_ok"
)

// A Heartbeat is what a member says of itself. One written by another version may lack fields,
// which are zero then, or have more.
type Heartbeat struct {
	Node      string          `json:"node"`    // stable over restarts
	Process   string          `json:"process"` // random, of one process
	Kind      Kind            `json:"kind,omitempty"`
	StartedAt time.Time       `json:"started_at"` // by the member's clock: compared with itself only
	Version   string          `json:"version,omitempty"`
	Status    Status          `json:"status,omitempty"`
	Checks    map[string]bool `json:"checks,omitempty"`
	// Capacity is the member's relative share of the partitions. Zero counts as 1.
	Capacity float64 `json:"capacity,omitempty"`
	// Gateway is the address at which gateways reach the member, empty for none.
	Gateway string `json:"gateway,omitempty"`
	// HTTP is the base URL at which the member's components are asked how they do, empty for none,
	// Host the name of its machine: an address of the loopback is good there only. Components are
	// their slugs.
	HTTP       string   `json:"http,omitempty"`
	Host       string   `json:"host,omitempty"`
	Components []string `json:"components,omitempty"`
	// Count is N as the member is configured, Fingerprint that of the settings with which it opens
	// streams.
	Count       int    `json:"partition_count,omitempty"`
	Fingerprint string `json:"fingerprint,omitempty"`
	// Coverage is what the member reads of MongoDB, nil if it does not say. Sinks are those that it
	// serves, each with a hash of its subscriptions.
	Coverage *change.Coverage `json:"coverage,omitempty"`
	Sinks    []string         `json:"sinks,omitempty"`
	Load     Load             `json:"metrics"`
	Held     []HeldPartition  `json:"partitions,omitempty"`
	// Gateways are those with a session at the member, at most MaxGateways, and Unlisted is how
	// many more there are.
	Gateways []Gateway `json:"gateways,omitempty"`
	Unlisted int       `json:"gateways_unlisted,omitempty"`
	// Problems are what is wrong at the member, at most MaxProblems.
	Problems []health.Problem `json:"problems,omitempty"`
}

// MaxProblems is how many problems a heartbeat names at most.
const MaxProblems = 16

// A Load is how much a member has to do.
type Load struct {
	Rate   float64  `json:"rate"`                  // events a second
	Lag    *float64 `json:"lag_seconds,omitempty"` // of the partition furthest behind; nil while unknown
	Queued int64    `json:"queued_bytes"`
}

// A HeldPartition is a partition that a member serves.
type HeldPartition struct {
	Partition change.Partition `json:"id"`
	Epoch     change.Epoch     `json:"epoch"`
	Rate      float64          `json:"rate,omitempty"` // events a second
	State     string           `json:"state,omitempty"`
}

// A Member is a member as the store has it.
type Member struct {
	Heartbeat

	// Joined is the store's revision at which the member came under its lease: another one with the
	// same name has another. Beat is the revision of its last heartbeat: while that stays the same,
	// nothing was heard.
	Joined, Beat int64
	// Garbled says why the heartbeat cannot be read; then only its node's name is known, from the
	// key.
	Garbled error
}

// An Owner is who owns a partition; the zero Owner is nobody.
type Owner struct {
	Node, Process string
	// Epoch is the claim's: Revision is when the key was written.
	Epoch change.Epoch
	// Trace names the span of the handoff that has made it the owner, for WithTrace. It is empty
	// where there is none, and told by Claim alone.
	Trace string
}

// A Plan says who should own what.
type Plan struct {
	// Version counts the plans, from 1; 0 is no plan.
	Version uint64    `json:"version"`
	At      time.Time `json:"at"` // by the leader's clock; informative
	By      string    `json:"by"` // the leader's node
	// Owners are the nodes by partition, empty for nobody.
	Owners []string `json:"owners"`
	// Cause says what the plan was made for: "cold start", "node-2 is dead", …
	Cause string `json:"cause"`
	// Why says for each partition why it is where it is: an index into Reasons.
	Why     []uint8  `json:"why,omitempty"`
	Reasons []string `json:"reasons,omitempty"`
}

// Reason returns why a partition is where it is, empty where the plan does not say.
func (p Plan) Reason(partition change.Partition) string {
	if int(partition) >= len(p.Why) || int(p.Why[partition]) >= len(p.Reasons) {
		return ""
	}
	return p.Reasons[p.Why[partition]]
}

// Owner returns who should own a partition, empty for nobody.
func (p Plan) Owner(partition change.Partition) string {
	if int(partition) >= len(p.Owners) {
		return ""
	}
	return p.Owners[partition]
}

// A View is everything at one revision of the store.
type View struct {
	Revision   int64
	Members    []Member // by name
	Owners     []Owner  // by partition, N of them
	Plan       Plan
	Leader     string // the elected node, empty for none
	Directives Directives
}
