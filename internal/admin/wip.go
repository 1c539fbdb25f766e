package admin

import (
	"context"
	"errors"
	"net/http"

	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/fault"
)

// ServeSubscribers is missing.
func ServeSubscribers(any) http.Handler { return http.NotFoundHandler() }

// A Gap is missing.
type Gap checkpoint.Gap

// ShowGaps is missing.
func ShowGaps(gaps []checkpoint.Gap) (shown []Gap) {
	for _, g := range gaps {
		shown = append(shown, Gap(g))
	}
	return shown
}

// ReadOrigin reads the origin.
func ReadOrigin(ctx context.Context, s checkpoint.OriginKeeper) (checkpoint.Origin, error) {
	origin, err := s.Origin(ctx)
	if errors.Is(err, checkpoint.ErrNoOrigin) {
		return origin, fault.New(fault.ClusterUnknown, err)
	}
	return origin, err
}
