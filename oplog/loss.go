package oplog

import (
	"slices"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/gap"
)

// A Loss is an entry of the log: a bounded span in which subscribers may have missed changes.
type Loss struct {
	// From and To bound the stretch: after From, up to and including To. Reading continues after
	// To. They are equal for a loss without length right before the next event.
	From, To change.Position
	Reason   gap.Reason
	// Namespaces are the affected namespaces; empty means all watched ones.
	Namespaces []string
	// Found is when the loss was detected.
	Found time.Time
	// Tail says that the tail found it, so that it is everybody's. Otherwise it is a loss of those
	// alone who read at an earlier place.
	Tail bool
	// Unanswered says that the retained log may still have the stretch, but did not answer.
	Unanswered bool
}

// isGone reports whether the loss is of a stretch that MongoDB no longer gives to anybody, so that
// the tail may have read it before. A change that it could not deliver, it did not deliver to the
// tail either.
func (l *Loss) isGone() bool { return l != nil && l.To.After(l.From) && l.Reason != gap.Poison }

// after returns the part of the loss after the position, nil if there is none.
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

// renamedOnto returns the loss of a watched collection that a rename replaces, nil for any other
// event: its documents change without change events. Empty watched means that everything is
// watched.
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
