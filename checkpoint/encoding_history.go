package checkpoint

import (
	"cmp"
	"slices"
)

// A History is the entries of the history of one checkpoint, as they are read.
type History []entry

type entry struct {
	checkpoint Checkpoint
	trail      Trail
}

// Add adds an entry.
func (h *History) Add(c Checkpoint, t Trail) { *h = append(*h, entry{c, t}) }

// Last returns the newest entry, with the trail that a checkpoint in its place has; ok is false if
// there is none.
func (h *History) Last() (c Checkpoint, t Trail, ok bool) {
	if len(h.Newest()) == 0 {
		return c, t, false
	}
	return (*h)[0].checkpoint, (*h)[0].trail, true
}

// Newest returns the entries, the newest first. Those of a shared checkpoint are numbered from 1
// again after a repartition, which raises the incarnation, and if it is lost: then at least those
// from before a later rewind, which raises the generation, are not taken for the newest.
func (h *History) Newest() []Checkpoint {
	slices.SortFunc(*h, func(a, b entry) int {
		return cmp.Or(
			cmp.Compare(b.checkpoint.Epoch.Incarnation, a.checkpoint.Epoch.Incarnation),
			cmp.Compare(b.checkpoint.Generation, a.checkpoint.Generation),
			cmp.Compare(b.trail.Entries, a.trail.Entries),
		)
	})
	all := make([]Checkpoint, len(*h))
	for i, e := range *h {
		all[i] = e.checkpoint
	}
	return all
}
