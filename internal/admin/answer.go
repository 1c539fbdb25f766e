package admin

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway/access"
	"github.com/mongostream/streamer/handoff"
	"github.com/mongostream/streamer/internal/input"
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

// readTimeout bounds how long the store may take to answer a request that only reads: longer than
// etcd is away before that is a problem. answerTimeout bounds the whole answer, and how long it
// waits for its turn: the page and the commands give up after ten seconds.
const (
	readTimeout   = 6 * time.Second
	answerTimeout = 8 * time.Second
)

// silence is why what a request reads has ended then: etcd's client retries until its context ends,
// and tells nothing but that.
func silence() error {
	return fault.Newf(fault.EtcdUnreachable, "etcd has not answered within %s", readTimeout)
}

// looks reads something with which an operation begins. Nothing has been done yet, so that a store
// that is silent for long refuses the operation for good, with its code.
func looks[T any](ctx context.Context, read func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, readTimeout, silence())
	defer cancel()
	found, err := read(ctx)
	return found, reason(ctx, err)
}

// timely is a view of a cluster that tells when etcd is silent.
type timely struct{ of handoff.View }

// View implements [handoff.View].
func (v timely) View(ctx context.Context) (cluster.View, error) { return looks(ctx, v.of.View) }

// Hints implements [handoff.View].
func (v timely) Hints(ctx context.Context) <-chan struct{} { return v.of.Hints(ctx) }

// reason returns an error, or why its context has ended, where only that says what is wrong: that
// the store does not answer, that the node stops, or that the client has gone.
func reason(ctx context.Context, err error) error {
	if err == nil || fault.Of(err) != "" && fault.Of(context.Cause(ctx)) != "" {
		return err
	}
	return input.Reason(ctx, err)
}

// refuse answers with the reason why there is no answer.
func refuse(w http.ResponseWriter, r *http.Request, err error, logger *slog.Logger) {
	err = reason(r.Context(), err)
	status := http.StatusServiceUnavailable
	if fault.Of(err) == fault.SessionBadRequest { // the client has gone, or can at least not be told more
		status = http.StatusBadRequest
	}
	refuseWith(w, r, status, err, logger)
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
