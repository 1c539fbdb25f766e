package gateway

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway/access"
	"github.com/mongostream/streamer/match"
	"github.com/mongostream/streamer/streamer"
)

// EventsConfig configures Events.
type EventsConfig struct {
	// Cluster is part of event ids, so that ids of another cluster are rejected. Required.
	Cluster string
	// Carries says what the events of the log contain, for the validation of filters.
	Carries match.Carries
	// Accounts enforce the limits of identities; requests must then have passed an access.Authenticator. nil allows everything to everybody.
	Accounts *access.Accounts
	// Heartbeat is the interval of comments on an idle connection. Defaults to 15 s.
	Heartbeat time.Duration
	// StallTimeout is how long a write may block before the client is disconnected. Defaults to 30 s.
	StallTimeout time.Duration
	// MaxClients bounds the connections. Defaults to 1000.
	MaxClients int
	// Logger defaults to one that discards.
	Logger *slog.Logger
	// Registerer registers the metrics. Optional.
	Registerer prometheus.Registerer
}

// Events serves GET /v1/events as server-sent events (WHATWG HTML, section 9.2): one session of the node for each connection.
type Events struct {
	cfg     EventsConfig
	node    *streamer.Node
	logger  *slog.Logger
	metrics metrics
	clients atomic.Int64
}

// NewEvents returns the handler.
func NewEvents(cfg EventsConfig, node *streamer.Node) *Events {
	cfg.Heartbeat = cmp.Or(cfg.Heartbeat, 15*time.Second)
	cfg.StallTimeout = cmp.Or(cfg.StallTimeout, 30*time.Second)
	cfg.MaxClients = cmp.Or(cfg.MaxClients, 1000)
	return &Events{
		cfg: cfg, node: node, logger: cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler)), metrics: newMetrics(cfg.Registerer),
	}
}

// retryAfter returns a random reconnect delay in milliseconds, so that the clients of a node do not reconnect at once.
func retryAfter() int { return 500 + rand.IntN(1000) }

// ServeHTTP implements http.Handler. Parameters: db, coll, op (repeated or separated by commas), filter (CEL), subscriber (a durable name
// with a checkpoint), start (now, earliest, an RFC 3339 time, or snapshot: now, with the documents that exist; defaults to now), on_loss (notify,
// or snapshot: the documents come again after a loss; defaults to notify). Snapshots need a subscriber. The header or parameter Last-Event-ID
// resumes after the event with that id.
func (h *Events) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := leaving(r.Context()); err != nil {
		h.refuse(w, r, err)
		return
	}
	filter, request, again, err := h.parse(r)
	if err != nil {
		h.refuse(w, r, err)
		return
	}
	account, err := h.admit(r.Context(), filter)
	if err != nil {
		h.refuse(w, r, err)
		return
	}
	defer account.Close()
	program, err := match.Compile(filter)
	if err != nil {
		h.refuse(w, r, err)
		return
	}
	if h.clients.Add(1) > int64(h.cfg.MaxClients) {
		h.clients.Add(-1)
		h.refuse(w, r, fault.Newf(fault.SessionTooMany, "%d clients are connected", h.cfg.MaxClients))
		return
	}
	defer h.clients.Add(-1)
	subscriber, err := h.node.Connect(r.Context(), request, []streamer.Subscription{
		{ID: "events", Program: program, Form: streamer.Form{Format: streamer.JSON}, Recover: again},
	})
	if err != nil {
		h.refuse(w, r, cmp.Or(leaving(r.Context()), err))
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no")
	c := &client{events: h, account: account, subscriber: subscriber, w: w, out: http.NewResponseController(w), at: request.At.Ref}
	reason := c.run(r.Context())
	h.metrics.ended.WithLabelValues(reason).Inc()
	subscriber.Close(r.Context(), nil)
}

// leaving returns why a request cannot be served because its context has ended: the node stops or access was revoked. It returns nil if the
// context has not ended.
func leaving(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	if cause := context.Cause(ctx); fault.Of(cause) != "" {
		return cause
	}
	return fault.Newf(fault.NodeStopping, "node accepts no more subscribers")
}

// admit checks that the identity may use the filter, and counts the subscription. The caller must close the account.
func (h *Events) admit(ctx context.Context, f match.Filter) (account *access.Account, err error) {
	if h.cfg.Accounts == nil {
		return access.NewAccounts().Open(access.Anonymous()), nil
	}
	i := access.From(ctx)
	if err := i.Permit(f.DB, f.Coll); err != nil {
		return nil, err
	}
	account = h.cfg.Accounts.Open(i)
	if err := account.Subscribe(1); err != nil {
		account.Close()
		return nil, err
	}
	return account, nil
}

