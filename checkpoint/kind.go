package checkpoint

import (
	"context"
	"errors"
	"slices"

	"github.com/mongostream/streamer/fault"
)

// A Kind says whose failure an error of a store is. Only the store's own failures count for its
// breaker, for the health of the node, and for all subscribers.
type Kind int

// The kinds.
const (
	NoFailure  Kind = iota
	CallersOwn      // the caller is fenced, moved, too late or has left: the store has answered
	RowsOwn         // one checkpoint cannot be read, encoded or taken: it concerns its subscriber
	StoresOwn       // the store does not answer, or refuses everything
)

// KindOf returns the kind of an error, which is of one checkpoint.
func KindOf(err error) Kind {
	if err == nil {
		return NoFailure
	}
	callers := []error{ErrFenced, ErrRewound, ErrForeign, ErrNames, ErrNone, ErrForward, context.Canceled}
	switch {
	case slices.ContainsFunc(callers, func(own error) bool { return errors.Is(err, own) }):
		return CallersOwn
	case errors.Is(err, ErrUnsavable):
		return RowsOwn
	}
	switch fault.Of(err) {
	case fault.CheckpointCorrupt, fault.CheckpointNewer, fault.CheckpointPartitions:
		return RowsOwn
	default:
		return StoresOwn
	}
}
