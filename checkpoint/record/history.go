package record

import (
	"cmp"
	"slices"

	"github.com/mongostream/streamer/checkpoint"
)

// A History is the entries of one partition's history, as they are read.
type History []entry

type entry struct {
	mark  checkpoint.Mark
	trail checkpoint.Trail
}

// Add adds an entry.
func (h *History) Add(m checkpoint.Mark, t checkpoint.Trail) { *h = append(*h, entry{m, t}) }

// Newest returns the entries, the newest first. Their count begins again where partitions are counted anew, which raises the incarnation.
func (h *History) Newest() []checkpoint.Mark {
	slices.SortFunc(*h, func(a, b entry) int {
		return cmp.Or(cmp.Compare(b.mark.Epoch.Incarnation, a.mark.Epoch.Incarnation), cmp.Compare(b.trail.Entries, a.trail.Entries))
	})
	marks := make([]checkpoint.Mark, len(*h))
	for i, e := range *h {
		marks[i] = e.mark
	}
	return marks
}
