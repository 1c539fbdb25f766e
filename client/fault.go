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

// An Error is what a node says is wrong. `streamer explain CODE` tells more.
type Error struct {
	Code    string // STRM-…, the same for ever
	Message string // what exactly was met
	Remedy  string // what to do

	status error // with which the stream ended, nil where it did not
}

// Error returns code and message in one line.
func (e *Error) Error() string { return e.Code + ": " + e.Message }

// Unwrap returns the status of the call, if there was one: google.golang.org/grpc/status reads it.
func (e *Error) Unwrap() error { return e.status }

// faultOf makes an Error of a status whose text begins with a code; other errors stay as they are.
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

// badAck is the code of an acknowledgement that a node did not expect: another session sets that right.
const badAck = "STRM-SESSION-BAD-ACK"

// final reports whether an error makes further attempts useless. welcomed says that a node has taken the client before, so that credentials
// that are refused now may be about to be renewed.
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

// A HandlerError ends Run: a change, or a loss, that could not be handled.
type HandlerError struct {
	Poison
}

// Error says what could not be handled, and why.
func (e *HandlerError) Error() string {
	if e.Change == nil {
		return fmt.Sprintf("a notice failed %d times: %v", e.Attempts, e.Err)
	}
	return fmt.Sprintf("change %s of subscription %q in partition %d failed %d times: %v", e.Change.ID(), e.Change.Subscription, e.Change.Partition, e.Attempts, e.Err)
}

// Unwrap returns the handler's last error.
func (e *HandlerError) Unwrap() error { return e.Err }

// Reasons why a session ends from our side.
var (
	errSilent   = errors.New("nothing came from the node")
	errEnded    = errors.New("the node has ended the session")
	errProtocol = errors.New("the node does not keep to the protocol")
	errCluster  = errors.New("the node is of another cluster")
	errLeft     = errors.New("the node is not needed")
	errStopping = errors.New("the node is about to stop")
	errRewound  = errors.New("an operator has moved the subscriber back")
	errStuck    = errors.New("the session waits for what would come after it: it reads again")
)

// errRepartitioned ends the handlers of a partitioning that is over.
var errRepartitioned = errors.New("the cluster has been partitioned anew")

// ErrRunning says that Run was called a second time.
var ErrRunning = errors.New("the client has run already")

// A backoff says how long to wait between attempts: twice as long after each failure, a random half of it, so that clients that failed
// together do not come back together.
type backoff struct{ first, longest time.Duration }

// after returns the wait after so many failures in a row, at least 1.
func (b backoff) after(failures int) time.Duration {
	longest := min(b.first<<min(max(failures-1, 0), 20), b.longest)
	return longest/2 + rand.N(longest/2+1)
}

// wait waits after so many failures in a row. It returns the context's cause when that ends first.
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
