package snapshot

import (
	"fmt"
	"slices"
	"time"

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

// Progress is the remainder of a subscription's snapshot. It is immutable. Like a position, it is
// of partitions: a checkpoint has one for each set of partitions in which the same remains.
type Progress struct {
	Subscription string
	// Filter is a hash of the subscription's filter: with another filter the snapshot starts over.
	Filter uint64
	Reason Reason
	// Number distinguishes the snapshots of a subscription, so that the progress of one is not
	// mistaken for that of another.
	Number uint32
	// Some are the only collections that it is of; empty means all that the filter selects.
	Some []change.Namespace
	// Partitions are those that the progress is of; empty means all.
	Partitions []change.Partition
	// Listed says that Left lists all collections; before, they are unknown.
	Listed bool
	Left   []Left
	// Done says that the snapshot is complete, since the cluster time At.
	Done bool
	At   change.Timestamp
	// Paused says that an operator has paused it.
	Paused bool
	// Read counts the documents read, Estimated the documents at the beginning.
	Read, Estimated uint64
	// Since is when this node began to read, and ReadBefore the documents that had been read by
	// then. They are not stored in checkpoints.
	Since      time.Time
	ReadBefore uint64
}

// Remaining estimates how long the snapshot takes at the pace of the node so far. It is 0 if that
// is unknown.
func (p Progress) Remaining(now time.Time) time.Duration {
	read := p.Read - min(p.Read, p.ReadBefore)
	left := p.Estimated - min(p.Estimated, p.Read)
	if p.Done || p.Since.IsZero() || read == 0 {
		return 0
	}
	return time.Duration(float64(now.Sub(p.Since)) * float64(left) / float64(read))
}

// AppendState appends the state that the progress implies for a subscriber. Its encoding does not
// change between versions.
func (p Progress) AppendState(b []byte) []byte {
	b = fmt.Appendf(b, "%q %d %q %d %t %t %d %d", p.Subscription, p.Filter, p.Reason, p.Partitions, p.Listed, p.Done, p.Read, p.Estimated)
	for _, l := range p.Left {
		b = fmt.Appendf(b, " %q %q %d %x %d %x %t", l.Namespace.DB, l.Namespace.Coll, l.From.Type, l.From.Data, l.Until.Type, l.Until.Data, l.Round)
	}
	if p.Number != 0 {
		b = fmt.Appendf(b, " %d", p.Number)
	}
	for _, ns := range p.Some {
		b = fmt.Appendf(b, " %q.%q", ns.DB, ns.Coll)
	}
	return b
}

// With returns the progress with the remainder of one collection replaced, or removed if done, and
// the number of documents added.
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
