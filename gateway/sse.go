package gateway

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway/access"
	"github.com/mongostream/streamer/internal/input"
	"github.com/mongostream/streamer/match"
	"github.com/mongostream/streamer/streamer"
)

// EventsConfig configures Events.
type EventsConfig struct {
	// Base ends the streams, as that of the HTTP server does, because many of them outlive their
	// requests. nil never ends.
	Base context.Context //nolint:containedctx // of streams, which outlive their calls
	// Cluster is part of event ids, so that ids of another cluster are rejected. Required.
	Cluster string
	// Carries describes the contents of the log's events, for the validation of filters.
	Carries match.Carries
	// Accounts enforce the limits of identities; requests must then have passed an
	// access.Authenticator. nil allows everything to every client.
	Accounts *access.Accounts
	// Heartbeat is the interval of comments on an idle connection. Defaults to 15 s.
	Heartbeat time.Duration
	// StallTimeout is how long a write may block before the client is disconnected, or up to a
	// sixteenth less: writes shortly after another one share its deadline. Defaults to 30 s.
	StallTimeout time.Duration
	// MaxClients bounds the connections. Defaults to 1000.
	MaxClients int
	// Gzip compresses the streams of clients that accept gzip, each event alone.
	Gzip bool
	// Audit gets every session. Optional.
	Audit Audit
	// Logger defaults to one that discards.
	Logger *slog.Logger
	// Registerer registers the metrics. Optional.
	Registerer prometheus.Registerer
}

// Events serves GET /v1/events as server-sent events (WHATWG HTML, section 9.2): one session of the
// node for each connection.
type Events struct {
	cfg        EventsConfig
	node       *streamer.Node
	logger     *slog.Logger
	metrics    metrics
	clients    atomic.Int64
	compressor *compressor
	detached   streams
}

// NewEvents returns the handler.
func NewEvents(cfg EventsConfig, node *streamer.Node) *Events {
	cfg.Base = cmp.Or(cfg.Base, context.Background())
	cfg.Heartbeat = cmp.Or(cfg.Heartbeat, 15*time.Second)
	cfg.StallTimeout = cmp.Or(cfg.StallTimeout, 30*time.Second)
	cfg.MaxClients = cmp.Or(cfg.MaxClients, 1000)
	return &Events{
		cfg: cfg, node: node, logger: cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler)), metrics: newMetrics(cfg.Registerer),
		compressor: newCompressor(),
	}
}

// retryAfter returns a random reconnect delay, so that the clients of a node do not reconnect at
// once.
func retryAfter() time.Duration { return 500*time.Millisecond + rand.N(time.Second) }

// ServeHTTP implements http.Handler. Parameters: db, coll, op (repeated or separated by commas),
// filter (CEL), subscriber (a durable name with a checkpoint), start (now, earliest, an RFC 3339
// time, or snapshot: now, with the documents that exist; defaults to now), on_loss (notify, or
// snapshot: the documents come again after a loss; defaults to notify), leaves (true: an event left
// comes when a document stops matching), fresh (true: the client has no document yet, so that left
// comes only for those that it is sent), end (an RFC 3339 time: changes before it come, then an
// event end, and the response ends; an event begin says if the log begins later than start).
// Snapshots need a subscriber; an end goes with neither. The header or parameter Last-Event-ID
// resumes after the event with that id.
//
//nolint:contextcheck // the stream's context may outlive the request
func (h *Events) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, life := h.lifetime(r)
	c, err := h.open(ctx, w, r)
	if err == nil && c != nil && h.detach(ctx, life, c, w, r) {
		return
	}
	defer life.cancel()
	defer life.untie()
	switch {
	case err != nil:
		holdBack(r.Context(), h.cfg.Accounts, err)
		err = input.Reason(ctx, input.Reason(r.Context(), err))
		h.refuse(w, r, err)
		h.metrics.ended.count(reasonOf(r.Context(), err))
	case c == nil:
		w.WriteHeader(http.StatusNoContent) // which keeps an EventSource from connecting again
		h.metrics.ended.count("ended")
	default:
		c.serve(ctx)
	}
}

