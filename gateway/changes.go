package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/change/extjson"
	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway/access"
	"github.com/mongostream/streamer/internal/input"
	"github.com/mongostream/streamer/match"
	"github.com/mongostream/streamer/streamer"
)

// Bounds of an answer of Changes. What does not fit is in the answer to the next request.
const (
	usualChanges = 100
	maxChanges   = 1000
	changeBytes  = 512 << 10
	changeTime   = 5 * time.Second
	// changeLook is how often Changes looks whether the end is reached while nothing comes.
	changeLook = 100 * time.Millisecond
)

// Changes serves GET /v1/changes: the changes of one document that the log and the retained log
// still have, as JSON. Parameters: db, coll, id (Extended JSON, or a plain text), start and end
// (RFC 3339 times; default to the beginning and to now), limit (100) and from, the next of the
// answer before. It reads with a session like that of an event stream: it needs the same rights and
// counts the same.
type Changes struct {
	events  *Events
	parseID func(text string) (change.Value, error)
	longest time.Duration // how long a request reads
}

// NewChanges returns the handler. Its clients count with those of the events. parseID reads an _id.
func NewChanges(events *Events, parseID func(text string) (change.Value, error)) *Changes {
	return &Changes{events: events, parseID: parseID, longest: changeTime}
}

// A changesBody is the answer.
type changesBody struct {
	DB   string `json:"db"`
	Coll string `json:"coll"`
	// ID is the requested _id, in canonical Extended JSON.
	ID json.RawMessage `json:"_id"`
	// Begins is set if the log begins later than the request's start.
	Begins *time.Time `json:"begins,omitempty"`
	// ReadTo is how far the log has been read.
	ReadTo  time.Time        `json:"read_to"`
	Changes []documentChange `json:"changes"`
	// Losses are stretches in which changes may be missing.
	Losses []json.RawMessage `json:"losses"`
	// Next is from of the next request; it is missing at the end.
	Next string `json:"next,omitempty"`
}

// A documentChange is a change of the document, or of its whole collection.
type documentChange struct {
	// Position is an id of /v1/events: reading continues after the change.
	Position  string    `json:"position"`
	Operation string    `json:"operation"`
	Time      time.Time `json:"time"`
	// Changed are the names of the fields that an update has set or removed, sorted; empty for
	// other operations.
	Changed []string `json:"changed"`
	// Event is the whole change, as in /v1/events.
	Event json.RawMessage `json:"event"`
}

// ServeHTTP implements http.Handler.
func (c *Changes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	err := c.serve(r, func(body *changesBody) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		_ = json.NewEncoder(w).Encode(body) // the client may have gone
	})
	if err != nil {
		holdBack(r.Context(), c.events.cfg.Accounts, err)
		c.events.refuse(w, r, input.Reason(r.Context(), err))
	}
}

// A changesQuery is a parsed request.
type changesQuery struct {
	filter  match.Filter
	request streamer.Request
	until   change.Timestamp // zero: now
	limit   int
	body    *changesBody
}

func (c *Changes) parse(r *http.Request) (q changesQuery, err error) {
	values, err := input.Query(r, "db", "coll", "id", "start", "end", "limit", "from")
	if err != nil {
		return q, err
	}
	q.limit = usualChanges
	q.filter = match.Filter{DB: values.Get("db"), Coll: values.Get("coll"), Carries: c.events.cfg.Carries}
	if q.filter.DB == "" || q.filter.Coll == "" || !values.Has("id") {
		return q, fault.Newf(fault.SessionBadRequest, "parameters db, coll and id: required")
	}
	id, err := c.parseID(values.Get("id"))
	if err != nil {
		return q, fault.Newf(fault.SessionBadRequest, "parameter id: %w", err)
	}
	q.filter.Document = string(change.AppendCanonical(nil, id))
	text, err := extjson.Options{Canonical: true}.AppendValue(nil, id)
	if err != nil {
		return q, fault.Newf(fault.SessionBadRequest, "parameter id: %w", err)
	}
	q.body = &changesBody{DB: q.filter.DB, Coll: q.filter.Coll, ID: text, Changes: []documentChange{}, Losses: []json.RawMessage{}}
	q.request = streamer.Request{Process: strconv.FormatUint(rand.Uint64(), 36), Started: time.Now(), Start: streamer.StartEarliest}
	identity := access.From(r.Context())
	if identity != nil {
		q.request.Readable = identity.Readable
	}
	identify(&q.request, identity)
	if start := values.Get("start"); start != "" {
		q.request.Start = streamer.StartTime
		if q.request.Time, err = parseTime(start); err != nil {
			return q, fault.Newf(fault.SessionBadRequest, "parameter start: a time like 2026-01-02T15:04:05Z")
		}
	}
	if end := values.Get("end"); end != "" {
		at, err := parseTime(end)
		if err != nil {
			return q, fault.Newf(fault.SessionBadRequest, "parameter end: a time like 2026-01-02T15:04:05Z")
		}
		q.until.T = uint32(at.Unix())
	}
	if limit := values.Get("limit"); limit != "" {
		if q.limit, err = strconv.Atoi(limit); err != nil || q.limit < 1 || q.limit > maxChanges {
			return q, fault.Newf(fault.SessionBadRequest, "parameter limit: 1 to %d", maxChanges)
		}
	}
	if from := values.Get("from"); from != "" {
		at, err := change.ParseRefText(from, c.events.cfg.Cluster)
		if err != nil {
			return q, fault.Newf(fault.SessionBadPosition, "parameter from: %w", err)
		}
		q.request.Known = true
		q.request.At = delivery.Place{Ref: at}
	}
	return q, nil
}

