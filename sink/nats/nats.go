package nats

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/sink"
)

// Config configures a Target.
type Config struct {
	// URL has the URLs of one or more servers, separated by commas. Required.
	URL string
	// Subject is a template. Required.
	Subject string
	// Losses is the subject of losses. Required.
	Losses string
	// Reserved are subjects with another use, such as that of dead letters.
	Reserved []string
	// Stream is the stream that must accept the messages; empty means any.
	Stream string
	// Fence says that the last sequence is checked; the subject then has a token {partition}.
	Fence bool
	// CredentialsFile has a user's credentials. Token, or User and Password, are other ways to log
	// in.
	CredentialsFile       string
	Token, User, Password string
	// TLS is the TLS configuration, nil for none unless the server requires it.
	TLS *tls.Config
	// AckTimeout is how long an acknowledgement may take. Defaults to 10 s.
	AckTimeout time.Duration
	// MaxPending bounds the messages under way. Defaults to 16,384.
	MaxPending int
	// Format is the format of the values.
	Format sink.Format
	// Name is the name of the connection at the server. Source names the cluster and the sink in
	// the messages.
	Name, Source string
}

// A Target publishes to JetStream.
type Target struct {
	sink.Serial

	cfg     Config
	subject *sink.Template
	names   *sink.Names // of destinations

	mu struct {
		sync.Mutex
		conn     *connection // nil until the first message and after a failure
		closed   bool
		last     map[change.Partition]*sequence
		subjects *sink.Names
		headers  headers
	}
}

const (
	// batch bounds the messages of a partition that are under way, parallel the partitions.
	batch    = 512
	parallel = 128
)

var _ sink.Target = (*Target)(nil)

// New returns a Target, which connects at its first use.
func New(cfg Config) (*Target, error) {
	cfg.AckTimeout, cfg.MaxPending = cmp.Or(cfg.AckTimeout, 10*time.Second), cmp.Or(cfg.MaxPending, 16<<10)
	subject, err := sink.ParseTemplate(cfg.Subject, sink.Limits{Legal: Legal, Reserved: append([]string{cfg.Losses}, cfg.Reserved...)})
	if err != nil {
		return nil, err
	}
	if cfg.Fence && !subject.Has("partition") {
		return nil, errors.New("fencing needs {partition} in the subject")
	}
	t := &Target{cfg: cfg, subject: subject, names: sink.NewNames(subject)}
	t.mu.last = make(map[change.Partition]*sequence)
	t.mu.subjects = sink.NewNames(subject)
	t.Serial = sink.Serial{Send: t.sendFenced, Batch: batch, Parallel: parallel}
	return t, nil
}

// Legal replaces characters that a token of a subject must not contain.
func Legal(s string) string {
	return strings.Map(func(r rune) rune {
		if r <= ' ' || r == 0x7f || strings.ContainsRune("*>.", r) {
			return '_'
		}
		return r
	}, s)
}

// A connection is one connection with its messages under way.
type connection struct {
	nc     *nats.Conn
	gate   *sink.Gate
	prefix string // of reply subjects
	slots  chan struct{}
	done   chan struct{}

	mu      sync.Mutex
	next    uint64
	pending map[uint64]pending
	broken  error
}

// A pending message is under way.
type pending struct {
	m       *sink.Message
	subject string
	since   time.Time
	ended   func(seq uint64, err error)
}

