package connect

import (
	"context"
	"errors"
	"io"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway/access"
	"github.com/mongostream/streamer/gateway/connect/line"
	"github.com/mongostream/streamer/gateway/fanout"
	"github.com/mongostream/streamer/gateway/streampb"
	"github.com/mongostream/streamer/gateway/wire"
)

const (
	// rowEvery is how often a gateway's row is written, rowTimeout how long that may take.
	rowEvery, rowTimeout = 30 * time.Second, 2 * time.Second
)

// A connection is one call of Connect.
type connection struct {
	server   *Server
	stream   streampb.Gateway_ConnectServer
	identity *access.Identity
	account  *access.Account
	writer   *line.Writer[*streampb.ConnectResponse]
	requests chan *streampb.ConnectRequest
	hello    *hello
	session  *fanout.Session
	limit    *rate.Limiter
	hearing  line.Hearing
	left     error // why requests is closed: io.EOF where the client only listens from now on

	subscribed map[string]struct{} // ids, of which the account knows the number
}

// run serves the connection until one side ends it.
func (c *connection) run(ctx context.Context) error {
	go c.read(ctx)
	go c.writer.Run(ctx.Done())
	first, err := c.first(ctx)
	if err != nil {
		return err
	}
	if c.hello, err = c.server.readHello(first); err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return c.hearing.Run(ctx, c.server.cfg.HeartbeatTimeout) })
	g.Go(func() error { return c.serve(ctx) })
	return g.Wait()
}

// serve begins the session, and serves it until it is over.
func (c *connection) serve(ctx context.Context) error {
	begin, err := c.server.begin(ctx, c.hello)
	if err != nil {
		return err
	}
	c.limit = rate.NewLimiter(subscribesPerSecond, subscribeBurst)
	subscriptions, answers := c.compile(c.hello.subscriptions)
	if err := c.welcome(ctx, begin.recovered); err != nil {
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
	isNew, err := c.server.claim(c.hello.gateway, h)
	if err != nil {
		return err
	}
	if isNew && c.server.cfg.Recent != nil {
		for _, n := range c.server.cfg.Recent() {
			c.session.Tell(n)
		}
	}
	defer c.server.release(c.hello.gateway, h)
	if err := c.send(ctx, answers...); err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return c.runSend(ctx) })
	g.Go(func() error { return c.runReceive(ctx) })
	g.Go(func() error { return c.runBeat(ctx) })
	g.Go(func() error { return c.runRow(ctx) })
	g.Go(func() error { return c.runTopology(ctx) })
	return g.Wait()
}

// read reads what the client sends, one message ahead of who deals with it. It ends with the stream and its context, which end with the call.
func (c *connection) read(ctx context.Context) {
	defer close(c.requests)
	for {
		r, err := c.stream.Recv()
		if err != nil {
			c.left = err
			if status.Code(err) == codes.ResourceExhausted {
				c.left = fault.Newf(fault.SessionTooLarge, "the message was not read: %s", status.Convert(err).Message())
			}
			return
		}
		c.hearing.Heard()
		select {
		case c.requests <- r:
		case <-ctx.Done():
			c.left = context.Cause(ctx)
			return
		}
	}
}

// first returns the first request.
func (c *connection) first(ctx context.Context) (*streampb.Hello, error) {
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

func (c *connection) welcome(ctx context.Context, recovered bool) error {
	cfg := c.server.cfg
	timeout := uint32(cfg.HeartbeatTimeout.Milliseconds())
	return c.send(ctx, &streampb.ConnectResponse{Message: &streampb.ConnectResponse_Welcome{Welcome: &streampb.Welcome{
		Cluster: cfg.Cluster, Node: cfg.Node, PartitionCount: uint32(cfg.Partitions), Recovered: recovered,
		Limits: &streampb.Limits{
			Subscriptions: uint32(cfg.MaxSubscriptions), UnacknowledgedEvents: uint32(cfg.CreditEvents), UnacknowledgedBytes: uint64(cfg.CreditBytes),
			HeartbeatIntervalMs: timeout / 3, HeartbeatTimeoutMs: timeout, FilterBytes: maxFilter,
		},
	}}})
}

// send writes messages to the transport. It blocks while the client takes nothing, until the context ends.
func (c *connection) send(ctx context.Context, messages ...*streampb.ConnectResponse) error {
	return c.writer.Send(ctx, messages...)
}

// runSend sends what the session has until it is over.
func (c *connection) runSend(ctx context.Context) error {
	for {
		batches, notices, err := c.session.Receive(ctx)
		for _, n := range notices {
			if err := c.send(ctx, noticeMessage(n)); err != nil {
				return err
			}
		}
		if err != nil {
			return err
		}
		for _, b := range batches {
			if err := c.account.Wait(ctx, len(b.Events), b.Bytes); err != nil {
				return err
			}
			if err := c.send(ctx, c.server.batchMessage(b)); err != nil {
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

// runReceive does what the client asks for until it leaves.
func (c *connection) runReceive(ctx context.Context) error {
	for {
		select {
		case r, ok := <-c.requests:
			switch {
			case ok:
			case errors.Is(c.left, io.EOF) && c.hello.auto: // it need not say anything
				c.hearing.Deafen(true)
				<-ctx.Done()
				return context.Cause(ctx)
			case fault.Of(c.left) != "":
				return c.left
			default:
				return errLeft
			}
			if err := c.handle(ctx, r); err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// runBeat tells the client now and then that the node is there.
func (c *connection) runBeat(ctx context.Context) error {
	beat := time.NewTicker(c.server.cfg.HeartbeatTimeout / 3)
	defer beat.Stop()
	for {
		select {
		case <-beat.C:
			message := &streampb.ConnectResponse{Message: &streampb.ConnectResponse_Heartbeat{Heartbeat: &streampb.Heartbeat{}}}
			if err := c.send(ctx, message); err != nil {
				return err
			}
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
			return fault.Newf(fault.SessionTooWide, "a session has at most %d subscriptions", c.server.cfg.MaxSubscriptions)
		}
		if err := c.slowDown(ctx, n); err != nil {
			return err
		}
		subscriptions, answers := c.compile(m.Subscribe.GetSubscriptions())
		from := wire.PlaceOf(c.session.Subscribe(subscriptions))
		for _, a := range answers {
			if subscribed := a.GetSubscribed(); subscribed != nil {
				subscribed.From = everywhere(c.server.cfg.Partitions, from)
			}
		}
		return c.send(ctx, answers...)
	case *streampb.ConnectRequest_Unsubscribe:
		ids := m.Unsubscribe.GetIds()
		if err := c.slowDown(ctx, len(ids)); err != nil {
			return err
		}
		c.session.Unsubscribe(ids)
		c.giveBack(ids)
	case *streampb.ConnectRequest_Attach:
		return c.attach(ctx, m.Attach.GetPositions())
	case *streampb.ConnectRequest_Detach:
		return c.session.Detach(partitionsOf[change.Partition](m.Detach.GetPartitions()))
	case *streampb.ConnectRequest_Heartbeat:
	default:
		return fault.Newf(fault.SessionBadRequest, "a hello, or a message that this version does not know")
	}
	return nil
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
			c.saveRow(context.WithoutCancel(ctx))
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
	saving, cancel := context.WithTimeout(ctx, rowTimeout)
	defer cancel()
	err := c.server.cfg.Rows.SaveRow(saving, checkpoint.Row{
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
