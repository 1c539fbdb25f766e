package checkpoint

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/mongostream/streamer/change"
)

// MaxGaps is how many entries the gap log keeps; the oldest make room.
const MaxGaps = 1000

// A Gap is an entry of the gap log: a stretch of the oplog that could not be read.
type Gap struct {
	// From and To bound what was lost: what comes after From and not after To. Reading went on after To.
	From, To change.Position
	// Reason is why, as package gap names it.
	Reason string
	// Namespaces are those concerned; empty means everything that is watched.
	Namespaces []string
	// Fingerprint names what the stream was opened with.
	Fingerprint string
	// Found is when, By by which node.
	Found time.Time
	By    string
}

// ID names the entry by where it begins and why: nodes that find the same gap add one entry. It contains a hash of the token and may be shown.
func (g Gap) ID() string {
	from := g.Trimmed().From
	hash := from.Hash()
	return fmt.Sprintf("%d.%d-%s-%x", from.Time.T, from.Time.I, g.Reason, hash[:8])
}

// Trimmed returns the gap as stores keep it, with its positions as a checkpoint's.
func (g Gap) Trimmed() Gap {
	budget := maxTokens
	g.From, g.To = trimmed(g.From, &budget), trimmed(g.To, &budget)
	g.Namespaces = slices.Clone(g.Namespaces)
	g.Found = g.Found.Round(0).UTC()
	return g
}

// Again returns the entry after the same gap was added again: what was found first stays, its end and its namespaces grow.
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

// SortGaps puts gaps into the order in which they were found.
func SortGaps(gaps []Gap) {
	slices.SortFunc(gaps, func(a, b Gap) int { return cmp.Or(a.Found.Compare(b.Found), cmp.Compare(a.ID(), b.ID())) })
}

// A GapKeeper keeps the gap log.
type GapKeeper interface {
	// AddGap adds an entry, durably when it returns nil. Adding one again, by its ID, keeps what was found first and extends To. It is not
	// fenced: to tell a loss twice harms nobody. Where there are more than MaxGaps, the oldest are dropped.
	AddGap(ctx context.Context, g Gap) error
	// Gaps returns the entries in the order in which they were found. With an error that says which cannot be read, it returns the
	// others.
	Gaps(ctx context.Context) ([]Gap, error)
}
