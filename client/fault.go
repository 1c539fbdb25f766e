package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// An Error is an error reported by a node. Run `streamer explain CODE` for details.
type Error struct {
	Code    string // STRM-…; codes never change
	Message string // what happened
	Remedy  string // what to do

	status error // the status that ended the stream, nil if it did not end
}

// codesURL is where people read about a code.
const codesURL = "https://github.com/mongostream/streamer/blob/main/docs/codes.md#"

// Error returns the code, what happened, what to do and where to read more, in one line.
func (e *Error) Error() string {
	text := e.Code + ": " + e.Message
	if e.Remedy != "" {
		text += ". " + strings.ToUpper(e.Remedy[:1]) + e.Remedy[1:]
	}
	return strings.TrimSuffix(text, ".") + ". See " + codesURL + strings.ToLower(e.Code)
}

// Unwrap returns the gRPC status error of the call, if any; google.golang.org/grpc/status reads it.
func (e *Error) Unwrap() error { return e.status }

// faultOf converts a status whose message begins with a code to an Error. It returns other errors
// unchanged.
func faultOf(err error) error {
	s, ok := status.FromError(err)
	if !ok || err == nil {
		return err
	}
	head, remedy, _ := strings.Cut(s.Message(), "\n")
	code, message, found := strings.Cut(head, ": ")
	if !found || !strings.HasPrefix(code, "STRM-") || strings.ContainsAny(code, " \t") {
		return err
	}
	return &Error{Code: code, Message: message, Remedy: strings.TrimSpace(remedy), status: err}
}

// errNotGRPC says that something else than gRPC answers at an address.
var errNotGRPC = errors.New("is this the address of a node's gRPC server (port 9090), and not of its HTTP server (8080)?")

// hinted adds what probably caused a failed connection. gRPC says in its text alone that the answer
// was HTTP/1.1.
func hinted(err error) error {
	if status.Code(err) == codes.Unavailable && strings.Contains(err.Error(), "HTTP/1.1 header") {
		return fmt.Errorf("%w: %w", errNotGRPC, err)
	}
	return err
}

// badAck is the code for an unexpected acknowledgement. A new session resolves it.
const badAck = "STRM-SESSION-BAD-ACK"

// final reports whether retrying is useless after an error. welcomed says that a node has accepted
// the client before: then rejected credentials may be renewed.
func final(err error, welcomed bool) bool {
	if errors.Is(err, errCluster) {
		return true
	}
	if fault, ok := errors.AsType[*Error](err); ok && fault.Code == badAck {
		return false
	}
	switch status.Code(err) {
	case codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.FailedPrecondition, codes.Unimplemented:
		return true
	case codes.Unauthenticated, codes.PermissionDenied:
		return !welcomed
	default:
		return false
	}
}

// A HandlerError is returned by Run when a change or a loss could not be handled.
type HandlerError struct {
	Poison
}

// Error identifies the change and gives the last error.
func (e *HandlerError) Error() string {
	if e.Change == nil {
		return fmt.Sprintf("handle notice: failed %d times: %v", e.Attempts, e.Err)
	}
	return fmt.Sprintf("handle change %s of subscription %q in partition %d: failed %d times: %v", e.Change.ID(), e.Change.Subscription, e.Change.Partition, e.Attempts, e.Err)
}

// Unwrap returns the handler's last error.
func (e *HandlerError) Unwrap() error { return e.Err }

// Reasons why the client ends a session.
var (
	errSilent   = errors.New("node sent nothing within the timeout")
	errEnded    = errors.New("node ended the session")
	errProtocol = errors.New("node violated the protocol")
	errCluster  = errors.New("node belongs to another cluster")
	errLeft     = errors.New("session is no longer needed")
	errStopping = errors.New("node is about to stop")
	errRewound  = errors.New("operator rewound the subscriber")
	errOlder    = errors.New("a snapshot document may be older than what another session has brought")
	errStuck    = errors.New("session is blocked on its own partition and restarts")
)

// errRepartitioned ends the handlers when the number of partitions changes.
var errRepartitioned = errors.New("number of partitions changed")

// ErrRunning is returned by a second call of Run.
var ErrRunning = errors.New("client has already run")

// A backoff is exponential backoff with jitter: each failure doubles the wait; half of it is
// random.
type backoff struct{ first, longest time.Duration }

// after returns the wait after a number of consecutive failures, at least 1.
func (b backoff) after(failures int) time.Duration {
	longest := min(b.first<<min(max(failures-1, 0), 20), b.longest)
	return longest/2 + rand.N(longest/2+1)
}

// wait sleeps after a number of consecutive failures. It returns the context's cause if that ends
// first.
func (b backoff) wait(ctx context.Context, failures int) error {
	timer := time.NewTimer(b.after(failures))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
