package cluster

import (
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/health"
)

// A Status is the condition that a member reports of itself to the leader, which goes by it.
type Status string

// The statuses.
const (
	StatusStarting  Status = "starting"
	StatusHealthy   Status = "healthy"
	StatusDegraded  Status = "degraded"  // keeps its partitions, gets no new ones
	StatusUnhealthy Status = "unhealthy" // loses its partitions
	StatusStopping  Status = "stopping"  // gives up its partitions
)

// A Kind is the kind of a member.
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

// A Heartbeat is a member's report about itself. A heartbeat of another version may lack fields,
// which are then zero, or have additional ones.
type Heartbeat struct {
	Node      string    `json:"node"`    // stable over restarts
	Process   string    `json:"process"` // random, of one process
	Kind      Kind      `json:"kind,omitempty"`
	StartedAt time.Time `json:"started_at"` // by the member's clock: compared with itself only
	Version   string    `json:"version,omitempty"`
	Status    Status    `json:"status,omitempty"`
	// News counts the changes of Problems that others must see at once.
	News   uint64          `json:"news,omitempty"`
	Checks map[string]bool `json:"checks,omitempty"`
	// Capacity is the member's relative share of the partitions. Zero counts as 1.
	Capacity float64 `json:"capacity,omitempty"`
	// Gateway is the address at which gateways reach the member, empty for none.
	Gateway string `json:"gateway,omitempty"`
	// HTTP is the base URL of the member's component health, empty for none. Host is the name of
	// its machine, because a loopback address is valid only there. Components are the names of the
	// components in URLs.
	HTTP       string   `json:"http,omitempty"`
	Host       string   `json:"host,omitempty"`
	Components []string `json:"components,omitempty"`
	// Count is the N of the member's configuration, Fingerprint the fingerprint of its stream
	// settings.
	Count       int    `json:"partition_count,omitempty"`
	Fingerprint string `json:"fingerprint,omitempty"`
	// Coverage lists the changes that the member reads, nil if it does not report them. Sinks are
	// the sinks that it serves, each with a hash of its subscriptions.
	Coverage *change.Coverage `json:"coverage,omitempty"`
	Sinks    []string         `json:"sinks,omitempty"`
	// Lags are those of the shared subscribers at the member, in seconds; it names those of which
	// it is known.
	Lags map[string]float64 `json:"shared_lag_seconds,omitempty"`
	Load Load               `json:"metrics"`
	Held []HeldPartition    `json:"partitions,omitempty"`
	// Gateways are the gateways with a session at the member, at most MaxGateways; Unlisted is the
	// number of the others.
	Gateways []Gateway `json:"gateways,omitempty"`
	Unlisted int       `json:"gateways_unlisted,omitempty"`
	// Verdict is the member's own judgement of itself, for people. Problems are its present
	// problems, at most MaxProblems.
	Verdict  health.Status    `json:"verdict,omitempty"`
	Problems []health.Problem `json:"problems,omitempty"`
}

// Condition returns the member's state as people are shown it: starting, stopping, or its verdict.
func (h Heartbeat) Condition() Status {
	if h.Verdict == "" || h.Status == StatusStarting || h.Status == StatusStopping {
		return h.Status
	}
	return Status(h.Verdict)
}

// MaxProblems bounds the problems in a heartbeat.
const MaxProblems = 16

// A Load is the amount of a member's work.
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

// A Member is the stored state of a member.
type Member struct {
	Heartbeat

	// Joined is the store's revision at which the member joined; another member with the same name
	// has a different one. Beat is the revision of its last heartbeat: while it stays the same, no
	// heartbeat has arrived.
	Joined, Beat int64
	// Garbled says why the heartbeat is unreadable. Then only the node's name is known, from the
	// key.
	Garbled error
}

// An Owner is the owner of a partition; the zero Owner means that there is none.
type Owner struct {
	Node, Process string
	// Epoch is the epoch of the claim: its Revision is that of the key.
	Epoch change.Epoch
	// Trace names the span of the handoff that has made it the owner, for WithTrace. It is empty if
	// there is none; only Claim returns it.
	Trace string
}

// A Plan assigns partitions to nodes.
type Plan struct {
	// Version counts the plans, from 1; 0 is no plan.
	Version uint64    `json:"version"`
	At      time.Time `json:"at"` // by the leader's clock; informative
	By      string    `json:"by"` // the leader's node
	// Owners are the nodes by partition, empty for none.
	Owners []string `json:"owners"`
	// Cause is the reason for the plan: "cold start", "node-2 is dead", …
	Cause string `json:"cause"`
	// Why is the reason for each partition's assignment, as an index into Reasons.
	Why     []uint8  `json:"why,omitempty"`
	Reasons []string `json:"reasons,omitempty"`
}

// Reason returns the reason for a partition's assignment, empty if the plan has none.
func (p Plan) Reason(partition change.Partition) string {
	if int(partition) >= len(p.Why) || int(p.Why[partition]) >= len(p.Reasons) {
		return ""
	}
	return p.Reasons[p.Why[partition]]
}

// Owner returns the node that should own a partition, empty for none.
func (p Plan) Owner(partition change.Partition) string {
	if int(partition) >= len(p.Owners) {
		return ""
	}
	return p.Owners[partition]
}

// A View is the complete state at one revision of the store.
type View struct {
	Revision   int64
	Members    []Member // by name
	Owners     []Owner  // by partition, N of them
	Plan       Plan
	Leader     string // the elected node, empty for none
	Directives Directives
}
