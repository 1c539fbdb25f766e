package admin

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"strings"

	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway/access"
)

// answer answers a request with a status and a value as JSON that is not to be cached.
func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client may have gone
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

// refuse answers with the reason why there is no answer: that the node stops, where that has ended
// the request.
func refuse(w http.ResponseWriter, r *http.Request, err error, logger *slog.Logger) {
	if cause := context.Cause(r.Context()); fault.Of(err) == "" && fault.Of(cause) != "" {
		err = cause
	}
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
	answer(w, status, said)
}
