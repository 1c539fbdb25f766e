package gateway

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
	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway/access"
	"github.com/mongostream/streamer/gateway/streampb"
	"github.com/mongostream/streamer/match"
	"github.com/mongostream/streamer/streamer"
)

// A connection is one call of Connect.
type connection struct {
	server   *Server
	stream   streampb.Gateway_ConnectServer
	identity *access.Identity
	account  *access.Account
	writer   *writer
	requests chan *streampb.ConnectRequest
	silence  watchdog
	left     error // why requests is closed; io.EOF if the client only listens from now on

	unkept     error // why there are no snapshots on request
	ended      endedIDs
	auto       bool // batches count as acknowledged when they have been written
	subscriber *streamer.Exclusive
	limit      *rate.Limiter
	subscribed map[string]subscribed // by ID
	texts      int                   // bytes of the hello that are kept, without checks and subscriptions
	peer       *peerSession          // nil without a name
	goodbye    bool                  // the client has closed the stream from its side: it leaves in an orderly way
}

// run serves the connection until either side ends it.
func (c *connection) run(ctx context.Context) error {
	go c.read(ctx)
	go c.writer.run(ctx.Done())
	hello, err := c.first(ctx)
	if err != nil {
		return err
	}
	cost := c.server.input.Cost
	if err := c.account.Hold(cost(hello)); err != nil {
		return err
	}
	c.texts = cost(hello) - cost(&streampb.Heartbeat{Checks: hello.GetChecks()})
	request, err := c.server.readHello(hello, c.identity)
	if err != nil {
		return err
	}
	request.Account = c.account.Key()
	request.Readable = c.identity.Readable
	c.unkept = snapshotsKept(hello)
	c.auto = hello.GetAck() == streampb.AckMode_ACK_MODE_AUTO
	c.limit = rate.NewLimiter(rate.Limit(c.server.cfg.SubscribeRate), c.server.cfg.SubscribeBurst)
	g, ctx := errgroup.WithContext(ctx)
	silent, stall := c.server.cfg.HeartbeatTimeout, c.server.cfg.StallTimeout
	g.Go(func() error {
		return c.silence.run(ctx, silent, fault.Newf(fault.SessionSilent, "client sent nothing for %s, or does not receive the answers", silent))
	})
	g.Go(func() error {
		return c.writer.stall.run(ctx, stall, fault.Newf(fault.SessionStalled, "client took nothing of what was sent for %s", stall))
	})
	g.Go(func() error { return c.serve(ctx, request, hello) })
	return g.Wait()
}

// serve opens the session and serves it until it ends.
func (c *connection) serve(ctx context.Context, request streamer.Request, hello *streampb.Hello) (err error) {
	failing, err := readChecks(hello.GetChecks())
	if err != nil {
		return err
	}
	if err := c.slowDown(ctx, len(hello.GetSubscriptions())); err != nil {
		return err
	}
	subscriptions, answers, err := c.compile(ctx, hello.GetSubscriptions())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c.silence.ignore(true) // a client has nothing to say before it is welcome
	c.subscriber, err = c.server.node.Connect(ctx, request, subscriptions)
	c.silence.ignore(false)
	if err != nil {
		return err
	}
	defer func() { c.subscriber.Close(ctx, nil) }()
	over := c.server.cfg.Audit.begin(access.GRPC, addressOf(ctx), c.identity, request.Subscriber)
	defer func() { over(c.why(err)) }()
	c.peer = c.server.peers.enter(request, failing)
	defer func() { c.server.peers.exit(c.peer, c.goodbye) }()
	session := c.subscriber.Session()
	defer c.server.announces(session, c.identity)()
	if (c.subscriber.Begin() != streamer.BeginPositions || c.subscriber.Restarted()) && c.server.cfg.Recent != nil {
		for _, n := range c.server.cfg.Recent() {
			if mayKnow(c.identity, n) {
				session.Notify(n)
			}
		}
	}
	if err := c.writer.send(ctx, append([]any{c.welcome()}, answers...)...); err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return c.runSend(ctx, session) })
	g.Go(func() error { return c.runReceive(ctx) })
	g.Go(func() error { return c.runBeat(ctx) })
	g.Go(func() error { return c.runTopology(ctx) })
	return g.Wait()
}

// why says for the audit log why the session has ended.
func (c *connection) why(err error) string {
	switch {
	case fault.Of(err) != "":
		return string(fault.Of(err))
	case c.goodbye:
		return "closed by the client"
	case ended(err), errors.Is(err, context.Canceled), status.Code(err) == codes.Canceled:
		return "disconnected"
	}
	return "failed"
}

// read receives requests, one ahead of processing. It ends with the stream and its context.
func (c *connection) read(ctx context.Context) {
	defer close(c.requests)
	for {
		r, err := c.stream.Recv()
		if err != nil {
			c.left = err
			if status.Code(err) == codes.ResourceExhausted {
				c.left = fault.Newf(fault.SessionTooLarge, "message rejected: %s", status.Convert(err).Message())
			}
			return
		}
		c.silence.heard()
		select {
		case c.requests <- r:
		case <-ctx.Done():
			c.left = context.Cause(ctx)
			return
		}
	}
}

