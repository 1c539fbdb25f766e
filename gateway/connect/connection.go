package connect

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"

	"mongostream/change"
	"mongostream/checkpoint"
	"mongostream/fault"
	"mongostream/gateway/fanout"
	"mongostream/gateway/streampb"
	"mongostream/gateway/wire"
)

const (
	// rowEvery is how often a gateway's row is written, rowTimeout how long its last writing may take.
	rowEvery, rowTimeout = 30 * time.Second, 2 * time.Second
	// subscribesPerSecond and subscribeBurst bound how fast a connection may change its subscriptions; faster ones are read later.
	subscribesPerSecond, subscribeBurst = 200, 10_000
)

// A connection is one call of Connect.
type connection struct {
	server   *Server
	stream   streampb.Gateway_ConnectServer
	requests chan *streampb.ConnectRequest
	hello    *hello
	session  *fanout.Session
	limit    *rate.Limiter
	left     error // why requests is closed: io.EOF where the client only listens from now on

	sending sync.Mutex // gRPC takes one message at a time
}

// run serves the connection until one side ends it.
func (c *connection) run(ctx context.Context) error {
	first, err := c.first(ctx)
	if err != nil {
		return err
	}
	if c.hello, err = c.server.readHello(first); err != nil {
		return err
	}
	begin, err := c.server.begin(ctx, c.hello)
	if err != nil {
		return err
	}
	c.limit = rate.NewLimiter(subscribesPerSecond, subscribeBurst)
	subscriptions, answers := c.compile(c.hello.subscriptions)
	if err := c.welcome(begin.recovered); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c.session, err = c.server.hub.Open(ctx, begin.session, subscriptions)
	if err != nil {
		return err
	}
	defer c.session.Close(nil)
	if begin.refused != nil {
		c.session.Tell(cursorRefused(begin.refused))
	}
	h := &holder{process: c.hello.process, started: c.hello.started, session: c.session}
	if err := c.server.claim(c.hello.gateway, h); err != nil {
		return err
	}
	defer c.server.release(c.hello.gateway, h)
	if err := c.send(answers...); err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return c.runSend(ctx) })
	g.Go(func() error { return c.runReceive(ctx) })
	g.Go(func() error { return c.runRow(ctx) })
	return g.Wait()
}

