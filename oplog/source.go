package oplog

import (
	"context"
	"errors"
	"time"

	"github.com/mongostream/streamer/change"
)

// ErrPositionLost says that the server refused a position, because the oplog does not hold what follows it, or for another reason. It is
// wrapped in a *LostError where more is known.
var ErrPositionLost = errors.New("the oplog no longer reaches back to the position")

// ErrAhead says that a position is later than the deployment's own time: it is of a log that is gone, because MongoDB was restored from a
// backup, or of another deployment.
var ErrAhead = errors.New("the position is later than MongoDB's own time")

// A LostError tells what the oplog holds instead.
type LostError struct {
	// First and Last are the times of the oldest and the newest entry, zero where unknown. Last is known only of a position later than it.
	First, Last change.Timestamp
	// Onward is where reading goes on, in an error of Cursor.Next: what stands before it is lost. Zero where it does not.
	Onward change.Position
	Err    error
}

// Error implements error.
func (e *LostError) Error() string { return ErrPositionLost.Error() + ": " + e.Err.Error() }

// Unwrap returns ErrPositionLost and the cause.
func (e *LostError) Unwrap() []error { return []error{ErrPositionLost, e.Err} }

// Holds reports whether the oplog may hold what follows the position.
func (e *LostError) Holds(p change.Position) bool {
	return e.First.Compare(p.Time) <= 0 && (e.Last.IsZero() || p.Time.Compare(e.Last) <= 0)
}

// A Source opens streams on the log.
type Source interface {
	// Open opens a stream of everything after the position; a zero position means from now on. It retries transient failures until the
	// context ends. ErrPositionLost is wrapped where the server refuses the position; any other error is final.
	Open(ctx context.Context, from change.Position) (Stream, error)
}

// A Stream is one change stream. It is used by one goroutine.
type Stream interface {
	// Base returns the position after which the stream yields everything.
	Base() change.Position
	// Next returns the next reply of the server, which may be empty after the time that the source waits for events. It reopens the
	// stream after a failure; whatever that repeats is dropped by position. Errors are those of Open.
	Next(ctx context.Context) (Reply, error)
	// Close ends the stream on the server too. It takes a bounded time even if the server does not answer.
	Close()
}

// A Reply is one whole answer of the server.
type Reply struct {
	// Events are the change events as BSON, in the order of the log, in one buffer that is the receiver's from now on.
	Events [][]byte
	// End is the post-batch position: everything up to it has been delivered. Zero where the server tells none, or where it
	// is not proven yet; then the last event's position counts.
	End change.Position
	// Unproven says that the stream was reopened before this reply, in a way that does not prove that nothing was left out.
	Unproven bool
	// Size is the length of the buffer in bytes.
	Size int
	// At is when the reply arrived.
	At time.Time
}
