package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway/access"
	"github.com/mongostream/streamer/internal/input"
	"github.com/mongostream/streamer/streamer"
)

const (
	// maxWrite is the size in bytes at which the buffer is written to the client.
	maxWrite = 256 << 10
	// sameLimit is the share of the stall timeout, as a divisor, for which writes have one
	// deadline: moving it costs as much as encoding an event.
	sameLimit = 16
	// farewellTimeout bounds the last write to a client that has closed its side.
	farewellTimeout = time.Second
)

// A client is one connection to Events.
type client struct {
	events     *Events
	account    *access.Account
	subscriber *streamer.Exclusive
	out        response
	buffer     []byte
	gzip       *gzipped   // nil if the response is not compressed
	unfinished bool       // a write has begun and has not succeeded
	written    int        // events in the buffer
	last       uint64     // the last batch in the buffer
	at         change.Ref // of the last id that the client has
	id         []byte     // that id
	stamped    uint32     // the stamp that documents is of
	documents  string     // the progress of its snapshots

	until  change.Timestamp // where the response ends, zero if nowhere
	ended  bool             // that has been reached
	begins change.Timestamp // of the log, if that is later than the requested start
	sent   time.Time        // when the last write began
	limit  time.Time        // when a write that blocks fails
	over   func(reason string)
}

// close releases the client's resources.
func (c *client) close(ctx context.Context, reason string) {
	c.over(reason)
	c.subscriber.Close(ctx, nil)
	c.events.clients.Add(-1)
	c.account.Close()
	c.events.metrics.ended.count(reason)
}

// serve writes events until the stream ends, and releases the client's resources. Everything that
// it needs only to begin is on the stacks of other functions: run stays on the stack of every
// stream that waits.
func (c *client) serve(ctx context.Context) {
	reason := "failed" // if it panics
	defer func() { c.close(ctx, reason) }()
	reason = c.run(ctx)
	c.farewell(ctx)
	c.finish()
}

// farewell tells a client why its stream ends that has closed its side of the connection, and may
// still read the other one. One that has gone does not get it.
func (c *client) farewell(ctx context.Context) {
	if !isGone(ctx) || c.unfinished || c.written > 0 { // events wait for the pace of their identity
		return
	}
	c.problem("error", input.Reason(ctx, nil))
	c.seal()
	c.unfinished = true
	if err := c.out.SetWriteDeadline(time.Now().Add(farewellTimeout)); err != nil {
		return
	}
	if _, err := c.out.Write(c.buffer); err == nil {
		c.unfinished = c.out.Flush() != nil
	}
}

// run writes events until the client disconnects, stalls, or the session ends. It returns the
// reason. It is on the stack of every stream that waits, so functions that it seldom calls have
// their own frames.
func (c *client) run(ctx context.Context) (reason string) {
	defer c.abandon(ctx)()
	c.greet()
	if reason := c.flush(ctx); reason != "" {
		return reason
	}
	c.events.metrics.clients.Inc()
	defer c.events.metrics.clients.Dec()
	session := c.subscriber.Session()
	quiet := time.NewTimer(c.patience()) // one for the whole stream: it is not set anew at each event
	defer quiet.Stop()
	for reason == "" {
		batches, notices, err := session.ReceiveUntil(ctx, quiet.C)
		if err == nil && len(batches)+len(notices) == 0 {
			quiet.Reset(c.rest())
		}
		reason = c.write(ctx, batches, notices, err)
	}
	return reason
}

// compress has the response compressed if the client accepts that.
func (c *client) compress(request, response http.Header) {
	if !acceptsGzip(request) {
		return
	}
	response.Set("Content-Encoding", "gzip")
	c.gzip = &gzipped{compressor: c.events.compressor}
	c.buffer = c.gzip.begin(c.buffer)
}

