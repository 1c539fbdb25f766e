package plan

import (
	"time"

	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/notice"
)

// The statuses that only the leader gives.
const (
	StatusDead    cluster.Status = "dead"    // its lease has ended, or nothing is heard of it
	StatusRefused cluster.Status = "refused" // it does not fit the cluster, or cannot be read
)

// An eventKind is what happened.
type eventKind int

// Events of members.
const (
	eventCame      eventKind = iota // it is there, for the first time or again
	eventLeft                       // it is gone, as it had said
	eventDied                       // Why says how that is known
	eventHeard                      // it was dead though its lease lived, and is not
	eventRestarted                  // it is another process: Old and New are when they started, Quick that it kept its place
	eventStops                      // it asks to hand over its partitions
	eventSick                       // it is unhealthy: Why is the check
	eventSettled                    // it may get partitions
	eventRejected                   // it cannot take part: Code and Why
	eventDegraded                   // it fails checks, by Level; of no member: half of all fail the check, and Number of Total do
	eventRecovered                  // it passes them again, after For; of no member: most pass the check
	eventClosed                     // its breaker has, by its restart, after For
	eventBegan                      // the cold start is over, with Number of members
)

// An event is something that happened.
type event struct {
	What   eventKind
	Member *member // nil for the cluster
	Why    string

	Code          fault.Code
	Level         notice.Severity
	Checks        []string
	For           time.Duration
	Old, New      time.Time
	Version       string
	Number, Total int
}

// A MemberStatus is a member's status as the leader sees it.
type MemberStatus struct {
	Node   string
	Kind   cluster.Kind
	Status cluster.Status
	// Settled says that it has been there for long enough to be given partitions.
	Settled bool
	Breaker string // closed, half_open, open
}