// serve answers a request. The client counts until its answer is written.
func (c *Changes) serve(r *http.Request, write func(*changesBody)) error {
	h := c.events
	if err := r.Context().Err(); err != nil {
		return err
	}
	q, err := c.parse(r)
	if err != nil {
		return err
	}
	account, err := h.admit(r, q.filter)
	if err != nil {
		return err
	}
	defer account.Close()
	defer h.clients.Add(-1)
	if h.clients.Add(1) > int64(h.cfg.MaxClients) {
		return fault.Newf(fault.SessionTooMany, "%d clients are connected", h.cfg.MaxClients)
	}
	body, err := c.read(r, q, account)
	if err != nil {
		return err
	}
	write(body)
	return nil
}

// read reads the log for a request.
func (c *Changes) read(r *http.Request, q changesQuery, account *access.Account) (*changesBody, error) {
	h := c.events
	ctx := r.Context()
	q.request.Account = account.Key()
	program, missing, err := h.node.Hub().Compile(ctx, q.request.Account, q.filter, nil)
	if err == nil {
		err = account.Keep(program, len(r.URL.RawQuery))
	}
	if err != nil {
		return nil, err
	}
	var now change.Timestamp
	if q.until.IsZero() {
		if now, err = h.node.Now(ctx); err != nil {
			return nil, err
		}
	}
	subscriber, err := h.node.Connect(ctx, q.request, []delivery.Subscription{
		{ID: "changes", Program: program, Form: delivery.Form{Format: delivery.JSON}, Missing: missing},
	})
	if err != nil {
		return nil, err
	}
	defer subscriber.Close(ctx, nil)
	over := h.cfg.Audit.begin(access.HTTP, r.RemoteAddr, access.From(ctx), "")
	defer func() { over("ended") }()
	reading := &changesReading{changesQuery: q, handler: c, account: account, subscriber: subscriber, now: now, last: q.request.At.Ref}
	if err := reading.run(ctx); err != nil {
		return nil, err
	}
	return q.body, nil
}

// A changesReading collects an answer.
type changesReading struct {
	changesQuery

	handler    *Changes
	account    *access.Account
	subscriber *streamer.Exclusive
	now        change.Timestamp  // the end, without another one
	at         change.Position   // everything up to here is in the answer
	last       change.Ref        // of the last change or loss in it, or in the answer before, if that is later
	held       []json.RawMessage // losses without a length, for the answer that has the change after them
	heldAt     change.Ref        // the place of the last one
	bytes      int
	full       bool
}

// run reads until the end, or until the answer is full or has taken long enough.
func (c *changesReading) run(ctx context.Context) error {
	session := c.subscriber.Session()
	began := time.Now()
	look := time.NewTicker(changeLook)
	defer look.Stop()
	first := session.State().At.Time
	if c.request.Start == streamer.StartTime && !c.request.Known && first.Compare(change.Timestamp{T: uint32(c.request.Time.Unix()), I: 1}) > 0 {
		begins := first.Time()
		c.body.Begins = &begins
	}
	for ended := false; !ended; {
		batches, _, err := session.ReceiveUntil(ctx, look.C)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			return err
		case len(batches) == 0:
			c.at = change.Later(c.at, session.State().At)
		}
		written := len(c.body.Changes)
		bytes := c.bytes
		for _, b := range batches {
			if err := c.batch(b); err != nil {
				return err
			}
			if c.full {
				break
			}
			c.at = b.To.Clone()
			if _, err := session.Ack(b.Seq); err != nil {
				return err
			}
		}
		if written = len(c.body.Changes) - written; written > 0 {
			if err := c.account.Wait(ctx, written, c.bytes-bytes); err != nil {
				return err
			}
		}
		ended = c.full || c.reached()
		if !ended && time.Since(began) >= c.handler.longest {
			c.pause()
		}
		ended = ended || c.full
	}
	if !c.full {
		c.release()
	}
	c.body.ReadTo = c.at.Time.Time()
	if c.full {
		c.body.ReadTo = c.last.Time().Time()
		c.body.Next = string(c.last.AppendText(nil, c.handler.events.cfg.Cluster))
	}
	return nil
}