// connect opens a connection.
func (t *Target) connect(ctx context.Context) (*connection, error) {
	c := &connection{slots: make(chan struct{}, t.cfg.MaxPending), done: make(chan struct{}), pending: make(map[uint64]pending)}
	c.gate = &sink.Gate{Shut: func() { c.fail(sink.ErrEarlier); c.nc.Close() }}
	options := []nats.Option{
		nats.SetCustomDialer(dialer{c.gate}), nats.Name(t.cfg.Name), nats.NoReconnect(), nats.Timeout(connectTimeout), nats.PingInterval(t.cfg.AckTimeout / 2), nats.MaxPingsOutstanding(2), nats.WriteBufferSize(writeBuffer),
		nats.ClosedHandler(func(nc *nats.Conn) { c.fail(cmp.Or(nc.LastError(), nats.ErrConnectionClosed)) }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { c.forbidden(err) }), // others close the connection, or are part of an acknowledgement
	}
	switch {
	case t.cfg.CredentialsFile != "":
		options = append(options, nats.UserCredentials(t.cfg.CredentialsFile))
	case t.cfg.Token != "":
		options = append(options, nats.Token(t.cfg.Token))
	case t.cfg.User != "":
		options = append(options, nats.UserInfo(t.cfg.User, t.cfg.Password))
	}
	if t.cfg.TLS != nil {
		options = append(options, nats.Secure(t.cfg.TLS))
	}
	var err error
	if c.nc, err = nats.Connect(t.cfg.URL, options...); err != nil {
		return nil, fmt.Errorf("connect to NATS: %w", err)
	}
	if err := t.canFence(c.nc.ConnectedServerVersion()); err != nil {
		c.nc.Close()
		return nil, err
	}
	c.prefix = c.nc.NewInbox() + "."
	sub, err := c.nc.Subscribe(c.prefix+"*", func(reply *nats.Msg) { c.acknowledged(reply) }) //nolint:contextcheck // a reply has no context
	if err == nil {
		err = sub.SetPendingLimits(-1, -1) // bounded by the messages under way
	}
	if err == nil {
		err = c.nc.FlushWithContext(withTimeout(ctx, t.cfg.AckTimeout))
	}
	if err != nil {
		c.nc.Close()
		return nil, fmt.Errorf("subscribe to acknowledgements: %w", cmp.Or(c.failed(), err))
	}
	go c.expire(t.cfg.AckTimeout)
	return c, nil
}

const (
	// connectTimeout bounds an attempt to connect.
	connectTimeout = 5 * time.Second
	// writeBuffer bounds how much the client collects for a write, in bytes: each write checks the
	// terms of all messages under way.
	writeBuffer = 256 << 10
)

func withTimeout(ctx context.Context, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(ctx, d)
	context.AfterFunc(ctx, cancel)
	return ctx
}

// Refusals for which explain asks JetStream.
var (
	errNoStream = errors.New("no stream has this subject, or JetStream is away")
	errTooLarge = errors.New("the stream takes no message of this size")
)

// explain ends a refused message with an error that has the subject, the limit, and a remedy. It
// asks the server.
func (c *connection) explain(n uint64, refused error) {
	c.mu.Lock()
	p, there := c.pending[n]
	c.mu.Unlock()
	if !there {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), connectTimeout)
	defer cancel()
	name, limit, err := c.streamOf(ctx, p.subject)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		err = noStream(p.subject)
	case err != nil:
		err = fmt.Errorf("publish to subject %s: %w", p.subject, refused)
	case errors.Is(refused, errTooLarge):
		err = &sink.RefusedError{Err: fmt.Errorf("a change of %d bytes is too large for subject %s: max_msg_size of stream %s is %d, with headers: raise it, or let the sink have a dead_letter: %w",
			len(p.m.Value), p.subject, name, limit, refused), Final: true}
	default:
		err = fmt.Errorf("publish to subject %s: stream %s does not answer: look at its state: %w", p.subject, name, refused)
	}
	c.end(n, 0, err)
}

// noStream returns the refusal of a subject that belongs to no stream.
func noStream(subject string) error {
	return &sink.RefusedError{Err: fmt.Errorf("no stream has subject %s: create one, or change nats.subject", subject), Destination: true}
}

