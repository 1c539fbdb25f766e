package change

import (
	"cmp"
	"context"
	"errors"
	"fmt"
)

// An Epoch numbers the owners of a partition: whoever holds the higher one owns it, and a store refuses writes that carry
// a lower one. Incarnation counts the lives of the store itself (raised by an operator after a restore from a backup),
// Revision orders the claims within it.
type Epoch struct {
	Incarnation uint64
	Revision    uint64
}

// Compare orders epochs.
func (e Epoch) Compare(f Epoch) int {
	return cmp.Or(cmp.Compare(e.Incarnation, f.Incarnation), cmp.Compare(e.Revision, f.Revision))
}

// String formats the epoch as incarnation.revision.
func (e Epoch) String() string { return fmt.Sprintf("%d.%d", e.Incarnation, e.Revision) }

// ErrTermLost is the cause with which a term's context ends when the partition is no longer this node's.
var ErrTermLost = errors.New("term lost")

// A Term is one node's ownership of one partition.
type Term struct {
	Partition Partition
	Epoch     Epoch
	// Context ends with the term; its cause says why (ErrTermLost, or the cause of a planned stop).
	Context context.Context //nolint:containedctx // a term is its context: ownership ends when it does
	// Trusted reports whether the ownership can still be relied on, by a clock that counts suspension: a process that stood still
	// learns it here before its context has had time to end. Nil means for as long as the context.
	Trusted func() bool
}

// Err returns why the term is over, nil while it is not. Ask before anything leaves the node under the term.
func (t Term) Err() error {
	if t.Context.Err() != nil {
		return context.Cause(t.Context)
	}
	if t.Trusted != nil && !t.Trusted() {
		return ErrTermLost
	}
	return nil
}
