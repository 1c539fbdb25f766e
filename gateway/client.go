package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway/access"
	"github.com/mongostream/streamer/lane"
	"github.com/mongostream/streamer/match"
)

// maxRefused is how often in a row the log may refuse a client's position, although it should have it, before the client is let go. The
// second time the position is given up.
const maxRefused = 3

// maxWrite is how much is written to a client at a time; while it is being written the client holds nothing else.
const maxWrite = 256 << 10

// A client is one connection.
type client struct {
	events     *Events
	account    *access.Account
	program    *match.Program
	cursor     *lane.Cursor
	resumption *resumption // nil once everything that comes is new
	refused    int         // how often the log has refused its position since its last event, although it should have it
	w          http.ResponseWriter
	out        *http.ResponseController
	encoder    *Encoder
	buffer     []byte
	written    int // events in the buffer
	trouble    trouble
}

// A trouble is what the filter has failed on and the client was not told yet: a filter that fails may do so on every event.
type trouble struct {
	count int
	last  error
	told  time.Time
}

// tellEvery is how often a client is told of failures at most.
const tellEvery = time.Second

// run writes events until the client leaves, stalls, or the log or the node ends, and says which.
func (c *client) run(ctx context.Context) (reason string) {
	c.buffer = append(c.buffer, ": connected\n\n"...)
	for connected := false; ; {
		c.tellTrouble()
		if err := c.flush(ctx); err != nil {
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
		if !connected { // it knows that it is
			connected = true
			c.events.metrics.clients.Inc()
			defer c.events.metrics.clients.Dec()
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
			return c.ended(ctx)
		case errors.Is(err, context.DeadlineExceeded):
			if err := c.heartbeat(); err != nil {
				c.events.logger.Error("event cannot be written as JSON", "error", err)
				return "failed"
			}
		case errors.Is(err, lane.ErrPositionLost):
			if err := c.resync(err); err != nil {
				c.fail(err)
				return "lost"
			}
		default:
			c.fail(err)
			return "stopped"
		}
	}
}

// ended says why the context has ended, to the client too where it has lost its right to be there. One whose node stops comes back.
func (c *client) ended(ctx context.Context) (reason string) {
	cause := context.Cause(ctx)
	switch fault.Of(cause) {
	case "":
		return "left"
	case fault.NodeStopping, fault.NodeDetached:
		return "stopped"
	default:
		c.fail(cause)
		return "revoked"
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
			Advice: "One change was too large for MongoDB to deliver, and what followed it in its transaction is left out too: read the large documents again.",
		}, e.Position(), e.Position())
		return nil
	}
	switch wanted, err := c.program.Match(e); {
	case err != nil:
		c.trouble.count, c.trouble.last = c.trouble.count+1, err // neither a yes nor a no
		return nil
	case !wanted:
		return nil
	}
	b := append(c.buffer, "id: "...)
	b = c.encoder.ID(b, e.Position())
	b = append(b, "\ndata: "...)
	if b, err = c.encoder.Event(b, e); err != nil {
		return err
	}
	c.buffer = append(b, "\n\n"...)
	c.written++
	c.events.metrics.events.Inc()
	c.refused = 0
	return nil
}

// resync tells the client what the log no longer holds of what it wants; the cursor goes on behind that. Where it does not, because the log
// should have had the position, it is tried again.
func (c *client) resync(err error) error {
	from := c.cursor.Position()
	lost, ok := errors.AsType[*lane.LostError](err)
	if !ok || lost.Onward.IsZero() {
		if c.refused++; c.refused > maxRefused {
			return fault.New(fault.LogHistoryLost, err)
		}
		c.cursor.Close()
		c.cursor = c.events.log.All(lane.Start{Position: from, Onward: c.refused > 1})
		return nil
	}
	c.tell(&delivery.Notice{
		Kind: delivery.Resync, Reason: "history_lost", Found: time.Now(),
		Advice: "Changes between lost_from and lost_to may have been missed: read the documents again.",
	}, from, lost.Onward)
	c.resumption = nil
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
	c.problem("error", err)
	_ = c.send() // it ends either way
}

// tellTrouble writes what the filter has failed on, at most once a second.
func (c *client) tellTrouble() {
	t := &c.trouble
	now := time.Now()
	if t.count == 0 || now.Sub(t.told) < tellEvery {
		return
	}
	if t.count > 1 {
		if f, ok := errors.AsType[*fault.Error](t.last); ok {
			t.last = fault.Newf(f.Code, "%d events, the last one: %w", t.count, f.Err)
		}
	}
	c.problem("filter_failed", t.last)
	*t = trouble{told: now}
}

// problem writes what went wrong as an event.
func (c *client) problem(event string, err error) {
	text, _ := json.Marshal(describe(err)) //nolint:errchkjson // strings only
	c.buffer = fmt.Appendf(c.buffer, "event: %s\ndata: %s\n\n", event, text)
}

// flush writes the buffer to the client as soon as its identity's pace allows, within the stall timeout.
func (c *client) flush(ctx context.Context) error {
	if c.written > 0 {
		if err := c.account.Wait(ctx, c.written, len(c.buffer)); err != nil {
			return err
		}
	}
	return c.send()
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
