package change

import (
	"cmp"
	"context"
	"errors"
	"fmt"
)

// An Epoch numbers the owners of a partition: the highest one owns it, and stores reject writes
// with a lower one. Incarnation counts restores of the store, and an operator raises it; Revision
// orders the claims within an incarnation.
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

// ErrTermLost is the cause of a term's context when the node has lost the partition.
var ErrTermLost = errors.New("term lost")

// A Term is one node's ownership of one partition.
type Term struct {
	Partition Partition
	Epoch     Epoch
	// Context ends with the term; its cause is ErrTermLost or that of a planned stop.
	Context context.Context //nolint:containedctx // a term is its context: ownership ends when it does
	// Trusted reports whether the ownership is still reliable, by a clock that includes suspension:
	// it detects the end of a term after a process was suspended, before the context ends. nil
	// means as long as the context.
	Trusted func() bool
}

// Err returns why the term has ended, nil if it has not. Check it before anything leaves the node
// under the term.
func (t Term) Err() error {
	if t.Context.Err() != nil {
		return context.Cause(t.Context)
	}
	if t.Trusted != nil && !t.Trusted() {
		return ErrTermLost
	}
	return nil
}