// forbidden ends the messages to a subject that the user may not publish to: the server does not
// answer them.
func (c *connection) forbidden(err error) {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return
	}
	_, named, _ := strings.Cut(err.Error(), "Publish to ")
	subject, unreadable := strconv.Unquote(named)
	if unreadable != nil {
		c.fail(fmt.Errorf("allow the user what the server names: %w", err)) // to subscribe to the answers
		c.nc.Close()
		return
	}
	refused := &sink.RefusedError{Err: fmt.Errorf("subject %s is refused: allow the user to publish to it: %w", subject, err), Destination: true}
	var all []uint64
	c.mu.Lock()
	for n, p := range c.pending {
		if p.subject == subject {
			all = append(all, n)
		}
	}
	c.mu.Unlock()
	slices.Sort(all)
	for _, n := range all {
		c.end(n, 0, refused)
	}
}

// streamOf returns the stream of a subject, and its limit for a message, in bytes.
func (c *connection) streamOf(ctx context.Context, subject string) (name string, limit int32, err error) {
	js, err := jetstream.New(c.nc)
	if err != nil {
		return "", 0, fmt.Errorf("use JetStream: %w", err)
	}
	if name, err = js.StreamNameBySubject(ctx, subject); err != nil {
		return "", 0, fmt.Errorf("find the stream of %s: %w", subject, err)
	}
	stream, err := js.Stream(ctx, name)
	if err != nil {
		return name, 0, fmt.Errorf("look at stream %s: %w", name, err)
	}
	return name, stream.CachedInfo().Config.MaxMsgSize, nil
}

// A dialer makes connections that write through a gate.
type dialer struct{ gate *sink.Gate }

// Dial implements nats.CustomDialer.
func (d dialer) Dial(network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{Timeout: connectTimeout}).Dial(network, address)
	if err != nil {
		return nil, err //nolint:wrapcheck // the client names the server
	}
	return d.gate.Conn(conn), nil
}

// connected returns the connection, a new one after a failure.
func (t *Target) connected(ctx context.Context) (*connection, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.closed {
		return nil, nats.ErrConnectionClosed
	}
	if c := t.mu.conn; c != nil && c.failed() != nil {
		c.nc.Close()
		t.mu.conn = nil
	}
	if t.mu.conn == nil {
		var err error
		if t.mu.conn, err = t.connect(ctx); err != nil {
			return nil, err
		}
	}
	return t.mu.conn, nil
}

// Publish implements sink.Target. Without a fence messages do not wait for each other: the sink
// knows the outcomes of all messages under way before it publishes any of them again, including the
// later ones.
func (t *Target) Publish(ctx context.Context, m *sink.Message) {
	if t.cfg.Fence && m.Op != sink.OpLoss {
		t.Serial.Publish(ctx, m)
		return
	}
	c, err := t.connected(ctx)
	if err != nil {
		m.Done(err)
		return
	}
	t.publish(ctx, c, m, nil, func(_ uint64, err error) { m.Done(err) })
}

// publish sends a message with further headers; it calls ended with the outcome and the sequence in
// the stream.
func (t *Target) publish(ctx context.Context, c *connection, m *sink.Message, more [][2]string, ended func(seq uint64, err error)) {
	if !c.enter(ctx, m, ended) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	msg := &nats.Msg{Subject: t.cfg.Losses, Data: m.Value, Header: t.mu.headers.of(m, t.cfg)}
	for _, header := range more {
		t.mu.headers.set(header[0], header[1])
	}
	if m.Op != sink.OpLoss {
		msg.Subject = t.mu.subjects.Of(m)
	}
	c.publish(m, msg, ended)
}

// Destination implements sink.Router. With a fence a partition has one order whatever its subjects.
func (t *Target) Destination(m *sink.Message) string {
	if t.cfg.Fence {
		return ""
	}
	return "subject " + t.names.Of(m)
}

// headers has the headers of the present message: the client writes them before it returns, so the
// next message can reuse the memory.
type headers struct {
	header nats.Header
	values []string // one value for each header
}

