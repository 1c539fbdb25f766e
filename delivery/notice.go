package delivery

import "time"

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
