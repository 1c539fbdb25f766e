package admin

import (
	"context"
	"log/slog"
	"net/http"

	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/gateway/access"
)

// A GapLog is the public form of the gap log, in the order of discovery.
type GapLog struct {
	Gaps []Gap `json:"gaps"`
	// Error says that some entries cannot be read, and why.
	Error string `json:"error,omitempty"`
}

// ServeGaps answers GET requests with the gap log as JSON: 200 with the readable entries, 503 with
// code and remedy if none is readable. An identity that may not read everything gets only the
// entries of its namespaces.
func ServeGaps(keeper checkpoint.GapKeeper, logger *slog.Logger) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		reads, cancel := context.WithTimeoutCause(r.Context(), readTimeout, silence())
		defer cancel()
		gaps, err := keeper.Gaps(reads)
		err = reason(reads, err)
		if err != nil && len(gaps) == 0 {
			refuse(w, r, err, logger)
			return
		}
		i := access.From(r.Context())
		log := GapLog{Gaps: []Gap{}, Error: shownError(i, err, logger)}
		for _, gap := range ShowGaps(gaps) {
			if names, some := i.Readable(gap.Namespaces); some {
				gap.Namespaces = names
				log.Gaps = append(log.Gaps, gap)
			}
		}
		answer(w, http.StatusOK, log)
	})
}
