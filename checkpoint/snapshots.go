package checkpoint

import (
	"errors"
	"fmt"
	"maps"
	"slices"

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

// trimmedSnapshots returns a copy of at most maxSnapshots bytes. If necessary, it restarts snapshots in progress and then removes complete
// ones, which are taken again on request.
func trimmedSnapshots(all []snapshot.Progress, partitions int) ([]snapshot.Progress, error) {
	if len(all) == 0 {
		return nil, nil
	}
	all = cloneSnapshots(all)
	total := 0
	for _, p := range all {
		for _, of := range p.Partitions {
			if int(of) >= partitions {
				return nil, fmt.Errorf("the snapshot of subscription %q is of partition %d of %d", p.Subscription, of, partitions)
			}
		}
		total += storedSize(p)
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

// partialSnapshots returns the progress of snapshots after a save of some partitions: in these it is that of the save, in the others what is left
// remains, by whole collections where both have something left.
func partialSnapshots(stored []snapshot.Progress, c Checkpoint) []snapshot.Progress {
	all := cloneSnapshots(stored)
	for _, mine := range c.Snapshots {
		i := slices.IndexFunc(all, func(p snapshot.Progress) bool { return p.Subscription == mine.Subscription })
		if i < 0 { // what every subscription begins with is left in all partitions; of losses the others are told themselves
			i, all = len(all), append(all, snapshot.Progress{
				Subscription: mine.Subscription, Filter: mine.Filter, Reason: mine.Reason, Done: mine.Reason != snapshot.Start,
			})
		}
		all[i] = partialProgress(all[i], mine, c)
	}
	if kept, err := trimmedSnapshots(all, c.Partitions); err == nil {
		return kept
	}
	return c.Snapshots // too many of subscriptions that are not there any more
}

// partialProgress returns the progress of a snapshot after a save of some partitions with their own.
func partialProgress(stored, mine snapshot.Progress, c Checkpoint) snapshot.Progress {
	var left []change.Partition // in others
	for p := range change.Partition(c.Partitions) {
		_, its := c.Positions[p]
		if !its && !stored.Done && (len(stored.Partitions) == 0 || slices.Contains(stored.Partitions, p)) {
			left = append(left, p)
		}
	}
	merged := mine
	if merged.Partitions = nil; len(left) > 0 {
		merged = snapshot.Progress{Subscription: mine.Subscription, Filter: mine.Filter, Reason: stored.Reason, Paused: stored.Paused}
		if stored.Listed && stored.Filter == mine.Filter && (mine.Listed || mine.Done) {
			merged.Listed = true
			for _, l := range slices.Concat(stored.Left, mine.Left) {
				whole := snapshot.Left{Namespace: l.Namespace}
				if !slices.ContainsFunc(merged.Left, func(other snapshot.Left) bool { return sameLeft(other, whole) }) {
					merged.Left = append(merged.Left, whole)
				}
			}
		}
	}
	if !mine.Done {
		left = slices.AppendSeq(left, maps.Keys(c.Positions))
		slices.Sort(left)
	}
	if len(left) < c.Partitions {
		merged.Partitions = left
	}
	return merged
}

// storedSize returns an upper bound of the stored size of a progress.
func storedSize(p snapshot.Progress) int {
	n := 80 + escaped(p.Subscription) + escaped(string(p.Reason)) + 6*len(p.Partitions)
	if p.Listed || p.Done || p.Read > 0 || p.Estimated > 0 || !p.At.IsZero() {
		n += 192
	}
	for _, ns := range p.Some {
		n += 32 + escaped(ns.DB) + escaped(ns.Coll)
	}
	for _, l := range p.Left {
		n += 160 + escaped(l.Namespace.DB) + escaped(l.Namespace.Coll) + (len(l.From.Data)+len(l.Until.Data))*4/3
	}
	return n
}

// escaped returns an upper bound of the JSON size of a string.
func escaped(s string) (n int) {
	for _, b := range []byte(s) {
		if b < ' ' || b > '~' || b == '"' || b == '\\' || b == '<' || b == '>' || b == '&' {
			n += 5
		}
		n++
	}
	return n
}

func sameProgress(p, q snapshot.Progress) bool {
	return p.Subscription == q.Subscription && p.Filter == q.Filter && p.Reason == q.Reason && p.Number == q.Number && p.Listed == q.Listed && p.Done == q.Done && p.At == q.At && p.Paused == q.Paused &&
		p.Read == q.Read && p.Estimated == q.Estimated && slices.Equal(p.Partitions, q.Partitions) && slices.Equal(p.Some, q.Some) && slices.EqualFunc(p.Left, q.Left, sameLeft)
}

func sameLeft(l, m snapshot.Left) bool {
	return l.Namespace == m.Namespace && l.Round == m.Round && l.From.Equal(m.From) && l.Until.Equal(m.Until)
}
