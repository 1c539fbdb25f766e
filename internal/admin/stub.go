// Package admin is a stub.
package admin

import (
	"context"
	"errors"
	"net/http"

	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/streamer"
)

// ServeGaps is a stub.
func ServeGaps(checkpoint.GapKeeper) http.Handler { return http.NotFoundHandler() }

// ServeSubscribers is a stub.
func ServeSubscribers(*streamer.Node) http.Handler { return http.NotFoundHandler() }

// ReadOrigin is a stub.
func ReadOrigin(ctx context.Context, s checkpoint.OriginKeeper) (checkpoint.Origin, error) {
	o, err := s.Origin(ctx)
	if errors.Is(err, checkpoint.ErrNoOrigin) {
		err = fault.New(fault.ClusterUnknown, err)
	}
	return o, err
}
