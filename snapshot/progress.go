package snapshot

import (
	"slices"

	"github.com/mongostream/streamer/change"
)

// A Reason says why a snapshot is taken.
type Reason string

// The reasons.
const (
	Start    Reason = "start"    // the subscription begins with it
	Loss     Reason = "loss"     // changes may have been missed
	Operator Reason = "operator" // requested by an operator
)

// Progress is the remainder of a subscription's snapshot. It is immutable.
type Progress struct {
	Subscription string
	// Filter is a hash of the subscription's filter: with another filter the snapshot starts over.
	Filter uint64
	Reason Reason
	// Partitions are the partitions whose documents remain; empty means all.
	Partitions []change.Partition
	// Listed says that Left lists all collections; before, they are unknown.
	Listed bool
	Left   []Left
	// Done says that the snapshot is complete.
	Done bool
	// Read counts the documents read, Estimated the documents at the beginning.
	Read, Estimated uint64
}

// With returns the progress with the remainder of one collection replaced, or removed if done, and the number of documents added.
func (p Progress) With(l Left, done bool, documents int) Progress {
	p.Left = slices.Clone(p.Left)
	p.Read += uint64(documents)
	at := slices.IndexFunc(p.Left, func(other Left) bool { return other.Namespace == l.Namespace })
	switch {
	case at < 0:
	case done:
		p.Left = slices.Delete(p.Left, at, at+1)
	default:
		p.Left[at] = l
	}
	return p
}