// open opens the session of a request, and prepares the response. It returns nil if the request is
// for nothing more. The caller must close the client.
func (h *Events) open(ctx context.Context, w http.ResponseWriter, r *http.Request) (c *client, err error) {
	if err := r.Context().Err(); err != nil { // that of the stream ends a moment later
		return nil, err
	}
	filter, request, sub, until, err := h.parse(r)
	if err != nil {
		return nil, err
	}
	if !until.IsZero() && request.Known && request.At.Ref.Time().Compare(until) >= 0 {
		return nil, nil //nolint:nilnil // the client has all
	}
	account, err := h.admit(r, filter)
	if err != nil {
		return nil, err
	}
	clients := h.clients.Add(1)
	defer func() {
		if err != nil {
			h.clients.Add(-1)
			account.Close()
		}
	}()
	if clients > int64(h.cfg.MaxClients) {
		return nil, fault.Newf(fault.SessionTooMany, "%d clients are connected", h.cfg.MaxClients)
	}
	request.Account = account.Key()
	program, missing, err := h.node.Hub().Compile(ctx, request.Account, filter, nil)
	if err == nil {
		err = account.Keep(program, len(r.URL.RawQuery))
	}
	if err != nil {
		return nil, err
	}
	subscriber, err := h.node.Connect(ctx, request, []delivery.Subscription{
		{ID: "events", Program: program, Form: delivery.Form{Format: delivery.JSON}, Recover: sub.Recover, Leaves: sub.Leaves, Fresh: sub.Fresh, Missing: missing},
	})
	if err != nil {
		return nil, err
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store, no-transform") // a proxy that compresses would hold events back
	w.Header().Set("X-Accel-Buffering", "no")
	c = &client{events: h, account: account, subscriber: subscriber, out: served{w, http.NewResponseController(w)}, at: request.At.Ref, until: until}
	if request.Known {
		last, _ := input.Resumes(r, r.URL.Query()) // parse has checked it
		c.id = []byte(last)
	}
	if h.cfg.Gzip {
		w.Header().Add("Vary", "Accept-Encoding")
		c.compress(r.Header, w.Header())
	}
	if asked := request.Start == streamer.StartTime && !request.Known; asked && !until.IsZero() {
		if at := subscriber.Session().State().At.Time; at.Compare(change.Timestamp{T: uint32(request.Time.Unix()), I: 1}) > 0 {
			c.begins = at
		}
	}
	c.over = h.cfg.Audit.begin(access.HTTP, r.RemoteAddr, access.From(ctx), request.Subscriber)
	return c, nil
}

// admit checks that the identity may use the filter, and counts the event stream and its
// subscription. The caller must close the account.
func (h *Events) admit(r *http.Request, f match.Filter) (account *access.Account, err error) {
	if h.cfg.Accounts != nil {
		if err := access.From(r.Context()).Permit(f.DB, f.Coll); err != nil {
			return nil, err
		}
	}
	if account, err = openAccount(h.cfg.Accounts, r, access.Events); err != nil {
		return nil, err
	}
	if err := account.Subscribe(1); err != nil {
		account.Close()
		return nil, err
	}
	return account, nil
}

// openAccount counts a request as a use by its identity. Without accounts nothing is limited. The
// caller must close the account.
func openAccount(accounts *access.Accounts, r *http.Request, use access.Use) (*access.Account, error) {
	if accounts == nil {
		return access.NewAccounts(access.Defaults{}).Open(access.Anonymous(), use, r.RemoteAddr)
	}
	return accounts.Open(access.From(r.Context()), use, r.RemoteAddr)
}

// parse reads the request. sub has the options of a subscription besides its filter; until is the
// end, zero if there is none.
func (h *Events) parse(r *http.Request) (f match.Filter, request streamer.Request, sub delivery.Subscription, until change.Timestamp, err error) {
	f.Carries = h.cfg.Carries
	request = streamer.Request{Process: strconv.FormatUint(rand.Uint64(), 36), Started: time.Now(), Start: streamer.StartNow}
	if i := access.From(r.Context()); i != nil {
		request.Readable = i.Readable
	}
	bad := func(format string, args ...any) (match.Filter, streamer.Request, delivery.Subscription, change.Timestamp, error) {
		return f, request, sub, until, fault.Newf(fault.SessionBadRequest, format, args...)
	}
	if r.Method != http.MethodGet {
		return bad("method %s: use GET", r.Method)
	}
	query, err := input.Query(r, "db", "coll", "op", "filter", "subscriber", "start", "end", "on_loss", "leaves", "fresh", input.LastEventID)
	if err != nil {
		return f, request, sub, until, err
	}
	last, err := input.Resumes(r, query)
	if err != nil {
		return f, request, sub, until, err
	}
	for name, values := range query {
		if err := readParameter(name, values, &f, &request, &sub, &until); err != nil {
			return bad("parameter %s: %w", name, err)
		}
	}
	reads := sub.Recover || request.Start == streamer.StartSnapshot
	if reads && request.Subscriber == "" {
		return bad("a snapshot needs the parameter subscriber: what is left of it is kept under the name")
	}
	if !until.IsZero() && (reads || request.Subscriber != "") {
		return bad("parameter end: a stretch of the log has no subscriber and no snapshot")
	}
	identify(&request, access.From(r.Context()))
	if last == "" {
		return f, request, sub, until, nil
	}
	sub.Fresh = false // an EventSource that connects again repeats its parameters
	if err := h.resume(last, &request); err != nil {
		return f, request, sub, until, fault.Newf(fault.SessionBadPosition, "Last-Event-ID: %w", err)
	}
	return f, request, sub, until, nil
}

// readParameter reads one parameter of a request for events.
func readParameter(name string, values []string, f *match.Filter, request *streamer.Request, sub *delivery.Subscription, until *change.Timestamp) (err error) {
	value := values[0]
	switch name {
	case "db":
		f.DB = value
	case "coll":
		f.Coll = value
	case "op":
		f.Ops, err = match.ParseOps(strings.Split(strings.Join(values, ","), ","))
		return err
	case "filter":
		f.Source = value
	case "subscriber":
		request.Subscriber = value
	case "start":
		return readStart(value, request)
	case "end":
		end, err := parseTime(value)
		if err != nil {
			return errors.New("a time like 2026-01-02T15:04:05Z")
		}
		until.T = uint32(end.Unix())
	case "on_loss":
		if sub.Recover = value == "snapshot"; !sub.Recover && value != "notify" {
			return errors.New("notify or snapshot")
		}
	case "leaves":
		if sub.Leaves = value == "true"; !sub.Leaves && value != "false" {
			return errors.New("true or false")
		}
	case "fresh":
		if sub.Fresh = value == "true"; !sub.Fresh && value != "false" {
			return errors.New("true or false")
		}
	}
	return nil
}

// readStart reads where a subscriber without a position begins.
func readStart(value string, request *streamer.Request) (err error) {
	switch value {
	case "now":
	case "earliest":
		request.Start = streamer.StartEarliest
	case "snapshot":
		request.Start = streamer.StartSnapshot
	default:
		request.Start = streamer.StartTime
		if request.Time, err = parseTime(value); err != nil {
			return errors.New("now, earliest, snapshot, or a time like 2026-01-02T15:04:05Z")
		}
	}
	return nil
}

// resume has a request begin after the last event that its client received.
func (h *Events) resume(last string, request *streamer.Request) error {
	text, rest, _ := strings.Cut(last, idMark)
	generation, rest, _ := strings.Cut(rest, idMark)
	stamp, progress, _ := strings.Cut(rest, idMark)
	ref, err := change.ParseRefText(text, h.cfg.Cluster)
	if err == nil && generation != "" {
		request.Generation, err = strconv.ParseUint(generation, 10, 64)
	}
	if err == nil && stamp != "" {
		var of uint64
		of, err = strconv.ParseUint(stamp, 16, 32)
		request.Stamp = uint32(of)
	}
	if err == nil && progress != "" {
		if request.Snapshots, err = delivery.ParseProgress(progress); err == nil && delivery.Stamp(request.Snapshots) != request.Stamp {
			err = errors.New("a damaged position")
		}
	}
	if err != nil {
		return err
	}
	request.Known = true
	request.Stamped = true
	request.At = delivery.Place{Ref: ref}
	return nil
}

// parseTime reads an RFC 3339 time that a cluster time can be.
func parseTime(text string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339, text)
	if err == nil && (t.Unix() <= 0 || t.Unix() > 1<<32-1) {
		err = errors.New("not a cluster time")
	}
	return t, err
}

