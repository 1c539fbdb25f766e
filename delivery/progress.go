package delivery

import (
	"fmt"
	"maps"
	"slices"

	"github.com/zeebo/xxh3"

	"github.com/mongostream/streamer/match"
	"github.com/mongostream/streamer/snapshot"
)

// Stamp distinguishes states of snapshots; 0 if there is none. A subscriber that keeps the stamp
// with its position can prove which documents it has had, because documents that were read together
// share a position.
func Stamp(all []snapshot.Progress) (stamp uint32) {
	for _, p := range all {
		stamp += stampOf(p)
	}
	return stamp
}

func stampOf(p snapshot.Progress) uint32 { return uint32(xxh3.Hash(p.AppendState(nil))) }

// ParseProgress reads what Batch.Progress has returned.
func ParseProgress(text string) ([]snapshot.Progress, error) { return snapshot.ParseText(text) }

// FilterHash distinguishes filters of subscriptions with the same ID.
func FilterHash(p *match.Program) uint64 {
	f := p.Filter()
	return xxh3.HashString(fmt.Sprintf("%q %q %q", f.DB, f.Coll, f.Source))
}

// replaced returns the progress of all snapshots with that of one replaced, or removed if nil.
func replaced(all []snapshot.Progress, id string, p *snapshot.Progress) []snapshot.Progress {
	all = slices.DeleteFunc(slices.Clone(all), func(p snapshot.Progress) bool { return p.Subscription == id })
	if p != nil {
		all = append(all, *p)
	}
	return all
}

// replacedAll returns the progress of all snapshots with that of some replaced.
func replacedAll(all []snapshot.Progress, some map[string]snapshot.Progress) []snapshot.Progress {
	next := make([]snapshot.Progress, 0, len(all)+len(some))
	for _, p := range all {
		if _, is := some[p.Subscription]; !is {
			next = append(next, p)
		}
	}
	return slices.AppendSeq(next, maps.Values(some))
}

// Unread returns the unfinished snapshots.
func Unread(all []snapshot.Progress) []snapshot.Progress {
	return slices.DeleteFunc(slices.Clone(all), func(p snapshot.Progress) bool { return p.Done || p.Listed && len(p.Left) == 0 })
}
