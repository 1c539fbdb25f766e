package oplog

import (
	"slices"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/gap"
)

// A Loss is an entry among the events: a bounded stretch of the log of which a subscriber may have missed something.
type Loss struct {
	// From and To bound the stretch: what comes after From and not after To. Reading goes on after To. They are equal where the loss has no
	// length and comes right before the next event.
	From, To change.Position
	Reason   gap.Reason
	// Namespaces are those concerned; empty means everything that is watched.
	Namespaces []string
	// Found is when the loss was found.
	Found time.Time
}

// after returns the loss as whoever has read up to the position meets it, nil if it is not concerned.
func (l *Loss) after(p change.Position) *Loss {
	switch {
	case l.From.Compare(l.To) == 0: // of no length: the caller knows by the event that follows
		return l
	case !l.To.After(p):
		return nil
	case p.After(l.From):
		clipped := *l
		clipped.From = p
		return &clipped
	}
	return l
}

// renamedOnto returns the loss of a watched collection in whose place a rename puts another one, nil for any other event: its documents have
// changed without a change of their own. No namespaces mean that everything is watched.
func renamedOnto(e *change.Event, at change.Position, watched []string) *Loss {
	if e.Op() != change.OpRename || len(e.ToDB()) == 0 {
		return nil
	}
	to := change.Namespace{DB: string(e.ToDB()), Coll: string(e.ToColl())}
	if len(watched) > 0 && !slices.Contains(watched, to.String()) && !slices.Contains(watched, to.DB+".*") {
		return nil
	}
	return &Loss{From: at, To: at, Reason: gap.Renamed, Namespaces: []string{to.String()}, Found: time.Now()}
}
