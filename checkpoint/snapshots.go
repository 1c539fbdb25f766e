package checkpoint

import (
	"errors"
	"fmt"
	"slices"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/snapshot"
)

// cloneSnapshots returns a copy that aliases nothing.
func cloneSnapshots(all []snapshot.Progress) []snapshot.Progress {
	all = slices.Clone(all)
	for i, p := range all {
		all[i].Partitions, all[i].Left = slices.Clone(p.Partitions), slices.Clone(p.Left)
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
			all[i] = snapshot.Progress{Subscription: p.Subscription, Filter: p.Filter, Reason: p.Reason}
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

// storedSize returns an upper bound of the stored size of a progress.
func storedSize(p snapshot.Progress) int {
	n := 64 + escaped(p.Subscription) + escaped(string(p.Reason)) + 6*len(p.Partitions)
	if p.Listed || p.Done || p.Read > 0 || p.Estimated > 0 {
		n += 128
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
	return p.Subscription == q.Subscription && p.Filter == q.Filter && p.Reason == q.Reason && p.Listed == q.Listed && p.Done == q.Done &&
		p.Read == q.Read && p.Estimated == q.Estimated && slices.Equal(p.Partitions, q.Partitions) && slices.EqualFunc(p.Left, q.Left, sameLeft)
}

func sameLeft(l, m snapshot.Left) bool {
	return l.Namespace == m.Namespace && l.Round == m.Round && sameValue(l.From, m.From) && sameValue(l.Until, m.Until)
}

func sameValue(v, w change.Value) bool { return v.Type == w.Type && slices.Equal(v.Data, w.Data) }