// of returns the headers of a message.
func (h *headers) of(m *sink.Message, cfg Config) nats.Header {
	if h.header == nil {
		h.header = make(nats.Header)
	}
	clear(h.header)
	h.values = h.values[:0]
	h.set("Streamer-Id", m.ID)
	h.set("Streamer-Op", m.Op)
	h.set("Streamer-Time", m.Time.String())
	h.set("Content-Type", cfg.Format.MediaType())
	if m.Key != nil {
		h.set("Streamer-Key", string(m.Key))
	}
	if cfg.Stream != "" {
		h.set("Nats-Expected-Stream", cfg.Stream)
	}
	if m.Op != sink.OpLoss {
		h.set("Streamer-Partition", strconv.Itoa(int(m.Partition)))
		h.set("Streamer-Epoch", m.Epoch.String())
	}
	return h.header
}

func (h *headers) set(name, value string) {
	h.values = append(h.values, value)
	n := len(h.values)
	h.header[name] = h.values[n-1 : n : n]
}

// enter waits until another message may be under way. If that fails, it calls ended and returns
// false.
func (c *connection) enter(ctx context.Context, m *sink.Message, ended func(uint64, error)) bool {
	select {
	case c.slots <- struct{}{}:
	default:
		_ = c.nc.Flush()
		select {
		case c.slots <- struct{}{}:
		case <-c.done:
			ended(0, c.failed())
			return false
		case <-ctx.Done():
			ended(0, context.Cause(ctx))
			return false
		}
	}
	if err := c.gate.Enter(m); err != nil {
		<-c.slots
		ended(0, err)
		return false
	}
	return true
}

// publish sends an entered message without waiting for its acknowledgement.
func (c *connection) publish(m *sink.Message, msg *nats.Msg, ended func(uint64, error)) {
	p := pending{m, msg.Subject, time.Now(), ended}
	c.mu.Lock()
	if err := c.broken; err != nil {
		c.mu.Unlock()
		c.over(p, 0, err)
		return
	}
	c.next++
	n := c.next
	c.pending[n] = p
	c.mu.Unlock()
	msg.Reply = c.prefix + strconv.FormatUint(n, 36)
	if err := c.nc.PublishMsg(msg); err != nil {
		switch {
		case errors.Is(err, nats.ErrMaxPayload):
			err = &sink.RefusedError{Err: fmt.Errorf("a change of %d bytes is too large for subject %s: the server's max_payload is %d: raise it, or let the sink have a dead_letter: %w",
				len(msg.Data), msg.Subject, c.nc.MaxPayload(), err), Final: true}
		case errors.Is(err, nats.ErrBadSubject):
			err = &sink.RefusedError{Err: fmt.Errorf("publish to subject %q: %w", msg.Subject, err), Final: true}
		}
		c.end(n, 0, err)
	}
}

// end ends a message that is under way; seq is its sequence in the stream.
func (c *connection) end(n, seq uint64, err error) {
	c.mu.Lock()
	p, there := c.pending[n]
	delete(c.pending, n)
	c.mu.Unlock()
	if there {
		c.over(p, seq, err)
	}
}

// over reports the outcome of an entered message.
func (c *connection) over(p pending, seq uint64, err error) {
	<-c.slots
	c.gate.Leave(p.m)
	p.ended(seq, err)
}

// fail ends all messages under way.
func (c *connection) fail(err error) {
	c.mu.Lock()
	if c.broken != nil {
		c.mu.Unlock()
		return
	}
	if c.gate.IsShut() {
		err = fmt.Errorf("%w: a term has ended: %w", sink.ErrEarlier, err)
	}
	c.broken = err
	close(c.done)
	all := c.pending
	c.pending = nil
	c.mu.Unlock()
	for _, p := range all {
		c.over(p, 0, err)
	}
}

func (c *connection) failed() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.broken
}

// expire breaks the connection when an acknowledgement takes too long, because later messages would
// overtake that one.
func (c *connection) expire(timeout time.Duration) {
	tick := time.NewTicker(timeout / 4)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-c.done:
			return
		}
		c.mu.Lock()
		late := false
		for _, p := range c.pending {
			if time.Since(p.since) > timeout {
				late = true
				break
			}
		}
		c.mu.Unlock()
		if late {
			c.fail(fmt.Errorf("no acknowledgement within %s", timeout))
			c.nc.Close()
			return
		}
	}
}

