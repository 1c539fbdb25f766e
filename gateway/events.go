package gateway

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"mongostream/change"
	"mongostream/delivery"
	"mongostream/fault"
	"mongostream/lane"
	"mongostream/match"
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

// ServeHTTP implements http.Handler. Parameters: db, coll, op (several, or separated by commas). The header Last-Event-ID, or the
// parameter of that name, resumes behind the event that carried the id.
func (h *Events) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if stopping(w, r) {
		return
	}
	selector, id, err := h.parse(r)
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
	h.metrics.clients.Inc()
	defer h.metrics.clients.Dec()
	c := &client{
		events: h, selector: selector, out: http.NewResponseController(w), w: w,
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

// stopping refuses a client that comes while the node stops, which has ended the contexts of all requests. One that has left
// gets nothing of it.
func stopping(w http.ResponseWriter, r *http.Request) bool {
	if r.Context().Err() == nil {
		return false
	}
	refuse(w, http.StatusServiceUnavailable, fault.Newf(fault.NodeStopping, "no more subscribers are taken"))
	return true
}

// parse reads the request.
func (h *Events) parse(r *http.Request) (s match.Selector, id *eventID, err error) {
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
		case "Last-Event-ID":
			last = cmp.Or(last, values[0])
		default:
			return s, nil, fault.Newf(fault.SessionBadRequest, "unknown parameter %q: use db, coll, op", name)
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

// maxLosses is how often in a row a client is told of a loss before it is let go: a log that is gone again and again before anything
// was read from it is of no use.
const maxLosses = 3

// maxWrite is how much is written to a client at a time; while it is being written the client holds nothing else.
const maxWrite = 256 << 10

// A client is one connection.
type client struct {
	events     *Events
	selector   match.Selector
	cursor     *lane.Cursor
	resumption *resumption // nil once everything that comes is new
	losses     int         // that the client was told of since its last event
	w          http.ResponseWriter
	out        *http.ResponseController
	encoder    *Encoder
	buffer     []byte
}

// run writes events until the client leaves, stalls, or the log or the node ends, and says which.
func (c *client) run(ctx context.Context) (reason string) {
	c.buffer = append(c.buffer, ": connected\n\n"...)
	for {
		if err := c.flush(); err != nil {
			if errors.Is(err, context.DeadlineExceeded) || isTimeout(err) {
				c.events.logger.Warn("subscriber cut off", "code", fault.SessionStalled, "stall_timeout", c.events.cfg.StallTimeout)
				return "stalled"
			}
			return "left"
		}
		wait, cancel := context.WithTimeout(ctx, c.events.cfg.Heartbeat)
		batch, err := c.cursor.Next(wait)
		cancel()
		switch {
		case err == nil:
			if err := c.write(batch); err != nil {
				c.events.logger.Error("event cannot be written as JSON", "error", err)
				return "failed"
			}
		case ctx.Err() != nil:
			return "left"
		case errors.Is(err, context.DeadlineExceeded):
			if err := c.heartbeat(); err != nil {
				c.events.logger.Error("event cannot be written as JSON", "error", err)
				return "failed"
			}
		case errors.Is(err, lane.ErrPositionLost):
			if err := c.resync(ctx, err); err != nil {
				c.fail(err)
				return "lost"
			}
		default:
			c.fail(err)
			return "stopped"
		}
	}
}

// heartbeat writes a comment and the id of the progress, which moves the client's last id without an event.
func (c *client) heartbeat() error {
	position := c.cursor.Position()
	if r := c.resumption; r != nil && r.passed(position) {
		for i := range r.held {
			if err := c.event(&r.held[i]); err != nil {
				return err
			}
		}
		c.resumption = nil
	}
	if c.resumption == nil {
		c.buffer = append(c.buffer, "id: "...)
		c.buffer = c.encoder.ID(c.buffer, position)
		c.buffer = append(c.buffer, '\n')
	}
	c.buffer = append(c.buffer, ": heartbeat\n\n"...)
	return nil
}

// write puts what the client wants of a batch into its buffer. What does not fit is given back and comes again.
func (c *client) write(batch *lane.Batch) error {
	for i := range batch.Len() {
		if len(c.buffer) >= maxWrite {
			c.cursor.Return(batch, i)
			return nil
		}
		e := batch.Event(i)
		if c.resumption == nil {
			if err := c.event(e); err != nil {
				return err
			}
			continue
		}
		fresh, done := c.resumption.pass(e)
		for j := range fresh {
			if err := c.event(&fresh[j]); err != nil {
				return err
			}
		}
		if done {
			c.resumption = nil
		}
	}
	return nil
}

// event writes one event, if the client wants it.
func (c *client) event(e *change.Event) (err error) {
	if e.Op() == change.OpSkipped {
		c.tell(&delivery.Notice{
			Kind: delivery.Resync, Reason: "poison", Found: time.Now(),
			Advice: "One change was too large for MongoDB to deliver: read the large documents again.",
		}, e.Position(), e.Position())
		return nil
	}
	if !c.selector.Selects(e) {
		return nil
	}
	b := append(c.buffer, "id: "...)
	b = c.encoder.ID(b, e.Position())
	b = append(b, "\ndata: "...)
	if b, err = c.encoder.Event(b, e); err != nil {
		return err
	}
	c.buffer = append(b, "\n\n"...)
	c.events.metrics.events.Inc()
	c.losses = 0
	return nil
}

// resync tells the client what the log no longer holds of what it wants, and goes on where the log begins.
func (c *client) resync(ctx context.Context, err error) error {
	if c.losses++; c.losses > maxLosses {
		return fault.New(fault.LogHistoryLost, err)
	}
	from := c.cursor.Position()
	lost, ok := errors.AsType[*lane.LostError](err)
	var to change.Timestamp
	if ok && lost.First.Compare(from.Time) > 0 {
		to = lost.First
	} else {
		now, err := c.events.cfg.Now(ctx)
		if err != nil {
			return fault.New(fault.MongoUnreachable, err)
		}
		to = now
	}
	c.tell(&delivery.Notice{
		Kind: delivery.Resync, Reason: "history_lost", Found: time.Now(),
		Advice: "Changes between lost_from and lost_to may have been missed: read the documents again.",
	}, from, change.At(to))
	c.cursor.Close()
	c.cursor, c.resumption = c.events.log.All(lane.Start{Position: change.At(to)}), nil
	return nil
}

// tell writes a notice in its place between the events.
func (c *client) tell(n *delivery.Notice, from, to change.Position) {
	c.buffer = append(c.buffer, "id: "...)
	c.buffer = c.encoder.ID(c.buffer, to)
	c.buffer = append(c.buffer, "\nevent: "...)
	c.buffer = append(c.buffer, n.Kind...)
	c.buffer = append(c.buffer, "\ndata: "...)
	c.buffer = c.encoder.Notice(c.buffer, n, nil, from, to)
	c.buffer = append(c.buffer, "\n\n"...)
}

// fail writes why the stream ends.
func (c *client) fail(err error) {
	text, _ := json.Marshal(describe(err)) //nolint:errchkjson // strings only
	c.buffer = fmt.Appendf(c.buffer, "event: error\ndata: %s\n\n", text)
	_ = c.flush() // it ends either way
}

// flush writes the buffer to the client, within the stall timeout.
func (c *client) flush() error {
	if len(c.buffer) == 0 {
		return nil
	}
	if err := c.out.SetWriteDeadline(time.Now().Add(c.events.cfg.StallTimeout)); err != nil {
		return fmt.Errorf("set a deadline: %w", err)
	}
	if _, err := c.w.Write(c.buffer); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	c.buffer = c.buffer[:0]
	if err := c.out.Flush(); err != nil {
		return fmt.Errorf("flush: %w", err)
	}
	return nil
}

func isTimeout(err error) bool {
	timeout, ok := errors.AsType[interface {
		error
		Timeout() bool
	}](err)
	return ok && timeout.Timeout()
}
