package delivery

import (
	"slices"
	"time"

	"github.com/mongostream/streamer/change"
)

// A Kind says what a notice is about.
type Kind string

// The kinds of notice that stand in a lane.
const (
	// Resync: changes between the batch's From and To may have been missed. Read the documents of the namespaces again.
	Resync Kind = "resync"
	// Rewound: an operator has moved the partition back to the batch's To; what follows has been delivered before.
	Rewound Kind = "rewound"
)

// A Notice is an entry of a lane that is no change: it has its place among the events, is acknowledged like them, and comes again
// after a crash until it is.
type Notice struct {
	Kind   Kind
	Reason string // as package gap names it
	// Namespaces are those that are concerned; empty means everything that is watched.
	Namespaces []string
	// Found is when the loss was found.
	Found time.Time
	// Advice says what to do.
	Advice string
}

// HistoryLost tells that the log no longer holds a stretch. No namespaces mean everything that is watched.
func HistoryLost(namespaces []string) *Notice {
	return &Notice{
		Kind: Resync, Reason: "history_lost", Namespaces: namespaces, Found: time.Now(),
		Advice: "Changes in the stretch may have been missed: read the documents of the namespaces again.",
	}
}

// Poison tells that MongoDB could not deliver one change.
func Poison(namespaces []string) *Notice {
	return &Notice{
		Kind: Resync, Reason: "poison", Namespaces: namespaces, Found: time.Now(),
		Advice: "One change was too large for MongoDB to deliver, and what followed it in its transaction is left out too: read the large documents of the namespaces again.",
	}
}

// Renamed tells that a rename has put another collection in the place of a watched one, whose documents have changed without a change of
// their own; it is nil for any other event. No namespaces mean that everything is watched. The notice stands right before the event, and
// has no length of its own for who gets that too.
func Renamed(e *change.Event, watched []string) *Notice {
	if e.Op() != change.OpRename || len(e.ToDB()) == 0 {
		return nil
	}
	to := change.Namespace{DB: string(e.ToDB()), Coll: string(e.ToColl())}
	if len(watched) > 0 && !slices.Contains(watched, to.String()) && !slices.Contains(watched, to.DB+".*") {
		return nil
	}
	return &Notice{
		Kind: Resync, Reason: "renamed", Namespaces: []string{to.String()}, Found: time.Now(),
		Advice: "Another collection has been renamed to this name: read its documents again.",
	}
}

// RewoundByOperator tells that an operator has moved a partition back.
func RewoundByOperator(namespaces []string) *Notice {
	return &Notice{
		Kind: Rewound, Reason: "operator", Namespaces: namespaces, Found: time.Now(),
		Advice: "An operator has moved the partition in the log: what follows may have been delivered before.",
	}
}
