package admin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway/access"
	"github.com/mongostream/streamer/handoff"
	"github.com/mongostream/streamer/notice"
	"github.com/mongostream/streamer/supervisor"
)

// Operations are the operations on a cluster over HTTP, the same as on the command line.
type Operations struct {
	// Cluster is where partitions move; its Directives are nil if one node owns all partitions.
	Cluster  handoff.Cluster
	Restarts supervisor.Control
	// Supervised reports whether a slug may be that of a node of the cluster, or of a component of
	// one. Defaults to one that knows all.
	Supervised func(slug string) bool
	Board      *notice.Board
	Movable    Movable
	// Trusted says that only this machine reaches the node, so that an anonymous identity may
	// operate.
	Trusted bool
	Logger  *slog.Logger
}

const (
	// MaxPause bounds a pause of restarts: a forgotten pause must not disable restarts for ever.
	MaxPause = 7 * 24 * time.Hour
	// defaultPause is for how long restarts are paused unless the request says it.
	defaultPause = time.Hour
	// requestedFor is for how long a handoff that was requested over HTTP is tried.
	requestedFor = time.Minute
	// maxSlug is the longest slug of a component, in bytes.
	maxSlug = 200
	// finishTimeout bounds an operation of many writes, which continues without its client.
	finishTimeout = time.Minute
	// AnswerTimeout bounds the answer to any other operation: what it reads, the wait for a
	// heartbeat, and what it writes. Clients wait longer, so that they get the answer.
	AnswerTimeout = 20 * time.Second
)

// May reports whether an identity may operate: it has the right to everything, and is known by name
// unless only this machine reaches the node.
func (o Operations) May(i *access.Identity) bool {
	return i.Operates() && (o.Trusted || i.Owner() != "")
}

// An Accepted describes the accepted operation.
type Accepted struct {
	Command   string   `json:"command"`
	Arguments []string `json:"arguments"`
}

// ServeDrain answers POST requests for /v1/nodes/{node}/{do}, where do is drain or undrain.
func (o Operations) ServeDrain() http.Handler {
	return o.serve(readTimeout, func(r *http.Request, by string, record func(string, ...string)) error {
		node := r.PathValue("node")
		if err := o.shared(); err != nil {
			return err
		}
		switch r.PathValue("do") {
		case "drain":
			d := handoff.Drain{Node: node, By: by, Confirm: func(int) error { record("drain", node); return nil }}
			return d.Write(r.Context(), o.timely())
		case "undrain":
			return handoff.Undrain(r.Context(), o.timely(), node, func() error { record("drain", node, "--undo"); return nil })
		}
		return fault.Newf(fault.CommandBadArgument, "a node can be drained or undrained")
	})
}

// ServeHandoff answers POST requests for /v1/partitions/{partition}/handoff?to=NODE. The partition
// stays where it is if it is not there after a minute.
func (o Operations) ServeHandoff() http.Handler {
	return o.serve(readTimeout, func(r *http.Request, by string, record func(string, ...string)) error {
		if err := o.shared(); err != nil {
			return err
		}
		n, err := strconv.ParseUint(r.PathValue("partition"), 10, 32)
		if err != nil {
			return fault.Newf(fault.CommandBadArgument, "there is no partition %.20q", r.PathValue("partition"))
		}
		h := handoff.Request{Partition: change.Partition(n), To: r.URL.Query().Get("to"), By: by, For: requestedFor}
		h.Confirm = func(string) error { record("handoff", r.PathValue("partition"), "--to", h.To); return nil }
		return h.Write(r.Context(), o.timely())
	})
}

