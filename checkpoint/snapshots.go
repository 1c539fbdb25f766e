package checkpoint

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/snapshot"
)

// cloneSnapshots returns a copy that aliases nothing.
func cloneSnapshots(all []snapshot.Progress) []snapshot.Progress {
	all = slices.Clone(all)
	for i, p := range all {
		all[i].Partitions, all[i].Left, all[i].Some = slices.Clone(p.Partitions), slices.Clone(p.Left), slices.Clone(p.Some)
		for j, l := range all[i].Left {
			all[i].Left[j].From.Data, all[i].Left[j].Until.Data = slices.Clone(l.From.Data), slices.Clone(l.Until.Data)
		}
	}
	return all
}

// trimmedSnapshots returns a copy of at most maxSnapshots bytes. If necessary, it restarts
// snapshots in progress and then removes complete ones, which are taken again on request.
func trimmedSnapshots(all []snapshot.Progress, partitions int) ([]snapshot.Progress, error) {
	if len(all) == 0 {
		return nil, nil
	}
	all = cloneSnapshots(all)
	total := 0
	for i, p := range all {
		p.Subscription = snapshot.Key(p.Subscription)
		all[i].Subscription = p.Subscription
		for _, of := range p.Partitions {
			if int(of) >= partitions {
				return nil, fmt.Errorf("the snapshot of subscription %q is of partition %d of %d", p.Subscription, of, partitions)
			}
		}
		total += storedSize(p)
	}
	if total > maxSnapshots { // the parts of a subscription in one
		all = snapshot.Together(all)
		total = 0
		for _, p := range all {
			total += storedSize(p)
		}
	}
	for i, p := range all {
		if total > maxSnapshots && !p.Done {
			all[i] = snapshot.Progress{Subscription: p.Subscription, Filter: p.Filter, Reason: p.Reason, Number: p.Number}
			total -= storedSize(p) - storedSize(all[i])
		}
	}
	all = slices.DeleteFunc(all, func(p snapshot.Progress) bool {
		drop := total > maxSnapshots && p.Done
		if drop {
			total -= storedSize(p)
		}
		return drop
	})
	if total > maxSnapshots {
		return nil, errors.New("too many snapshots are in progress")
	}
	return all, nil
}

// SnapshotsFit returns an error that wraps ErrUnsavable if a checkpoint cannot hold an unstarted
// snapshot of each of the subscriptions.
func SnapshotsFit(ids []string) error {
	total := 0
	for _, id := range ids {
		total += storedSize(snapshot.Progress{Subscription: snapshot.Key(id), Reason: snapshot.Operator})
	}
	if total > maxSnapshots {
		return fmt.Errorf("%w: what is left of snapshots of %d subscriptions takes %d bytes in it, at most %d are kept", ErrUnsavable, len(ids), total, maxSnapshots)
	}
	return nil
}

// withOwed returns the progress of snapshots that is stored, with the snapshots that have begun at
// an earlier position since: a session knows those of its checkpoint, so that one with another
// number is new. It is owed from its beginning in the partitions of the save, even if it is
// complete, because its documents are older than the stored position, where the subscriber may come
// back.
func withOwed(stored []snapshot.Progress, c Checkpoint) []snapshot.Progress {
	saved := slices.Collect(maps.Keys(c.Positions))
	if !c.Position.IsZero() {
		saved = saved[:0]
		for p := range change.Partition(c.Partitions) {
			saved = append(saved, p)
		}
	}
	all := cloneSnapshots(stored)
	for _, mine := range c.Snapshots {
		its := slices.DeleteFunc(snapshot.In(all, saved), func(p snapshot.Progress) bool { return p.Subscription != mine.Subscription })
		if slices.ContainsFunc(its, func(p snapshot.Progress) bool { return p.Number == mine.Number }) {
			continue
		}
		next := owed(mine, mine.Some)
		if its = snapshot.Together(its); len(its) > 0 && !its[0].Done {
			some := slices.Concat(its[0].Some, mine.Some)
			if len(its[0].Some) == 0 || len(mine.Some) == 0 {
				some = nil
			}
			next = owed(mine, some)
		}
		all = snapshot.Moved(all, []snapshot.Progress{next}, saved, c.Partitions)
	}
	return fitting(all, c)
}