// idMark separates the position, the checkpoint generation, the stamp of snapshots and their
// progress in an id. They are omitted where there is nothing to say.
const idMark = "."

// refuse responds with the fault as JSON, or in a form after which an EventSource reconnects if it
// should retry.
func (h *Events) refuse(w http.ResponseWriter, r *http.Request, err error) {
	if !fault.IsPublic(err) {
		h.logger.Warn("event stream refused", "error", err)
	}
	status := http.StatusInternalServerError
	switch fault.Of(err) {
	case fault.AccessUnauthenticated:
		status = http.StatusUnauthorized
	case fault.AccessForbidden:
		status = http.StatusForbidden
	case fault.AccessLimit, fault.SessionFilterCostly:
		status = http.StatusTooManyRequests
	case fault.SessionReplaced, fault.LogAhead:
		status = http.StatusConflict
	case fault.SessionTooMany, fault.NodeStopping, fault.MongoUnreachable, fault.CheckpointUnreadable, fault.SessionRenewed:
		status = http.StatusServiceUnavailable
	default:
		if code := fault.Of(err); code != "" {
			status = http.StatusBadRequest
		}
	}
	switch status {
	case http.StatusServiceUnavailable:
		access.RefuseLater(w, r, status, retryAfter(), err)
		return
	case http.StatusTooManyRequests:
		access.RefuseLater(w, r, status, access.LimitAfter(), err)
		return
	}
	access.Refuse(w, status, err)
}

// A description is a fault as clients see it.
type description struct {
	Code    fault.Code `json:"code"`
	Message string     `json:"message"`
	Remedy  string     `json:"remedy"`
}

func describe(err error) description {
	code, text, remedy := fault.Public(err)
	return description{Code: code, Message: text, Remedy: remedy}
}