// first reads the first request, and starts reading the others.
func (c *connection) first(ctx context.Context) (*streampb.Hello, error) {
	go func() { // ends with the stream, which ends with the call
		for {
			r, err := c.stream.Recv()
			if err != nil {
				c.left = err
				close(c.requests)
				return
			}
			select {
			case c.requests <- r:
			case <-c.stream.Context().Done():
				return
			}
		}
	}()
	timer := time.NewTimer(c.server.cfg.HandshakeTimeout)
	defer timer.Stop()
	select {
	case r, ok := <-c.requests:
		if !ok {
			return nil, c.left
		}
		if r.GetHello() == nil {
			return nil, fault.Newf(fault.SessionBadRequest, "the first message must be a hello")
		}
		return r.GetHello(), nil
	case <-timer.C:
		return nil, fault.Newf(fault.SessionSilent, "no hello within %s", c.server.cfg.HandshakeTimeout)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (c *connection) welcome(recovered bool) error {
	cfg := c.server.cfg
	timeout := uint32(cfg.HeartbeatTimeout.Milliseconds())
	return c.send(&streampb.ConnectResponse{Message: &streampb.ConnectResponse_Welcome{Welcome: &streampb.Welcome{
		Cluster: cfg.Cluster, Node: cfg.Node, PartitionCount: uint32(cfg.Partitions), Recovered: recovered,
		Limits: &streampb.Limits{
			Subscriptions: uint32(cfg.MaxSubscriptions), UnacknowledgedEvents: uint32(cfg.CreditEvents), UnacknowledgedBytes: uint64(cfg.CreditBytes),
			HeartbeatIntervalMs: timeout / 3, HeartbeatTimeoutMs: timeout, FilterBytes: maxFilter,
		},
	}}})
}

// send writes messages to the transport. It blocks while the client takes nothing.
func (c *connection) send(messages ...*streampb.ConnectResponse) error {
	c.sending.Lock()
	defer c.sending.Unlock()
	for _, m := range messages {
		if err := c.stream.Send(m); err != nil {
			return err
		}
	}
	return nil
}

// runSend sends what the session has until it is over.
func (c *connection) runSend(ctx context.Context) error {
	for {
		batches, notices, err := c.session.Receive(ctx)
		for _, n := range notices {
			if err := c.send(noticeMessage(n)); err != nil {
				return err
			}
		}
		if err != nil {
			return err
		}
		for _, b := range batches {
			message := c.server.batchMessage(b)
			if err := c.server.hub.Err(); err != nil {
				return err // the process may have stood still since
			}
			if err := c.send(message); err != nil {
				return err
			}
			if c.hello.auto {
				if err := c.session.Ack(b.Partition, b.To); err != nil {
					return err
				}
			}
		}
	}
}

// errLeft says that the client has ended the connection.
var errLeft = errors.New("the client has left")

// runReceive does what the client asks for until it leaves or falls silent.
func (c *connection) runReceive(ctx context.Context) error {
	timeout := c.server.cfg.HeartbeatTimeout
	silence, beat := time.NewTimer(timeout), time.NewTicker(timeout/3)
	defer silence.Stop()
	defer beat.Stop()
	requests := c.requests
	for {
		select {
		case r, ok := <-requests:
			switch {
			case ok:
			case errors.Is(c.left, io.EOF) && c.hello.auto:
				requests = nil // it need not say anything
				silence.Stop()
				continue
			default:
				return errLeft
			}
			silence.Reset(timeout)
			if err := c.handle(ctx, r); err != nil {
				return err
			}
		case <-beat.C:
			go func() { // a client that takes nothing must not keep us from hearing that it is silent
				_ = c.send(&streampb.ConnectResponse{Message: &streampb.ConnectResponse_Heartbeat{Heartbeat: &streampb.Heartbeat{}}})
			}()
		case <-silence.C:
			return fault.Newf(fault.SessionSilent, "nothing came for %s", timeout)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// handle does what one request asks for.
func (c *connection) handle(ctx context.Context, r *streampb.ConnectRequest) error {
	switch m := r.GetMessage().(type) {
	case *streampb.ConnectRequest_Ack:
		for _, p := range m.Ack.GetPositions() {
			place, err := wire.ReadPlace(p.GetPosition().GetHead(), p.GetPosition().GetHashes())
			if err != nil {
				return fault.Newf(fault.SessionBadAck, "partition %d: not a position", p.GetPartition())
			}
			if err := c.session.Ack(change.Partition(p.GetPartition()), place); err != nil {
				return err
			}
		}
	case *streampb.ConnectRequest_Subscribe:
		n := len(m.Subscribe.GetSubscriptions())
		if c.session.Subscriptions()+n > c.server.cfg.MaxSubscriptions {
			return fault.Newf(fault.SessionTooMany, "a session has at most %d subscriptions", c.server.cfg.MaxSubscriptions)
		}
		if err := c.limit.WaitN(ctx, min(n, subscribeBurst)); err != nil {
			return context.Cause(ctx)
		}
		subscriptions, answers := c.compile(m.Subscribe.GetSubscriptions())
		from := wire.PlaceOf(c.session.Subscribe(subscriptions))
		for _, a := range answers {
			if subscribed := a.GetSubscribed(); subscribed != nil {
				subscribed.From = everywhere(c.server.cfg.Partitions, from)
			}
		}
		return c.send(answers...)
	case *streampb.ConnectRequest_Unsubscribe:
		c.session.Unsubscribe(m.Unsubscribe.GetIds())
	case *streampb.ConnectRequest_Heartbeat:
	default:
		return fault.Newf(fault.SessionBadRequest, "a hello, or a message that this version does not know")
	}
	return nil
}

// compile compiles subscriptions, and says of each whether there is one.
func (c *connection) compile(wanted []*streampb.Subscription) (subscriptions []fanout.Subscription, answers []*streampb.ConnectResponse) {
	for _, w := range wanted {
		sub, err := readSubscription(w, c.server.cfg.Carries)
		if err == nil && slices.ContainsFunc(subscriptions, func(s fanout.Subscription) bool { return s.ID == sub.ID }) {
			err = fault.Newf(fault.SessionBadRequest, "subscription %q stands twice", sub.ID)
		}
		if err != nil {
			answers = append(answers, rejected(w.GetId(), err))
			continue
		}
		subscriptions = append(subscriptions, sub)
		answers = append(answers, &streampb.ConnectResponse{Message: &streampb.ConnectResponse_Subscribed{Subscribed: &streampb.Subscribed{Id: sub.ID}}})
	}
	return subscriptions, answers
}

// runRow keeps where the gateway stands, at the beginning, now and then, and at the end.
func (c *connection) runRow(ctx context.Context) error {
	if c.server.cfg.Rows == nil || c.hello.gateway == "" {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	c.saveRow(ctx) // one that dies before the first acknowledgement comes back to where it began
	tick := time.NewTicker(rowEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			c.saveRow(ctx)
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), rowTimeout)
			defer cancel()
			c.saveRow(last)
			return context.Cause(ctx)
		}
	}
}

// saveRow saves where the gateway stands. One that cannot be saved is tried again with the next; the gateway keeps its own.
func (c *connection) saveRow(ctx context.Context) {
	base, positions, ok := c.session.Standing()
	if !ok || base.IsZero() {
		return
	}
	err := c.server.cfg.Rows.SaveRow(ctx, checkpoint.Row{
		Gateway: c.hello.gateway, Process: c.hello.process, Started: c.hello.started, Partitions: c.server.cfg.Partitions, Base: base, Positions: positions,
		SeenAt: time.Now(),
	})
	if err != nil && ctx.Err() == nil {
		c.server.logger.Warn("a gateway's position is not saved", "gateway", c.hello.gateway, "error", err)
	}
}

// ended reports whether an error is only the connection's end.
func ended(err error) bool {
	return err == nil || errors.Is(err, errLeft) || errors.Is(err, io.EOF) || errors.Is(err, fanout.ErrClosed)
}
