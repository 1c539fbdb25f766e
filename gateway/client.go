package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway/access"
	"github.com/mongostream/streamer/streamer"
)

// maxWrite is how much is written to a client at a time.
const maxWrite = 256 << 10

// A client is one connection to Events.
type client struct {
	events     *Events
	account    *access.Account
	subscriber *streamer.Exclusive
	w          http.ResponseWriter
	out        *http.ResponseController
	buffer     []byte
	written    int    // events in the buffer
	last       uint64 // the last batch in the buffer
}

// run writes events until the client leaves, stalls, or the session ends, and says which.
func (c *client) run(ctx context.Context) (reason string) {
	c.buffer = fmt.Appendf(c.buffer, "retry: %d\n: connected\n\n", retryAfter())
	if reason := c.flush(ctx); reason != "" {
		return reason
	}
	c.events.metrics.clients.Inc() // it has been answered
	defer c.events.metrics.clients.Dec()
	session := c.subscriber.Session()
	for {
		wait, cancel := context.WithTimeout(ctx, c.events.cfg.Heartbeat)
		batches, notices, err := session.Receive(wait)
		cancel()
		for _, n := range notices {
			c.notice(n)
		}
		switch {
		case err == nil:
		case ctx.Err() != nil:
			return c.ended(ctx)
		case errors.Is(err, context.DeadlineExceeded):
			c.buffer = append(c.buffer, ": heartbeat\n\n"...)
		default:
			return c.fail(ctx, err)
		}
		for _, b := range batches {
			if err := c.batch(b); err != nil {
				return c.fail(ctx, err)
			}
			if len(c.buffer) >= maxWrite {
				if reason := c.flush(ctx); reason != "" {
					return reason
				}
			}
		}
		if reason := c.flush(ctx); reason != "" {
			return reason
		}
	}
}

// ended says why the context has ended, to the client too where it has lost its right to be there. One whose node stops comes back.
func (c *client) ended(ctx context.Context) (reason string) {
	switch cause := context.Cause(ctx); fault.Of(cause) {
	case "":
		return "left"
	case fault.NodeStopping:
		return "stopped"
	default:
		c.problem("error", cause)
		_ = c.send() // it ends either way
		return "revoked"
	}
}

// fail writes why the stream ends.
func (c *client) fail(ctx context.Context, err error) (reason string) {
	switch fault.Of(err) {
	case fault.NodeStopping:
		return "stopped"
	case fault.LogHistoryLost, fault.LogAhead:
		reason = "lost"
	case fault.SessionReplaced:
		reason = "replaced"
	default:
		c.events.logger.Error("an event stream ended", "error", err)
		reason = "failed"
	}
	c.problem("error", err)
	_ = c.flush(ctx) // it ends either way
	return reason
}

// id returns the id of where a batch of the generation, or an event of it, ends.
func (c *client) id(generation uint64, ref func([]byte, string) []byte) []byte {
	b := ref(nil, c.events.cfg.Cluster)
	if generation > 0 {
		b = fmt.Appendf(b, "%s%d", generationMark, generation)
	}
	return b
}

// batch writes a batch into the buffer.
func (c *client) batch(b *streamer.Batch) error {
	c.last = b.Seq
	end := b.To.Ref()
	switch {
	case b.Loss != nil:
		id := c.id(b.Generation, end.AppendText)
		c.buffer = fmt.Appendf(c.buffer, "id: %s\nevent: %s\ndata: ", id, b.Loss.Kind)
		c.buffer = append(appendLoss(c.buffer, string(id), b.Loss), "\n\n"...)
		return nil
	case len(b.Events) == 0: // the id moves on without an event
		c.buffer = fmt.Appendf(c.buffer, "id: %s\n: progress\n\n", c.id(b.Generation, end.AppendText))
		return nil
	}
	for i := range b.Events {
		e, payload := &b.Events[i], b.Payload(i)
		if bytes.ContainsAny(payload, "\r\n") {
			return fault.Newf(fault.SessionEncoding, "an event has a line break where none may be")
		}
		ref := e.Ref
		id := c.id(b.Generation, ref.AppendText)
		c.buffer = fmt.Appendf(c.buffer, "id: %s\ndata: ", id)
		c.buffer = appendEventJSON(c.buffer, string(id), e, payload)
		c.buffer = append(c.buffer, "\n\n"...)
		c.written++
	}
	return nil
}

// notice writes what the client is to know of its own subscription; what is about the service is at /v1/notices.
func (c *client) notice(n streamer.Notice) {
	if n.Subscription == "" {
		return
	}
	text, _ := json.Marshal(description{Code: n.Code, Message: n.Text}) //nolint:errchkjson // strings only
	c.buffer = fmt.Appendf(c.buffer, "event: %s\ndata: %s\n\n", n.Kind, text)
}

// problem writes what went wrong as an event.
func (c *client) problem(event string, err error) {
	text, _ := json.Marshal(describe(err)) //nolint:errchkjson // strings only
	c.buffer = fmt.Appendf(c.buffer, "event: %s\ndata: %s\n\n", event, text)
}

// flush writes the buffer to the client as soon as its identity's pace allows, within the stall timeout, and acknowledges what it held. It
// says why the stream ends, if it does.
func (c *client) flush(ctx context.Context) (reason string) {
	if c.written > 0 {
		if err := c.account.Wait(ctx, c.written, len(c.buffer)); err != nil {
			return c.ended(ctx)
		}
	}
	events := c.written
	if err := c.send(); err != nil {
		switch { // a writing that fails ends the request's context too
		case errors.Is(err, context.DeadlineExceeded), isTimeout(err):
			c.events.logger.Warn("subscriber cut off", "code", fault.SessionStalled, "stall_timeout", c.events.cfg.StallTimeout)
			return "stalled"
		case ctx.Err() != nil:
			return c.ended(ctx)
		default:
			return "left"
		}
	}
	c.events.metrics.events.Add(float64(events))
	if err := c.subscriber.Ack(c.last); err != nil {
		return c.fail(ctx, err)
	}
	return ""
}

// send writes the buffer to the client, within the stall timeout.
func (c *client) send() error {
	if len(c.buffer) == 0 {
		return nil
	}
	if err := c.out.SetWriteDeadline(time.Now().Add(c.events.cfg.StallTimeout)); err != nil {
		return fmt.Errorf("set a deadline: %w", err)
	}
	if _, err := c.w.Write(c.buffer); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	c.buffer, c.written = c.buffer[:0], 0
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