// fitting returns progress that fits into a checkpoint: if it is too large, it drops the progress
// of removed subscriptions.
func fitting(all []snapshot.Progress, c Checkpoint) []snapshot.Progress {
	if kept, err := trimmedSnapshots(all, c.Partitions); err == nil {
		return kept
	}
	return slices.DeleteFunc(all, func(p snapshot.Progress) bool {
		return !slices.ContainsFunc(c.Snapshots, func(mine snapshot.Progress) bool { return mine.Subscription == p.Subscription })
	})
}

// owed returns the beginning of a snapshot, of some collections or, if there are none, of all.
func owed(p snapshot.Progress, some []change.Namespace) snapshot.Progress {
	begun := snapshot.Progress{Subscription: p.Subscription, Filter: p.Filter, Reason: p.Reason, Number: p.Number, Paused: p.Paused && !p.Done}
	for _, ns := range some {
		if !slices.Contains(begun.Some, ns) {
			begun.Listed = true
			begun.Some = append(begun.Some, ns)
			begun.Left = append(begun.Left, snapshot.Left{Namespace: ns})
		}
	}
	return begun
}

// partialSnapshots returns the progress of snapshots after a save of some partitions: in these it
// is that of the save, in the others it stays.
func partialSnapshots(stored []snapshot.Progress, c Checkpoint) []snapshot.Progress {
	saved := slices.Collect(maps.Keys(c.Positions))
	for _, mine := range c.Snapshots {
		known := slices.ContainsFunc(stored, func(p snapshot.Progress) bool { return p.Subscription == mine.Subscription })
		if !known && mine.Reason == snapshot.Start { // the initial snapshot of every subscription is pending in the others; they get losses themselves
			stored = append(slices.Clip(stored), snapshot.Progress{Subscription: mine.Subscription, Filter: mine.Filter, Reason: mine.Reason})
		}
	}
	return fitting(snapshot.Moved(cloneSnapshots(stored), cloneSnapshots(c.Snapshots), saved, c.Partitions), c)
}

// storedSize returns an upper bound of the stored size of a progress.
func storedSize(p snapshot.Progress) int { return sizeOf(p, escaped) }

// sizeOf returns the size of a snapshot's progress in a checkpoint; a function returns the size of
// its texts.
func sizeOf(p snapshot.Progress, text func(string) int) int {
	n := 80 + text(p.Subscription) + text(string(p.Reason)) + 6*len(p.Partitions)
	counts := p.Read > 0 || p.Estimated > 0
	hasBegun := p.Listed || p.Done || !p.At.IsZero()
	if hasBegun || counts {
		n += 192
	}
	for _, ns := range p.Some {
		n += 32 + text(ns.DB) + text(ns.Coll)
	}
	for _, l := range p.Left {
		n += 160 + text(l.Namespace.DB) + text(l.Namespace.Coll) + (len(l.From.Data)+len(l.Until.Data))*4/3
	}
	return n
}

// escaped returns an upper bound of the JSON size of a string.
func escaped(s string) (n int) {
	for _, b := range []byte(s) {
		isPrinted := ' ' <= b && b <= '~'
		if !isPrinted || strings.IndexByte(`"\<>&`, b) >= 0 {
			n += 5
		}
		n++
	}
	return n
}

func sameProgress(p, q snapshot.Progress) bool {
	return p.Same(q) && p.At == q.At && p.Read == q.Read && p.Estimated == q.Estimated && slices.Equal(p.Partitions, q.Partitions)
}