// An answer is JetStream's answer to a message.
type answer struct {
	Stream string `json:"stream"`
	Seq    uint64 `json:"seq"`
	Error  *struct {
		Code    int    `json:"code"`
		ErrCode int    `json:"err_code"`
		Text    string `json:"description"`
	} `json:"error"`
}

// JetStream's error codes (nats-server, errors.json).
const (
	wrongLastSequence    = 10071
	wrongLastSequenceAny = 10164
	messageTooLarge      = 10054
	headersTooLarge      = 10097
	notStored            = 10077 // with the store's own words: a limit, such as maximum messages exceeded, or its disk
)

// acknowledged processes JetStream's answer.
func (c *connection) acknowledged(reply *nats.Msg) {
	n, err := strconv.ParseUint(reply.Subject[len(c.prefix):], 36, 64)
	if err != nil {
		return
	}
	a, err := parseAnswer(reply)
	if errors.Is(err, errNoStream) || errors.Is(err, errTooLarge) {
		go c.explain(n, err) // it waits for replies
		return
	}
	c.end(n, a.Seq, err)
}

// plainAnswer reads an acknowledgement of the form {"stream":"…","seq":…}, which nearly all have,
// and reports whether it has this form.
func plainAnswer(b []byte) (a answer, plain bool) {
	b, plain = bytes.CutPrefix(b, []byte(`{"stream":"`))
	if !plain {
		return a, false
	}
	end := bytes.IndexByte(b, '"')
	if end <= 0 || bytes.IndexByte(b[:end], '\\') >= 0 {
		return a, false
	}
	number, plain := bytes.CutPrefix(b[end+1:], []byte(`,"seq":`))
	if !plain {
		return a, false
	}
	number, plain = bytes.CutSuffix(number, []byte("}"))
	if !plain {
		return a, false
	}
	seq, err := strconv.ParseUint(string(number), 10, 64)
	return answer{Stream: string(b[:end]), Seq: seq}, err == nil
}

// parseAnswer returns the answer, and the error in it.
func parseAnswer(reply *nats.Msg) (a answer, err error) {
	if len(reply.Data) == 0 && reply.Header.Get("Status") == "503" {
		return a, errNoStream
	}
	if a, plain := plainAnswer(reply.Data); plain {
		return a, nil
	}
	if err := json.Unmarshal(reply.Data, &a); err != nil {
		return a, fmt.Errorf("read acknowledgement: %w", err)
	}
	switch {
	case a.Error == nil && a.Stream != "":
		return a, nil
	case a.Error == nil:
		return a, errors.New("an acknowledgement without a stream")
	}
	err = fmt.Errorf("JetStream: %s (%d)", a.Error.Text, a.Error.ErrCode)
	switch a.Error.ErrCode {
	case wrongLastSequence, wrongLastSequenceAny:
		return a, fmt.Errorf("%w: %w", sink.ErrReplaced, err)
	case messageTooLarge, headersTooLarge:
		return a, &sink.RefusedError{Err: fmt.Errorf("%w: %w", errTooLarge, err), Final: true}
	case notStored:
		err = fmt.Errorf("stream %s stores nothing: make room in it, raise its limits, or let it discard old messages; if it has room, read the log of the NATS server: %w", a.Stream, err)
		return a, &sink.RefusedError{Err: err, Destination: true}
	}
	if a.Error.Code >= 500 {
		return a, err // the server is at fault
	}
	return a, &sink.RefusedError{Err: err, Destination: true} // the stream would answer any message so
}

// Close implements sink.Target.
func (t *Target) Close() {
	t.mu.Lock()
	c := t.mu.conn
	t.mu.closed = true
	t.mu.Unlock()
	if c != nil {
		c.fail(nats.ErrConnectionClosed)
		c.nc.Close()
	}
	t.Serial.Close()
}