// parse reads the request. again says that the documents come again after a loss.
func (h *Events) parse(r *http.Request) (f match.Filter, request streamer.Request, again bool, err error) {
	f.Carries = h.cfg.Carries
	request = streamer.Request{Process: strconv.FormatUint(rand.Uint64(), 36), Started: time.Now(), Start: streamer.StartNow}
	bad := func(format string, args ...any) (match.Filter, streamer.Request, bool, error) {
		return f, request, again, fault.Newf(fault.SessionBadRequest, format, args...)
	}
	if r.Method != http.MethodGet {
		return bad("method %s: use GET", r.Method)
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return bad("read the query: %w", err)
	}
	last := r.Header.Get("Last-Event-ID")
	for name, values := range query {
		if name != "op" && len(values) > 1 {
			return bad("parameter %s is given twice", name)
		}
		switch name {
		case "db":
			f.DB = values[0]
		case "coll":
			f.Coll = values[0]
		case "op":
			if f.Ops, err = match.ParseOps(strings.Split(strings.Join(values, ","), ",")); err != nil {
				return bad("parameter op: %w", err)
			}
		case "filter":
			f.Source = values[0]
		case "subscriber":
			if request.Subscriber = values[0]; len(request.Subscriber) > maxID {
				return bad("parameter subscriber: at most %d bytes", maxID)
			}
		case "start":
			switch values[0] {
			case "now":
			case "earliest":
				request.Start = streamer.StartEarliest
			case "snapshot":
				request.Start = streamer.StartSnapshot
			default:
				request.Start = streamer.StartTime
				if request.Time, err = time.Parse(time.RFC3339, values[0]); err != nil || request.Time.Unix() <= 0 || request.Time.Unix() > 1<<32-1 {
					return bad("parameter start: now, earliest, snapshot, or a time like 2026-01-02T15:04:05Z")
				}
			}
		case "on_loss":
			if again = values[0] == "snapshot"; !again && values[0] != "notify" {
				return bad("parameter on_loss: notify or snapshot")
			}
		case "Last-Event-ID":
			last = cmp.Or(last, values[0])
		default:
			return bad("unknown parameter %q: use db, coll, op, filter, subscriber, start, on_loss", name)
		}
	}
	if (again || request.Start == streamer.StartSnapshot) && request.Subscriber == "" {
		return bad("a snapshot needs the parameter subscriber: what is left of it is kept under the name")
	}
	identify(&request, access.From(r.Context()))
	if last == "" {
		return f, request, again, nil
	}
	text, rest, _ := strings.Cut(last, idMark)
	generation, stamp, _ := strings.Cut(rest, idMark)
	ref, err := change.ParseRefText(text, h.cfg.Cluster)
	if err == nil && generation != "" {
		request.Generation, err = strconv.ParseUint(generation, 10, 64)
	}
	if err == nil && stamp != "" {
		var of uint64
		of, err = strconv.ParseUint(stamp, 16, 32)
		request.Stamp = uint32(of)
	}
	if err != nil {
		return f, request, again, fault.Newf(fault.SessionBadPosition, "Last-Event-ID: %w", err)
	}
	request.Known, request.Stamped, request.At = true, true, streamer.Place{Ref: ref}
	return f, request, again, nil
}

// idMark separates the position, the checkpoint generation and the stamp of snapshots in an id. Both are omitted if they are 0.
const idMark = "."

// refuse responds with the fault as JSON. Because an EventSource gives up on any status but 200, it gets an empty stream with a reconnect
// delay if it should retry.
func (h *Events) refuse(w http.ResponseWriter, r *http.Request, err error) {
	status := http.StatusInternalServerError
	switch fault.Of(err) {
	case fault.AccessUnauthenticated:
		status = http.StatusUnauthorized
	case fault.AccessForbidden:
		status = http.StatusForbidden
	case fault.AccessLimit:
		status = http.StatusTooManyRequests
	case fault.SessionReplaced, fault.LogAhead:
		status = http.StatusConflict
	case fault.SessionTooMany, fault.NodeStopping, fault.MongoUnreachable, fault.CheckpointUnreadable:
		status = http.StatusServiceUnavailable
	default:
		if code := fault.Of(err); code != "" {
			status = http.StatusBadRequest
		}
	}
	if status == http.StatusServiceUnavailable && strings.Contains(r.Header.Get("Accept"), "text/event-stream") {
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("Cache-Control", "no-store")
		text, _ := json.Marshal(describe(err)) //nolint:errchkjson // strings only
		_, _ = fmt.Fprintf(w, "retry: %d\nevent: unavailable\ndata: %s\n\n", retryAfter(), text)
		return
	}
	if status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(describe(err)) // the client may have disconnected
}

// A description is a fault as clients see it.
type description struct {
	Code    fault.Code `json:"code"`
	Message string     `json:"message"`
	Remedy  string     `json:"remedy"`
}

func describe(err error) description {
	d := description{Message: err.Error()}
	if f, ok := errors.AsType[*fault.Error](err); ok {
		d = description{Code: f.Code, Message: f.Err.Error(), Remedy: f.Remedy()}
	}
	return d
}
