package link

import (
	"errors"
	"strings"

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

// FaultOf makes an Error of a status whose text begins with a code; other errors stay as they are.
func FaultOf(err error) error {
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

// Final reports whether an error makes further attempts useless. welcomed says that a node has taken the client before, so that credentials
// that are refused now may be on their way to being renewed.
func Final(err error, welcomed bool) bool {
	if fault, ok := errors.AsType[*Error](err); ok && fault.Code == badAck {
		return false
	}
	switch status.Code(err) {
	case codes.InvalidArgument, codes.AlreadyExists, codes.FailedPrecondition, codes.Unimplemented:
		return true
	case codes.Unauthenticated, codes.PermissionDenied:
		return !welcomed
	default:
		return false
	}
}