// seal ends a text in the buffer, which is compressed alone if the response is compressed.
func (c *client) seal() {
	if c.gzip != nil {
		c.buffer = c.gzip.seal(c.buffer)
	}
}

// finish ends a compressed response after the last write, unless a write has failed. The end of the
// body comes later, when everything is released.
func (c *client) finish() {
	if c.gzip != nil && !c.unfinished {
		_, _ = c.out.Write(c.gzip.end()) // the stream ends anyway
	}
}

// greet appends the text before the first batch.
func (c *client) greet() {
	c.buffer = fmt.Appendf(c.buffer, "retry: %d\n: connected\n\n", retryAfter().Milliseconds())
	if missed := c.subscriber.Missed(); missed != nil { // without an id: a client that leaves before the next one has yet to be moved
		c.buffer = fmt.Appendf(c.buffer, "event: %s\ndata: ", missed.Kind)
		c.buffer = append(delivery.AppendLoss(c.buffer, "", missed), "\n\n"...)
	}
	if !c.begins.IsZero() {
		c.buffer = fmt.Appendf(c.buffer, "event: begin\ndata: {\"message\":\"the log begins at %s: earlier changes are not in it\"}\n\n", c.begins.Time().UTC().Format(time.RFC3339))
	}
}

// write writes the received batches and notices of the session. It returns a reason if the stream
// ends.
func (c *client) write(ctx context.Context, batches []*delivery.Batch, notices []delivery.Notice, err error) (reason string) {
	for _, n := range notices {
		c.notice(n)
	}
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return c.leave(ctx)
	default:
		return c.fail(ctx, err)
	}
	for _, b := range batches {
		if err := c.batch(b); err != nil {
			return c.fail(ctx, err)
		}
		if c.reach(b.To); c.ended {
			break
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
	if c.ended {
		return "ended"
	}
	for _, b := range batches {
		c.subscriber.Session().Recycle(b)
	}
	return ""
}

// rest appends a heartbeat if nothing was written for long, and the end if the session has reached
// it where nothing happens that the client wants. It returns how long to wait for something to
// write.
func (c *client) rest() time.Duration {
	defer func() { c.reach(c.subscriber.Session().State().At) }()
	if left := c.events.cfg.Heartbeat - time.Since(c.sent); left > 0 {
		return min(left, c.patience())
	}
	c.buffer = append(c.buffer, ": heartbeat\n\n"...)
	return c.patience()
}

// patience is how long to wait for something to write. A response that is to end looks more often
// whether it has come there.
func (c *client) patience() time.Duration {
	if c.until.IsZero() {
		return c.events.cfg.Heartbeat
	}
	return min(c.events.cfg.Heartbeat, time.Second)
}

// abandon ends a write that blocks when the client has gone. Call the returned function before the
// response ends.
func (c *client) abandon(ctx context.Context) (stop func()) {
	abandoned := make(chan struct{})
	stopped := context.AfterFunc(ctx, func() {
		defer close(abandoned)
		if isGone(ctx) {
			_ = c.out.SetWriteDeadline(time.Now())
		}
	})
	return func() {
		if !stopped() {
			<-abandoned
		}
	}
}

// leave returns why the context has ended. It tells the client if its access was revoked; a client
// of a stopping node just reconnects.
func (c *client) leave(ctx context.Context) (reason string) {
	switch cause := context.Cause(ctx); fault.Of(cause) {
	case "":
		return "left"
	case fault.NodeStopping:
		return "stopped"
	default:
		c.problem("error", cause)
		_ = c.send(ctx) // the stream ends anyway
		return "revoked"
	}
}

// fail reports an error to the client and returns the reason for the metric.
func (c *client) fail(ctx context.Context, err error) (reason string) {
	switch fault.Of(err) {
	case fault.NodeStopping:
		return "stopped"
	case fault.LogHistoryLost, fault.LogAhead:
		reason = "lost"
	case fault.SessionReplaced, fault.SessionRenewed:
		reason = "replaced"
	case fault.SessionFilterCostly:
		reason = "costly"
	default:
		c.events.logger.Warn("event stream failed", "error", err)
		reason = "failed"
	}
	c.problem("error", err)
	_ = c.flush(ctx) // the stream ends anyway
	return reason
}

// appendID appends the event id of a position in a batch, which the client has from then on: with
// the generation of the subscriber's checkpoint and the stamp of its snapshots.
func (c *client) appendID(b *delivery.Batch, ref change.Ref) {
	c.at = ref
	c.buffer = append(c.buffer, "id: "...)
	from := len(c.buffer)
	c.buffer = ref.AppendText(c.buffer, c.events.cfg.Cluster)
	switch {
	case b.Stamp > 0:
		c.buffer = fmt.Appendf(c.buffer, "%s%d%s%x", idMark, b.Generation, idMark, b.Stamp)
		if text := c.progress(b); text != "" {
			c.buffer = append(append(c.buffer, idMark...), text...)
		}
	case b.Generation > 0:
		c.buffer = strconv.AppendUint(append(c.buffer, idMark...), b.Generation, 10)
	}
	c.id = append(c.id[:0], c.buffer[from:]...)
}

// say appends an event that is no place in the log. It has the id that the client has, if any: many
// programs keep what their library says is the id of an event, which is empty for one without, and
// would resume nowhere.
func (c *client) say(event string, data any) {
	text, _ := json.Marshal(data) //nolint:errchkjson // strings only
	c.buffer = fmt.Appendf(c.buffer, "event: %s\ndata: %s\n", event, text)
	if len(c.id) > 0 {
		c.buffer = fmt.Appendf(c.buffer, "id: %s\n", c.id)
	}
	c.buffer = append(c.buffer, '\n')
}

// progress returns the progress of snapshots as text, while any is unfinished: a client that
// reconnects with it continues there.
func (c *client) progress(b *delivery.Batch) string {
	if c.stamped != b.Stamp {
		c.stamped, c.documents = b.Stamp, b.Progress()
	}
	return c.documents
}

// batch appends a batch to the buffer.
func (c *client) batch(b *delivery.Batch) error {
	c.seal() // what precedes it: the text of an event is the same for all clients
	c.last = b.Seq
	end := b.To.Ref()
	switch {
	case b.Loss != nil && c.beyond(b.Loss.From.Time):
		return nil
	case b.Loss != nil:
		c.buffer = fmt.Appendf(c.buffer, "event: %s\ndata: ", b.Loss.Kind)
		c.buffer = delivery.AppendLoss(c.buffer, "", b.Loss)
		c.endEvent(b, end)
		return nil
	case b.Snapshot != nil:
		c.buffer = append(c.buffer, "event: snapshot\ndata: "...)
		c.buffer = delivery.AppendMark(c.buffer, b.Snapshot)
		c.endEvent(b, end)
		return nil
	case len(b.Events) == 0 && end.Compare(c.at) <= 0:
		return nil // the log is read from an earlier time up to where the client is, whose own id is better
	case len(b.Events) == 0: // the id moves on without an event
		c.appendID(b, end)
		c.buffer = append(c.buffer, "\n: progress\n\n"...)
		return nil
	}
	for i := range b.Events {
		e := &b.Events[i]
		payload := b.Payload(i)
		if c.beyond(e.Ref.Time()) {
			return nil
		}
		if bytes.IndexByte(payload, '\n') >= 0 || bytes.IndexByte(payload, '\r') >= 0 {
			return fault.Newf(fault.SessionEncoding, "encoded event contains a line break")
		}
		c.buffer = delivery.AppendEvent(append(c.buffer, "data: "...), "", e, payload)
		c.endEvent(b, e.Ref)
		c.written++
	}
	return nil
}

// beyond reports whether a time is not before the end of the response.
func (c *client) beyond(t change.Timestamp) bool {
	return !c.until.IsZero() && t.Compare(c.until) >= 0
}

// reach ends the response if the client has everything before its end. A client that continues
// there without an end gets the changes from the end on.
func (c *client) reach(at change.Position) {
	if c.beyond(at.Time) {
		c.ended = true
		c.buffer = append(c.buffer, "event: end\ndata: {\"message\":\"the end is reached\"}\nid: "...)
		c.buffer = append(change.At(c.until).Ref().AppendText(c.buffer, c.events.cfg.Cluster), "\n\n"...)
	}
}

// endEvent ends an event with its id, after everything else, and compresses it alone: what else a
// client gets must not show in the size of an event. Many clients take an id for theirs as
// soon as they have read its line, and not when the event is complete: an id before the data would
// have them resume after an event that they have not got when a connection breaks within it.
func (c *client) endEvent(b *delivery.Batch, ref change.Ref) {
	c.buffer = append(c.buffer, '\n')
	c.appendID(b, ref)
	c.buffer = append(c.buffer, "\n\n"...)
	c.seal()
}

// notice appends a notice about the client's own subscription. Notices about the service are served
// at /v1/notices.
func (c *client) notice(n delivery.Notice) {
	if n.Subscription == "" {
		return
	}
	c.say(string(n.Kind), description{Code: n.Code, Message: n.Text})
}

// problem appends an error as an event, and when the client may come back.
func (c *client) problem(event string, err error) {
	c.buffer = fmt.Appendf(c.buffer, "retry: %d\n", comeBack(err).Milliseconds())
	c.say(event, describe(err))
}

// comeBack returns a random time after which a client may connect again whose stream has ended with
// an error: later where the next stream would end so, too, or would end that of another client.
func comeBack(err error) time.Duration {
	switch fault.Of(err) { //nolint:exhaustive // the others pass
	case fault.SessionReplaced, fault.SessionFilterCostly, fault.LogHistoryLost, fault.LogAhead, fault.AccessUnauthenticated, fault.SessionBadRequest:
		return access.LimitAfter()
	}
	return retryAfter()
}

// flush writes the buffer within the identity's rate limit and the stall timeout, and acknowledges
// its batches. It returns a reason if the stream ends.
func (c *client) flush(ctx context.Context) (reason string) {
	if c.written > 0 {
		if err := c.account.Wait(ctx, c.written, len(c.buffer)); err != nil {
			return c.leave(ctx)
		}
	}
	events := c.written
	if err := c.send(ctx); err != nil {
		switch late := !time.Now().Before(c.limit); { // a failed write may end the context as well
		case late && (errors.Is(err, context.DeadlineExceeded) || isTimeout(err)):
			c.events.logger.Warn("subscriber disconnected", "code", fault.SessionStalled, "stall_timeout", c.events.cfg.StallTimeout)
			return "stalled"
		case ctx.Err() != nil:
			return c.leave(ctx)
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

// send writes the buffer within the stall timeout, unless the client has gone.
func (c *client) send(ctx context.Context) error {
	if len(c.buffer) == 0 {
		return nil
	}
	c.seal()
	now := time.Now()
	stall := c.events.cfg.StallTimeout
	if c.limit.Sub(now) < stall-stall/sameLimit {
		c.limit = now.Add(stall)
		if err := c.out.SetWriteDeadline(c.limit); err != nil {
			return fmt.Errorf("set write deadline: %w", err)
		}
	}
	if isGone(ctx) { // later, abandon moves the deadline
		return context.Cause(ctx)
	}
	c.unfinished = true
	if _, err := c.out.Write(c.buffer); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	c.unfinished, c.sent = false, now                                      // as the deadline, which outlives a write that took long
	if c.buffer, c.written = c.buffer[:0], 0; cap(c.buffer) > 4*maxWrite { // of a large event
		c.buffer = nil
	}
	if c.gzip != nil {
		c.gzip.written()
	}
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
