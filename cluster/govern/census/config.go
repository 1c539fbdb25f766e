package census

import (
	"time"

	"github.com/mongostream/streamer/cluster/roster"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/notice"
)

// Config says how members are judged. The fields are those of the leader's Config; nothing has a default here.
type Config struct {
	Node                                string // the leader's own
	Partitions, Expected                int
	Beat, Late, Silent, Confirm, Settle time.Duration
	Failures, Successes                 int
	OpenFor                             time.Duration
}

// The statuses that only the leader gives.
const (
	Dead    roster.Status = "dead"    // its lease has ended, or nothing is heard of it
	Refused roster.Status = "refused" // it does not fit the cluster, or cannot be read
)

// A What is what happened.
type What int

// What happens to members.
const (
	Came      What = iota // it is there, for the first time or again
	Left                  // it is gone, as it had said
	Died                  // Why says how that is known
	Heard                 // it was dead though its lease lived, and is not
	Restarted             // it is another process: Old and New are when they started, Quick that it kept its place
	Stops                 // it asks to give up what it has
	Sick                  // it is unhealthy: Why is the check
	Settled               // it is to be given partitions
	Rejected              // it cannot take part: Code and Why
	Degraded              // it fails checks, by Level; of no member: half of all fail the check, and Number of Total do
	Recovered             // it passes them again, after For; of no member: most pass the check
	Closed                // its breaker has, by its restart, after For
	Began                 // the cold start is over, with Number of members
)

// An Event is something that happened.
type Event struct {
	What   What
	Member *Member // nil for the cluster
	Why    string

	Code          fault.Code
	Level         notice.Severity
	Checks        []string
	For           time.Duration
	Old, New      time.Time
	Version       string
	Number, Total int
}

// A Standing is how a member stands with the leader.
type Standing struct {
	Node    string        `json:"node"`
	Kind    roster.Kind   `json:"kind"`
	Status  roster.Status `json:"status"`
	Failing []string      `json:"failing,omitempty"`
	// Settled says that it has been there for long enough to be given partitions.
	Settled bool   `json:"settled"`
	Breaker string `json:"breaker"` // closed, half_open, open
	// Silence is the age of its last heartbeat, Losses how often it was lost lately.
	Silence time.Duration `json:"silence_ns"`
	Losses  int           `json:"losses,omitempty"`
}
