package oplog

import (
	"context"
	"errors"
	"time"

	"github.com/mongostream/streamer/change"
)

// ErrPositionLost says that the server rejected a position, usually because the oplog no longer
// holds the entries after it. A *LostError may wrap it with details.
var ErrPositionLost = errors.New("position is no longer in the oplog")

// ErrAhead says that a position is later than the deployment's own time: MongoDB was restored from
// a backup, or the position belongs to another deployment.
var ErrAhead = errors.New("position is later than MongoDB's own time")

// ErrUnanswered says, with ErrPositionLost, that the retained log may have what the oplog has lost,
// but does not answer.
var ErrUnanswered = errors.New("the retained log does not answer")

// ErrJoin says that the retained log ends at a position, from which on MongoDB has it.
var ErrJoin = errors.New("the retained log ends here")

// A LostError contains the range of the oplog.
type LostError struct {
	// First and Last are the times of the oldest and the newest entry, zero if unknown. Last is
	// known only if the position is later.
	First, Last change.Timestamp
	Err         error
}

// Error implements error.
func (e *LostError) Error() string { return ErrPositionLost.Error() + ": " + e.Err.Error() }

// Unwrap returns ErrPositionLost and the cause.
func (e *LostError) Unwrap() []error { return []error{ErrPositionLost, e.Err} }

// Holds reports whether the oplog may hold the entries after the position.
func (e *LostError) Holds(p change.Position) bool {
	return e.First.Compare(p.Time) <= 0 && (e.Last.IsZero() || p.Time.Compare(e.Last) <= 0)
}

// A Source opens streams of the log.
type Source interface {
	// Open opens a stream of everything after the position; a zero position means from now on. It
	// retries transient failures until the context ends. It returns ErrPositionLost if the server
	// rejects the position; any other error is permanent.
	Open(ctx context.Context, from change.Position) (Stream, error)
}

// A Stream is one change stream. It must not be used concurrently.
type Stream interface {
	// Base returns the position after which the stream yields everything.
	Base() change.Position
	// Next returns the server's next reply, which may be empty after the source's wait time. It
	// reopens the stream after a failure; repeated events are dropped by position. Errors are those
	// of Open.
	Next(ctx context.Context) (Reply, error)
	// Close closes the stream, also on the server. It takes a bounded time even if the server does
	// not answer.
	Close()
}

// A Reply is one reply of the server.
type Reply struct {
	// Events are the change events as BSON, in the order of the log, in one buffer that the
	// receiver owns.
	Events [][]byte
	// Loss comes before the events, if there is one. Told says that it was reported when it was
	// found, and is not reported again.
	Loss *Loss
	Told bool
	// Retained says that the reply is from the retained log: its reader costs MongoDB nothing.
	Retained bool
	// End is the post-batch position: everything up to it has been delivered. It is zero if the
	// server sends none or it is not proven yet; then the position of the last event counts.
	End change.Position
	// Unproven says that the stream was reopened before this reply without a proof that nothing was
	// missed.
	Unproven bool
	// Drained says that the server had nothing more: no event of the last one's time follows. An
	// empty reply of a source that cannot know, because it merges several logs, is not drained.
	Drained bool
	// Size is the length of the buffer in bytes.
	Size int
	// At is when the reply arrived.
	At time.Time
}
