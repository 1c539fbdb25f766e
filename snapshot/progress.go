package snapshot

import (
	"slices"

	"github.com/mongostream/streamer/change"
)

// A Reason says why there is a snapshot.
type Reason string

// The reasons.
const (
	Start    Reason = "start"    // the subscription begins with it
	Loss     Reason = "loss"     // changes may have been missed
	Operator Reason = "operator" // somebody has asked for it
)

// Progress is what is left of a subscription's snapshot. It is never changed, only replaced.
type Progress struct {
	Subscription string
	// Filter is a hash of what the subscription wants: one that wants something else begins again.
	Filter uint64
	Reason Reason
	// Partitions are those whose documents are still to come; none: all.
	Partitions []change.Partition
	// Listed says that Left has all collections; before, nobody knows them.
	Listed bool
	Left   []Left
	// Done says that the snapshot is complete: the subscription has had it.
	Done bool
	// Read counts the documents that were read, Estimated those that there were at the beginning.
	Read, Estimated uint64
}

// With returns the progress with what is left of one collection replaced, or removed where it is done, and so many documents more.
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
