package snapshot

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/mongostream/streamer/change"
)

// In returns the parts of progress that concern some of the partitions.
func In(all []Progress, partitions []change.Partition) (parts []Progress) {
	some := make(map[change.Partition]struct{}, len(partitions))
	for _, p := range partitions {
		some[p] = struct{}{}
	}
	for _, p := range all {
		if len(p.Partitions) == 0 || slices.ContainsFunc(p.Partitions, func(of change.Partition) bool { _, is := some[of]; return is }) {
			parts = append(parts, p)
		}
	}
	return parts
}

// Same reports whether the same remains of two snapshots of a subscription, in whichever
// partitions.
func (p Progress) Same(q Progress) bool {
	return p.Subscription == q.Subscription && p.Filter == q.Filter && p.Done == q.Done && p.Listed == q.Listed && p.Paused == q.Paused &&
		p.Number == q.Number && p.Reason == q.Reason && slices.Equal(p.Some, q.Some) && slices.EqualFunc(p.Left, q.Left, Left.Equal)
}

// Equal reports whether the same remains of a collection.
func (l Left) Equal(m Left) bool {
	return l.Namespace == m.Namespace && l.Round == m.Round && l.From.Equal(m.From) && l.Until.Equal(m.Until)
}

// Moved returns the progress after some of n partitions have advanced: these have the new progress,
// the others the former one. Partitions with the same progress are one part.
func Moved(all, theirs []Progress, partitions []change.Partition, n int) (parts []Progress) {
	moved := make([]bool, n)
	for _, p := range partitions {
		moved[p] = true
	}
	for _, p := range all {
		if !slices.ContainsFunc(theirs, func(q Progress) bool { return q.Subscription == p.Subscription }) {
			parts = append(parts, p)
			continue
		}
		if rest := p.without(moved); len(rest) > 0 {
			parts = append(parts, p.of(rest, n))
		}
	}
	for _, p := range theirs {
		parts = append(parts, p.of(partitions, n))
	}
	return joinSame(parts, n)
}

// of returns the progress in some of n partitions.
func (p Progress) of(partitions []change.Partition, n int) Progress {
	p.Partitions = slices.Sorted(slices.Values(partitions))
	if p.Partitions = slices.Compact(p.Partitions); len(p.Partitions) == n {
		p.Partitions = nil
	}
	return p
}

// without returns the partitions of the progress that have not moved.
func (p Progress) without(moved []bool) (rest []change.Partition) {
	if len(p.Partitions) == 0 {
		for of, has := range moved {
			if !has {
				rest = append(rest, change.Partition(of))
			}
		}
		return rest
	}
	return slices.DeleteFunc(slices.Clone(p.Partitions), func(of change.Partition) bool { return moved[of] })
}

// joinSame joins parts in which the same remains.
func joinSame(parts []Progress, n int) (joined []Progress) {
	for _, p := range parts {
		i := slices.IndexFunc(joined, func(q Progress) bool {
			return p.Same(q) || p.Done && q.Done && p.Subscription == q.Subscription && p.Filter == q.Filter
		})
		if i < 0 {
			joined = append(joined, p)
			continue
		}
		of := &joined[i]
		if p.At.Compare(of.At) > 0 {
			of.At = p.At
		}
		of.Read, of.Estimated = max(of.Read, p.Read), max(of.Estimated, p.Estimated)
		switch {
		case len(of.Partitions) == 0:
		case len(p.Partitions) == 0:
			of.Partitions = nil
		default:
			*of = of.of(slices.Concat(of.Partitions, p.Partitions), n)
		}
	}
	return joined
}

// Together returns the unfinished part of snapshots in all partitions together, one for each
// subscription: if more is unfinished in some, it is unfinished in all. A collection with different
// unfinished parts is read from the earliest place, or from its beginning if that is unknown.
func Together(all []Progress) (together []Progress) {
	for _, p := range all {
		p.Partitions = nil
		i := slices.IndexFunc(together, func(q Progress) bool { return q.Subscription == p.Subscription })
		if i < 0 {
			together = append(together, p)
			continue
		}
		together[i] = together[i].And(p)
	}
	return together
}

// And returns what remains of two snapshots of a subscription together.
func (p Progress) And(q Progress) Progress {
	switch {
	case p.Filter != q.Filter: // documents read for one do not count for the other
		return Progress{Subscription: p.Subscription, Filter: p.Filter, Reason: p.Reason, Number: p.Number}
	case p.Done && q.Done:
		if q.At.Compare(p.At) > 0 {
			p.At = q.At
		}
		return p
	case p.Done:
		return q
	case q.Done || p.Same(q):
		return p
	}
	p.Some = union(p.Some, q.Some)
	p.Paused = p.Paused && q.Paused
	left := p.Left
	p.Left = nil
	if p.Listed = p.Listed && q.Listed; !p.Listed {
		return p // everything
	}
	for _, l := range slices.Concat(left, q.Left) {
		switch i := slices.IndexFunc(p.Left, func(m Left) bool { return m.Namespace == l.Namespace }); {
		case i < 0:
			p.Left = append(p.Left, l)
		case !p.Left[i].Equal(l):
			p.Left[i] = p.Left[i].and(l)
		}
	}
	return p
}

// and returns what remains of a collection where l or m remains: everything from the earlier place
// if it is known which that is, else all of it.
func (l Left) and(m Left) Left {
	both := Left{Namespace: l.Namespace}
	areRounds := l.Round || m.Round
	haveEnds := !l.Until.IsZero() || !m.Until.IsZero()
	if areRounds || haveEnds {
		return both
	}
	switch order, known := ordered(l.From, m.From); {
	case known && order <= 0:
		both.From = l.From
	case known:
		both.From = m.From
	}
	return both
}

// ordered compares two values of _id as the index on it does. It is known only for values whose
// order no collation changes: ObjectIds, and whole numbers.
func ordered(a, b change.Value) (order int, known bool) {
	if a.Type == change.TypeObjectID && b.Type == change.TypeObjectID {
		return bytes.Compare(a.Data, b.Data), true
	}
	m, whole := a.Int64()
	n, both := b.Int64()
	return cmp.Compare(m, n), whole && both
}

// union returns the collections of both; none are all.
func union(some, more []change.Namespace) []change.Namespace {
	if len(some) == 0 || len(more) == 0 {
		return nil
	}
	some = slices.Concat(some, more)
	slices.SortFunc(some, func(a, b change.Namespace) int { return cmp.Or(cmp.Compare(a.DB, b.DB), cmp.Compare(a.Coll, b.Coll)) })
	return slices.Compact(some)
}

// Joined returns the progress of a snapshot when partitions join it that have had nothing of it:
// the present collection continues to its end and then from its beginning to its present place, and
// collections that have been read come again. collections are those of the snapshot; if there are
// none, they must be listed again.
func (p Progress) Joined(collections []change.Namespace) Progress {
	if p.Done || !p.Listed {
		return p
	}
	p.Left = slices.Clone(p.Left)
	for i, l := range p.Left {
		p.Left[i] = Left{Namespace: l.Namespace, From: l.From, Until: l.From}
	}
	for _, ns := range collections {
		if !slices.ContainsFunc(p.Left, func(l Left) bool { return l.Namespace == ns }) {
			p.Left = append(p.Left, Left{Namespace: ns})
		}
	}
	p.Listed = len(collections) > 0 || p.Read == 0
	return p
}