// reached reports whether the answer has everything before the end.
func (c *changesReading) reached() bool {
	if c.until.IsZero() {
		return c.handler.events.node.Reached(c.now, c.at)
	}
	return c.beyond(c.at.Time)
}

// batch adds a batch to the answer, as far as there is room.
func (c *changesReading) batch(b *delivery.Batch) error {
	if b.Loss != nil {
		c.loss(b.Loss, b.To.Ref())
		return nil
	}
	for i := range b.Events {
		e := &b.Events[i]
		payload := b.Payload(i)
		if c.beyond(e.Ref.Time()) {
			return nil
		}
		if n := len(c.body.Changes); n == c.limit || n > 0 && c.bytes+len(payload) > changeBytes {
			c.full = true
			return nil
		}
		position := string(e.Ref.AppendText(nil, c.handler.events.cfg.Cluster))
		text := delivery.AppendEvent(nil, position, e, payload)
		told, err := describeChange(text)
		if err != nil {
			return fault.New(fault.SessionEncoding, err)
		}
		told.Position = position
		told.Time = e.Ref.Time().Time()
		told.Event = text
		c.release()
		c.body.Changes = append(c.body.Changes, told)
		c.bytes += len(text)
		c.last = e.Ref
	}
	return nil
}

// loss adds a loss to the answer, unless the answer before has it. One without a length, as that of
// a rename, is made again whenever the change after it is read: it is held until that is known to
// be in this answer.
func (c *changesReading) loss(loss *delivery.Loss, to change.Ref) {
	short := loss.From.Compare(loss.To) == 0
	start := c.request.At.Ref
	known := c.request.Known && (to.Compare(start) < 0 || to == start && !short)
	if known || c.beyond(loss.From.Time) {
		return
	}
	text := delivery.AppendLoss(nil, "", loss)
	if short {
		c.held = append(c.held, text)
		c.heldAt = to
		return
	}
	c.release()
	c.body.Losses = append(c.body.Losses, text)
	c.last = to
}

// release adds the held losses to the answer.
func (c *changesReading) release() { c.body.Losses, c.held = append(c.body.Losses, c.held...), nil }

// pause ends the answer where reading has come to. The next one begins no later than a loss that is
// held, and has that.
func (c *changesReading) pause() {
	c.full = true
	switch at := c.at.Ref(); {
	case at.Compare(c.last) <= 0: // the log is read from an earlier time up to where the request begins
	case len(c.held) > 0 && at.Compare(c.heldAt) <= 0:
		c.last = c.heldAt
	default:
		c.release()
		c.last = at
	}
}

// beyond reports whether a time is not before the end of the request.
func (c *changesReading) beyond(t change.Timestamp) bool {
	return !c.until.IsZero() && t.Compare(c.until) >= 0
}

// describeChange reads the operation and the changed fields of an event.
func describeChange(event []byte) (told documentChange, err error) {
	var e struct {
		Operation string `json:"operationType"`
		Update    struct {
			Set       map[string]json.RawMessage `json:"updatedFields"`
			Removed   []string                   `json:"removedFields"`
			Truncated []struct {
				Field string `json:"field"`
			} `json:"truncatedArrays"`
		} `json:"updateDescription"`
	}
	if err := json.NewDecoder(bytes.NewReader(event)).Decode(&e); err != nil {
		return told, err
	}
	told.Operation = e.Operation
	told.Changed = append([]string{}, e.Update.Removed...)
	for name := range e.Update.Set {
		told.Changed = append(told.Changed, name)
	}
	for _, array := range e.Update.Truncated {
		told.Changed = append(told.Changed, array.Field)
	}
	slices.Sort(told.Changed)
	told.Changed = slices.Compact(told.Changed)
	return told, nil
}
