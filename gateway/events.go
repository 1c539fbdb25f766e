package gateway

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway/access"
	"github.com/mongostream/streamer/lane"
	"github.com/mongostream/streamer/match"
)

// EventsConfig configures Events.
type EventsConfig struct {
	// Cluster and Partitions bind the ids. Required.
	Cluster    string
	Partitions int
	// Encode appends an event to b as a JSON object without its token. Required.
	Encode func(b []byte, e *change.Event) ([]byte, error)
	// Now returns the log's current time, where a client without an id begins. Required.
	Now func(context.Context) (change.Timestamp, error)
	// Carries says what the log's events have, for filters.
	Carries match.Carries
	// Accounts are what the clients of each identity use together, and bound them by it; requests must then have passed an
	// access.Authenticator. nil lets everybody have everything.
	Accounts *access.Accounts
	// Heartbeat is how long a quiet connection stays silent. Defaults to 15 s.
	Heartbeat time.Duration
	// StallTimeout is how long a client may take nothing. Defaults to 30 s.
	StallTimeout time.Duration
	// MaxClients bounds the connections. Defaults to 1000.
	MaxClients int
	// Logger defaults to one that discards.
	Logger *slog.Logger
	// Registerer takes the metrics; nil registers them nowhere.
	Registerer prometheus.Registerer
}

// Events serves the node's log as server-sent events (WHATWG HTML, section 9.2).
type Events struct {
	cfg     EventsConfig
	log     *lane.Log
	issuer  issuer
	logger  *slog.Logger
	metrics metrics
	clients atomic.Int64
}

// NewEvents makes the handler.
func NewEvents(cfg EventsConfig, log *lane.Log) *Events {
	cfg.Heartbeat = cmp.Or(cfg.Heartbeat, 15*time.Second)
	cfg.StallTimeout = cmp.Or(cfg.StallTimeout, 30*time.Second)
	cfg.MaxClients = cmp.Or(cfg.MaxClients, 1000)
	return &Events{
		cfg: cfg, log: log, issuer: newIssuer(cfg.Cluster, cfg.Partitions),
		logger: cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler)), metrics: newMetrics(cfg.Registerer),
	}
}

// ServeHTTP implements http.Handler. Parameters: db, coll, op (several, or separated by commas), filter (CEL). The header Last-Event-ID, or the
// parameter of that name, resumes behind the event that carried the id.
func (h *Events) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if stopping(w, r) {
		return
	}
	filter, id, err := h.parse(r)
	if err != nil {
		refuse(w, http.StatusBadRequest, err)
		return
	}
	account, status, err := h.admit(r.Context(), filter)
	if err != nil {
		refuse(w, status, err)
		return
	}
	defer account.Close()
	program, err := match.Compile(filter)
	if err != nil {
		refuse(w, http.StatusBadRequest, err)
		return
	}
	if h.clients.Add(1) > int64(h.cfg.MaxClients) {
		h.clients.Add(-1)
		refuse(w, http.StatusServiceUnavailable, fault.Newf(fault.SessionTooMany, "%d clients are connected", h.cfg.MaxClients))
		return
	}
	defer h.clients.Add(-1)
	c := &client{
		events: h, account: account, program: program, out: http.NewResponseController(w), w: w,
		encoder: NewEncoder(h.cfg.Cluster, h.cfg.Partitions, h.cfg.Encode),
	}
	now, err := h.cfg.Now(r.Context())
	switch {
	case err != nil && stopping(w, r):
		return
	case err != nil:
		refuse(w, http.StatusServiceUnavailable, fault.New(fault.MongoUnreachable, err))
		return
	case id == nil:
		from := change.At(now.Next())
		c.cursor = h.log.All(lane.Start{Position: from})
		// A client that is cut off before its first event comes back to where it began.
		c.buffer = append(c.encoder.ID(append(c.buffer, "id: "...), from), '\n')
	case id.head.Time.Time().Sub(now.Time()) > aheadSlack:
		refuse(w, http.StatusConflict, fault.Newf(fault.LogAhead, "the id is of %s, MongoDB is at %s", id.head.Time, now))
		return
	default:
		c.resumption = resume(*id)
		c.cursor = h.log.All(lane.Start{Position: c.resumption.start()})
	}
	defer func() { c.cursor.Close() }()
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no")
	reason := c.run(r.Context())
	h.metrics.ended.WithLabelValues(reason).Inc()
}

// admit finds out whether who asks may have what the filter is about, and counts it. The account must be closed where there is no error.
func (h *Events) admit(ctx context.Context, f match.Filter) (account *access.Account, status int, err error) {
	if h.cfg.Accounts == nil {
		return access.NewAccounts().Open(access.Anonymous()), 0, nil
	}
	i := access.From(ctx)
	if err := i.Permit(f.DB, f.Coll); err != nil {
		return nil, http.StatusForbidden, err
	}
	account = h.cfg.Accounts.Open(i)
	if err := account.Subscribe(1); err != nil {
		account.Close()
		return nil, http.StatusTooManyRequests, err
	}
	return account, 0, nil
}

// stopping refuses a client that comes while the node stops, or loses its right to be there, which ends the contexts of its requests. One
// that has left gets nothing of it.
func stopping(w http.ResponseWriter, r *http.Request) bool {
	if r.Context().Err() == nil {
		return false
	}
	cause := context.Cause(r.Context())
	switch fault.Of(cause) {
	case fault.AccessUnauthenticated:
		refuse(w, http.StatusUnauthorized, cause)
	case "":
		refuse(w, http.StatusServiceUnavailable, fault.Newf(fault.NodeStopping, "no more subscribers are taken"))
	default:
		refuse(w, http.StatusServiceUnavailable, cause)
	}
	return true
}

// parse reads the request.
func (h *Events) parse(r *http.Request) (s match.Filter, id *eventID, err error) {
	s.Carries = h.cfg.Carries
	if r.Method != http.MethodGet {
		return s, nil, fault.Newf(fault.SessionBadRequest, "method %s: use GET", r.Method)
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return s, nil, fault.Newf(fault.SessionBadRequest, "read the query: %w", err)
	}
	last := r.Header.Get("Last-Event-ID")
	for name, values := range query {
		switch name {
		case "db":
			s.DB = values[0]
		case "coll":
			s.Coll = values[0]
		case "op":
			if s.Ops, err = match.ParseOps(strings.Split(strings.Join(values, ","), ",")); err != nil {
				return s, nil, fault.Newf(fault.SessionBadRequest, "parameter op: %w", err)
			}
		case "filter":
			s.Source = values[0]
		case "Last-Event-ID":
			last = cmp.Or(last, values[0])
		default:
			return s, nil, fault.Newf(fault.SessionBadRequest, "unknown parameter %q: use db, coll, op, filter", name)
		}
		if name != "op" && len(values) > 1 {
			return s, nil, fault.Newf(fault.SessionBadRequest, "parameter %s stands twice", name)
		}
	}
	if last == "" {
		return s, nil, nil
	}
	read, err := h.issuer.read(last)
	if err != nil {
		return s, nil, fault.Newf(fault.SessionBadPosition, "Last-Event-ID: %w", err)
	}
	return s, &read, nil
}

// refuse answers with the fault as JSON.
func refuse(w http.ResponseWriter, status int, err error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(describe(err)) // the client may have gone
}

// A description is a fault as subscribers see it.
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

// aheadSlack is how far an id may be ahead of the log's current time, which different servers of a sharded cluster tell a little
// differently.
const aheadSlack = 15 * time.Second
