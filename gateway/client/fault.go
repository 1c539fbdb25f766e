package client

import (
	"errors"
	"fmt"

	"github.com/mongostream/streamer/gateway/client/link"
)

// An Error is what a node says is wrong. `streamer explain CODE` tells more.
type Error = link.Error

// A HandlerError ends Run: a change, or a loss, that could not be dealt with.
type HandlerError struct {
	Poison
}

// Error says what could not be handled, and why.
func (e *HandlerError) Error() string {
	what := "a notice"
	if e.Change != nil {
		what = fmt.Sprintf("change %s of subscription %q", e.Change.ID(), e.Change.Subscription)
	}
	return fmt.Sprintf("%s in partition %d failed %d times: %v", what, e.Partition, e.Attempts, e.Err)
}

// Unwrap returns the handler's last error.
func (e *HandlerError) Unwrap() error { return e.Err }

// Reasons why a session ends from our side.
var (
	errHole     = errors.New("a batch begins behind what has been received: something is missing between them")
	errSilent   = errors.New("nothing came from the node")
	errEnded    = errors.New("the node has ended the session")
	errProtocol = errors.New("the node does not keep to the protocol")
	errCluster  = errors.New("the node is of another cluster")
	errLeft     = errors.New("the node is not needed")
	errStopping = errors.New("the node is about to stop")
)

// ErrRunning says that Run was called a second time.
var ErrRunning = errors.New("the client has run already")
