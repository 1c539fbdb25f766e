package admin

import (
	"context"
	"log/slog"
	"net/http"
	"strconv"

	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway/access"
	"github.com/mongostream/streamer/supervisor"
)

// Reports are the last reports of the supervisor, the newest first.
type Reports struct {
	Reports []supervisor.Report `json:"reports"`
	// Paused are the components and nodes whose restarts are paused now.
	Paused []supervisor.Pause `json:"paused,omitempty"`
}

// How many reports are shown.
const (
	DefaultReports = 100
	MaxReports     = 10000
)

// ServeReports answers GET requests with the last reports as JSON, as many as ?limit says: 200, 400
// for a limit that is none, 403 to identities that may not read everything, and 503 where the store
// does not answer.
func ServeReports(reader supervisor.Reader, logger *slog.Logger) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if i := access.From(r.Context()); !i.Operates() {
			access.Refuse(w, http.StatusForbidden, fault.Newf(fault.AccessForbidden, "reports need the right to every namespace"))
			return
		}
		limit := DefaultReports
		if text := r.URL.Query().Get("limit"); text != "" {
			n, err := strconv.Atoi(text)
			if err != nil || n < 1 || n > MaxReports {
				access.Refuse(w, http.StatusBadRequest, fault.Newf(fault.SessionBadRequest, "limit must lie between 1 and %d", MaxReports))
				return
			}
			limit = n
		}
		reads, cancel := context.WithTimeoutCause(r.Context(), readTimeout, silence())
		defer cancel()
		reports, err := reader.Reports(reads, limit)
		if err != nil {
			refuse(w, r, reason(reads, err), logger)
			return
		}
		standing, err := reader.Look(reads)
		if err != nil {
			refuse(w, r, reason(reads, err), logger)
			return
		}
		answer(w, http.StatusOK, Reports{Reports: append([]supervisor.Report{}, reports...), Paused: standing.Paused})
	})
}
