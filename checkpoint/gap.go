package checkpoint

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/mongostream/streamer/change"
)

// MaxGaps is how many entries the gap log keeps; the oldest make room.
const MaxGaps = 1000

// poison is the reason that package gap gives for an event that is too large to be delivered.
const poison = "poison"

// A Gap is an entry of the gap log: a stretch of the log that a partition could not read.
type Gap struct {
	Partition change.Partition
	// Of is of how many partitions it was one, before these were counted anew; 0 is as many as there are.
	Of int
	// From and To bound what was lost: what stands behind From and before To. Reading went on at To.
	From, To change.Position
	// Reason is why, as package gap names it.
	Reason string
	// Namespaces are those that were watched; empty means everything.
	Namespaces []string
	// Fingerprint names what the stream was opened with.
	Fingerprint string
	// Epoch is the term that found the gap.
	Epoch change.Epoch
	// Found is when, By by which node.
	Found time.Time
	By    string
	// Rescan tells how far the documents of each collection have been read again, by namespace.
	Rescan map[string]RescanState
}

// A RescanState is how far the rescan of one collection has come.
type RescanState struct {
	// After is the last _id read, as a BSON document {_id: …}; nil before the first page.
	After []byte
	Done  bool
}

// ID names the entry: by its partition and where it begins, or by the place alone for a poison event, which every partition meets.
// It contains a hash of the token and may be shown.
func (g Gap) ID() string {
	from := trimmed(g.From)
	who := fmt.Sprintf("%05d", g.Partition)
	if g.Reason == poison {
		who = poison
	}
	hash := from.Hash()
	return fmt.Sprintf("%s-%d.%d-%x", who, from.Time.T, from.Time.I, hash[:8])
}

// Trimmed returns the gap as stores keep it, with its positions as a mark's.
func (g Gap) Trimmed() Gap {
	g.From, g.To = trimmed(g.From), trimmed(g.To)
	return g
}

// Again returns the entry after the same gap was added again: what was found first stays, its end and its namespaces grow, and the
// state of each collection's rescan is that of the later one, where it has one.
func (g Gap) Again(later Gap) Gap {
	g.To = change.Later(g.To, later.To)
	if g.Of != later.Of {
		g.Of, g.Rescan = later.Of, nil // other documents
	}
	if len(later.Rescan) > 0 {
		g.Rescan = maps.Clone(g.Rescan)
		if g.Rescan == nil {
			g.Rescan = make(map[string]RescanState)
		}
		maps.Copy(g.Rescan, later.Rescan)
	}
	if len(g.Namespaces) == 0 || len(later.Namespaces) == 0 {
		g.Namespaces = nil
	} else if !slices.Equal(g.Namespaces, later.Namespaces) {
		g.Namespaces = slices.Concat(g.Namespaces, later.Namespaces)
		slices.Sort(g.Namespaces)
		g.Namespaces = slices.Compact(g.Namespaces)
	}
	return g
}

// Clone returns a gap that aliases nothing.
func (g Gap) Clone() Gap {
	g.From, g.To = g.From.Clone(), g.To.Clone()
	g.Namespaces = slices.Clone(g.Namespaces)
	g.Rescan = maps.Clone(g.Rescan)
	for namespace, state := range g.Rescan {
		state.After = slices.Clone(state.After)
		g.Rescan[namespace] = state
	}
	return g
}

// SortGaps puts gaps into the order in which they were found.
func SortGaps(gaps []Gap) {
	slices.SortFunc(gaps, func(a, b Gap) int { return cmp.Or(a.Found.Compare(b.Found), cmp.Compare(a.ID(), b.ID())) })
}

// A GapKeeper keeps the gap log.
type GapKeeper interface {
	// AddGap adds an entry, durably when it returns nil. Adding one again, by its ID, keeps what was found first, extends To, and
	// replaces the state of the collections' rescans that it has. It is not fenced: to tell a loss twice harms nobody. Where there
	// are more than MaxGaps, the oldest are dropped.
	AddGap(ctx context.Context, g Gap) error
	// Gaps returns the entries in the order in which they were found. With an error that says which cannot be read, it returns the
	// others.
	Gaps(ctx context.Context) ([]Gap, error)
}