// first returns the first request, which must be a Hello.
func (c *connection) first(ctx context.Context) (*streampb.Hello, error) {
	timer := time.NewTimer(c.server.cfg.HandshakeTimeout)
	defer timer.Stop()
	select {
	case r, ok := <-c.requests:
		switch {
		case !ok && errors.Is(c.left, io.EOF):
			return nil, errLeft
		case !ok:
			return nil, c.left
		}
		if r.GetHello() == nil {
			return nil, fault.Newf(fault.SessionBadRequest, "the first message must be a Hello")
		}
		return r.GetHello(), nil
	case <-timer.C:
		return nil, fault.Newf(fault.SessionSilent, "no Hello within %s", c.server.cfg.HandshakeTimeout)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (c *connection) welcome() *streampb.ConnectResponse {
	cfg := c.server.cfg
	timeout := uint32(cfg.HeartbeatTimeout.Milliseconds())
	return &streampb.ConnectResponse{Message: &streampb.ConnectResponse_Welcome{Welcome: &streampb.Welcome{
		Cluster: cfg.Cluster, Node: cfg.Node, PartitionCount: uint32(cfg.Partitions), Generation: c.subscriber.Generation(),
		Begin: streampb.Begin(c.subscriber.Begin()),
		Limits: &streampb.Limits{
			Subscriptions: uint32(cfg.MaxSubscriptions), UnacknowledgedEvents: uint32(cfg.CreditEvents), UnacknowledgedBytes: uint64(cfg.CreditBytes),
			HeartbeatIntervalMs: timeout / 3, HeartbeatTimeoutMs: timeout, FilterBytes: match.MaxSource,
		},
	}}}
}

// runSend sends batches and notices until the session ends.
func (c *connection) runSend(ctx context.Context, session *delivery.Session) error {
	for {
		batches, notices, err := session.Receive(ctx)
		for _, n := range notices {
			if err := c.writer.send(ctx, noticeMessage(n)); err != nil {
				return err
			}
		}
		if err != nil {
			return err
		}
		for _, b := range batches {
			if err := c.account.Wait(ctx, len(b.Events), b.Size()); err != nil {
				return err
			}
			session.Prune(b)
			if b.Loss != nil && b.Owes() { // what compensates for it is in the checkpoint before the client can resume after the loss
				c.subscriber.Keep(ctx)
			}
			seq := b.Seq
			message := batchMessage(b)
			session.Recycle(b) // the message has a copy of its events
			if err := c.writer.send(ctx, message); err != nil {
				return err
			}
			if !c.auto {
				session.Delivered(seq)
			} else if err := c.subscriber.Ack(seq); err != nil {
				return err
			}
		}
	}
}

// errLeft says that the client has closed the connection.
var errLeft = errors.New("client disconnected")

// runReceive processes requests until the client disconnects.
func (c *connection) runReceive(ctx context.Context) error {
	for {
		select {
		case r, ok := <-c.requests:
			c.goodbye = !ok && errors.Is(c.left, io.EOF)
			switch {
			case ok:
			case c.goodbye && c.auto: // it has nothing to send
				c.silence.ignore(true)
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

// runBeat sends heartbeats.
func (c *connection) runBeat(ctx context.Context) error {
	beat := time.NewTicker(c.server.cfg.HeartbeatTimeout / 3)
	defer beat.Stop()
	for {
		select {
		case <-beat.C:
			message := &streampb.ConnectResponse{Message: &streampb.ConnectResponse_Heartbeat{Heartbeat: &streampb.Heartbeat{}}}
			if err := c.writer.send(ctx, message); err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// handle processes one request.
func (c *connection) handle(ctx context.Context, r *streampb.ConnectRequest) error {
	switch m := r.GetMessage().(type) {
	case *streampb.ConnectRequest_Ack:
		if c.auto {
			return fault.Newf(fault.SessionBadRequest, "ack: the session has ACK_MODE_AUTO, whose batches are acknowledged when they are sent")
		}
		return c.subscriber.Ack(m.Ack.GetSeq())
	case *streampb.ConnectRequest_Subscribe:
		return c.subscribe(ctx, m.Subscribe.GetSubscriptions())
	case *streampb.ConnectRequest_Unsubscribe:
		return c.unsubscribe(ctx, m.Unsubscribe.GetIds())
	case *streampb.ConnectRequest_Attach:
		if err := c.slowDown(ctx, 1); err != nil {
			return err
		}
		places, err := c.server.readPositions(m.Attach.GetPositions(), c.server.cfg.Partitions)
		if err != nil {
			return err
		}
		return c.subscriber.Attach(ctx, places)
	case *streampb.ConnectRequest_Detach:
		return c.subscriber.Session().Detach(partitionsOf[change.Partition](m.Detach.GetPartitions()))
	case *streampb.ConnectRequest_Heartbeat:
		failing, err := readChecks(m.Heartbeat.GetChecks())
		if err != nil {
			return err
		}
		if err := c.account.Hold(c.texts + c.server.input.Cost(m.Heartbeat)); err != nil {
			return err
		}
		c.server.peers.report(c.peer, failing)
	default:
		return fault.Newf(fault.SessionBadRequest, "unexpected or unknown message")
	}
	return nil
}
