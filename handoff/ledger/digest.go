package ledger

import (
	"slices"
	"time"

	"github.com/mongostream/streamer/change"
)

// An Ended is what became of one handoff.
type Ended struct {
	Record  Record
	Outcome string // moved, stayed, lost
	Why     string // empty where it went as it should
	Took    time.Duration
}

// A Digest is what became of handoffs that are alike but for their partitions.
type Digest struct {
	From    string `json:"from"`
	To      string `json:"to"`
	Outcome string `json:"outcome"`
	Cause   string `json:"cause"`
	By      string `json:"by"`
	Why     string `json:"why,omitempty"` // of one of them
	// Partitions are in their order.
	Partitions []change.Partition `json:"partitions"`
	LongestMS  int64              `json:"longest_ms"`
}

// Digests brings together what became of handoffs, in the order in which the first of each kind has ended.
func Digests(all []Ended) (digests []Digest) {
	for _, e := range all {
		r := e.Record
		i := slices.IndexFunc(digests, func(d Digest) bool {
			return d.From == r.From.Node && d.To == r.To.Node && d.Outcome == e.Outcome && d.Cause == r.Cause && d.By == r.By
		})
		if i < 0 {
			i = len(digests)
			digests = append(digests, Digest{From: r.From.Node, To: r.To.Node, Outcome: e.Outcome, Cause: r.Cause, By: r.By, Why: e.Why})
		}
		d := &digests[i]
		d.Partitions = append(d.Partitions, r.Partition)
		d.LongestMS = max(d.LongestMS, e.Took.Milliseconds())
	}
	for _, d := range digests {
		slices.Sort(d.Partitions)
	}
	return digests
}
