package checkpoint

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/fault"
)

// MaxGaps bounds the gap log; the oldest entries are removed.
const MaxGaps = 1000

// A Gap is an entry of the gap log: a stretch of the oplog that could not be read.
type Gap struct {
	// From and To bound the loss: after From, up to and including To. Reading continued after To.
	From, To change.Position
	// Reason is a reason of package gap.
	Reason string
	// Namespaces are the affected namespaces; empty means all watched ones.
	Namespaces []string
	// Fingerprint identifies the stream's pipeline.
	Fingerprint string
	// Found is when the gap was detected, By by which node.
	Found time.Time
	By    string
}

// ID identifies the gap by its start and reason, so that nodes that find the same gap add one
// entry. It contains a hash of the token and is not secret.
func (g Gap) ID() string {
	from := g.Trimmed().From
	hash := from.Hash()
	return fmt.Sprintf("%d.%d-%s-%x", from.Time.T, from.Time.I, g.Reason, hash[:8])
}

// Trimmed returns the stored form of the gap.
func (g Gap) Trimmed() Gap {
	budget := maxTokens
	g.From, g.To = trimmed(g.From, &budget), trimmed(g.To, &budget)
	g.Namespaces = slices.Clone(g.Namespaces)
	g.Found = g.Found.Round(0).UTC()
	return g
}

// Again returns the entry after the gap was added again: it keeps the first discovery and extends
// the end and the namespaces.
func (g Gap) Again(later Gap) Gap {
	g.To = change.Later(g.To, later.To)
	if len(g.Namespaces) == 0 || len(later.Namespaces) == 0 {
		g.Namespaces = nil
	} else if !slices.Equal(g.Namespaces, later.Namespaces) {
		g.Namespaces = slices.Concat(g.Namespaces, later.Namespaces)
		slices.Sort(g.Namespaces)
		g.Namespaces = slices.Compact(g.Namespaces)
	}
	return g
}

// Over returns the gap to store in place of a decoded entry with the same ID; keep says that the
// entry stays unchanged.
func (g Gap) Over(known Gap, unread error) (next Gap, keep bool) {
	switch {
	case unread == nil:
		return known.Again(g), false
	case fault.Of(unread) == fault.CheckpointNewer:
		return g, true
	}
	return g, false
}

// joined returns one gap in place of two: it contains both, and the span between them.
func (g Gap) joined(later Gap) Gap {
	if g.From.After(later.From) {
		g.From = later.From
	}
	if g = g.Again(later); len(g.Namespaces) > maxJoined {
		g.Namespaces = nil // all
	}
	return g
}

// maxJoined bounds the namespaces of gaps that were joined.
const maxJoined = 100

// SortGaps sorts gaps by the time they were found.
func SortGaps(gaps []Gap) {
	slices.SortFunc(gaps, func(a, b Gap) int { return cmp.Or(a.Found.Compare(b.Found), cmp.Compare(a.ID(), b.ID())) })
}

// A GapKeeper stores the gap log.
type GapKeeper interface {
	// AddGap adds an entry durably. Adding a gap again, by its ID, keeps the first discovery and
	// extends To. A corrupt entry is replaced; an entry of a newer version reports the same loss
	// and stays unchanged. It is not fenced, because reporting a loss twice is harmless. Beyond
	// MaxGaps the oldest entries are removed.
	AddGap(ctx context.Context, g Gap) error
	// Gaps returns the entries in the order in which they were found. If some cannot be read, it
	// returns the others and an error.
	Gaps(ctx context.Context) ([]Gap, error)
}
