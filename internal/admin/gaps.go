package admin

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"strings"

	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/fault"
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
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		gaps, err := keeper.Gaps(r.Context())
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
		_ = json.NewEncoder(w).Encode(log) // the client may have gone
	})
}

// shownError returns the text of an error, which may be nil, for an identity: all of it where it
// may read everything. Otherwise the log has it.
func shownError(i *access.Identity, err error, logger *slog.Logger) string {
	switch {
	case err == nil:
		return ""
	case i.Operates():
		return err.Error()
	}
	if !fault.IsPublic(err) {
		logger.Warn("request failed", "error", err)
	}
	_, text, _ := fault.Public(err)
	return text
}

// refuse answers with the reason why there is no answer.
func refuse(w http.ResponseWriter, r *http.Request, err error, logger *slog.Logger) {
	refuseWith(w, r, http.StatusServiceUnavailable, err, logger)
}

// refuseWith answers with a status and the reason, in full only to identities that may read
// everything.
func refuseWith(w http.ResponseWriter, r *http.Request, status int, err error, logger *slog.Logger) {
	var said struct {
		Code    fault.Code `json:"code,omitempty"`
		Message string     `json:"message"`
		Remedy  string     `json:"remedy,omitempty"`
	}
	said.Code, _, said.Remedy = fault.Public(err)
	said.Message = strings.TrimPrefix(shownError(access.From(r.Context()), err, logger), string(said.Code)+": ")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(said) // the client may have gone
}