// ServeRestarts answers POST requests for /v1/restarts/{do}?slug=SLUG&for=DURATION, where do is
// pause or resume.
func (o Operations) ServeRestarts() http.Handler {
	return o.serve(readTimeout, func(r *http.Request, by string, record func(string, ...string)) error {
		slug := r.URL.Query().Get("slug")
		during := defaultPause
		if slug == "" || len(slug) > maxSlug {
			return fault.Newf(fault.CommandBadArgument, "parameter slug: name a component, such as node-1/hub, or a node")
		}
		if text := r.URL.Query().Get("for"); text != "" {
			var err error
			if during, err = time.ParseDuration(text); err != nil || during < time.Second || during > MaxPause {
				return fault.Newf(fault.CommandBadArgument, "parameter for: it must lie between 1s and %s", MaxPause)
			}
		}
		do := r.PathValue("do")
		if do == "pause" && o.Supervised != nil && !o.Supervised(slug) {
			return fmt.Errorf("%w: no node of the cluster has a component %.60q", errUnknown, slug)
		}
		switch do {
		case "pause":
			record("supervisor pause-restart", slug, "--for", during.String())
			return o.Restarts.Pause(r.Context(), supervisor.Pause{Slug: slug, By: by, Until: time.Now().Add(during).UTC()}, during)
		case "resume":
			record("supervisor pause-restart", slug, "--undo")
			return o.Restarts.Unpause(r.Context(), slug)
		}
		return fault.Newf(fault.CommandBadArgument, "restarts can be paused or resumed")
	})
}

// timely is the cluster, of which no reading waits for long.
func (o Operations) timely() handoff.Cluster {
	c := o.Cluster
	c.View = timely{c.View}
	return c
}

// shared refuses what needs several nodes.
func (o Operations) shared() error {
	if o.Cluster.Directives == nil {
		return fault.Newf(fault.CommandBadArgument, "a single node owns all partitions")
	}
	return nil
}

// errUnknown says that what an operation names is not there.
var errUnknown = fault.Newf(fault.CommandBadArgument, "unknown name")

// errUndone says that nothing was done, whatever is recorded.
var errUndone = errors.New("nothing was done")

// serve answers POST requests with what do does: 202 with an Accepted, 403 to identities that may
// not operate, 400, 404 or 409 with the fault that says why nothing is done, and 503 where the
// store does not answer. What do records is in the audit log, so it is finished even if the client
// goes away, or the node begins to stop, meanwhile.
//
// From the record on it has so long to write. Whatever it reads before is bounded by looks: then
// nothing is written later, either. Where the store falls silent between the two, the answer says
// that the outcome is unknown.
func (o Operations) serve(finish time.Duration, do func(r *http.Request, by string, record func(command string, arguments ...string)) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i := access.From(r.Context())
		if !o.May(i) {
			o.forbid(w)
			return
		}
		ctx, cancel := context.WithCancelCause(context.WithoutCancel(r.Context()))
		defer cancel(nil)
		end := time.AfterFunc(finishTimeout, func() { cancel(silence()) })
		defer end.Stop()
		var accepted Accepted
		err := do(r.WithContext(ctx), i.Name, func(command string, arguments ...string) {
			accepted = Accepted{Command: command, Arguments: arguments}
			end.Reset(finish)
			o.Board.Post(OperatedNotice(i.Name, command, arguments))
		})
		err = reason(ctx, err)
		if accepted.Command != "" && isSilence(err) && !errors.Is(err, errUndone) {
			err = fmt.Errorf("whether it is done is unknown, and it may yet be; look before you try again: %w", err)
		}
		if err != nil {
			o.refuse(w, r.WithContext(ctx), err) // it was not refused because its client has left
			return
		}
		answer(w, http.StatusAccepted, accepted)
	})
}

func (o Operations) forbid(w http.ResponseWriter) {
	access.Refuse(w, http.StatusForbidden, fault.Newf(fault.AccessForbidden,
		"operating needs the right to every namespace, and a name unless the node listens on its own machine only"))
}

// isSilence reports whether a store has not answered.
func isSilence(err error) bool {
	code := fault.Of(err)
	return code == fault.EtcdUnreachable || code == fault.MongoUnreachable || errors.Is(err, context.DeadlineExceeded)
}

// refuse answers with why nothing is done.
func (o Operations) refuse(w http.ResponseWriter, r *http.Request, err error) {
	code := fault.Of(err)
	switch {
	case errors.Is(err, errUnknown):
		refuseWith(w, r, http.StatusNotFound, err, o.Logger)
	case code == fault.CommandBadArgument:
		refuseWith(w, r, http.StatusBadRequest, err, o.Logger)
	case code != "" && !isSilence(err):
		refuseWith(w, r, http.StatusConflict, err, o.Logger)
	default:
		refuse(w, r, err, o.Logger)
	}
}
