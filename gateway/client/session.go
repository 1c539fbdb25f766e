package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mongostream/streamer/gateway/client/fleet"
	"github.com/mongostream/streamer/gateway/client/link"
	"github.com/mongostream/streamer/gateway/client/notice"
	"github.com/mongostream/streamer/gateway/client/partition"
	"github.com/mongostream/streamer/gateway/streampb"
)

// A session is one connection, from Hello to its end.
type session struct {
	client  *Client
	address string
	stream  link.Stream
	outbox  *link.Outbox
	fail    context.CancelCauseFunc // ends the session
	silence *time.Timer             // runs while something is to come
	timeout time.Duration           // of silence
	beat    time.Duration           // between heartbeats
	closing chan struct{}           // closed when nothing more will be acknowledged

	before   *session      // serves until this one does, as its node is about to stop; may be nil
	stopping chan struct{} // holds one signal: the node is about to stop
	welcomed bool
	moved    atomic.Bool     // something was handled
	held     []notice.Notice // until it is known where the session began
	all      *partition.Set  // of the welcome
}

var (
	_ partition.Source = (*session)(nil)
	_ fleet.Session    = (*session)(nil)
)

func newSession(c *Client, address string) *session {
	return &session{
		client: c, address: address, outbox: link.NewOutbox(), closing: make(chan struct{}), stopping: make(chan struct{}, 1),
		timeout: c.cfg.Timeout, beat: c.cfg.Timeout / 3,
	}
}

// run is the session from beginning to end. Its error says why it ended.
func (s *session) run(ctx context.Context) error {
	c := s.client
	// The stream outlives the context, for the last acknowledgements.
	streaming, fail := context.WithCancelCause(context.WithoutCancel(ctx))
	defer fail(errEnded)
	s.fail = fail
	s.silence = time.AfterFunc(s.timeout, func() { fail(errSilent) })
	defer s.silence.Stop()
	opening := context.AfterFunc(ctx, func() { fail(context.Cause(ctx)) })
	defer opening()
	defer func() {
		c.mu.Lock()
		delete(c.mu.sessions, s)
		c.mu.Unlock()
		if s.all != nil {
			s.all.Forget(s)
		}
		if c.fleet != nil {
			c.fleet.Down(s)
		}
	}()
	var err error
	if s.stream, err = c.dial(streaming, s.address); err != nil {
		return s.reason(streaming, err)
	}
	defer func() { _ = s.stream.Close() }() // it is over either way
	hello := c.hello(s)
	if err := s.stream.Send(&streampb.ConnectRequest{Message: &streampb.ConnectRequest_Hello{Hello: hello}}); err != nil && !errors.Is(err, io.EOF) {
		return s.reason(streaming, err)
	}
	if err := s.welcome(ctx, hello); err != nil {
		return s.reason(streaming, err)
	}
	if !opening() {
		return context.Cause(ctx)
	}
	return s.serve(ctx, streaming)
}

// wait waits for the session's end; or only until its node is about to stop, errStopping, where another session can take over meanwhile: at
// another address, and from where all partitions are known to stand.
func (s *session) wait(ended <-chan error, others bool) error {
	select {
	case err := <-ended:
		return err
	case <-s.stopping:
	}
	if _, known := s.client.Positions(); known && others {
		s.client.cfg.Logger.Info("the node is about to stop", "address", s.address)
		return errStopping
	}
	return <-ended
}

// reason returns why the session has ended: what we ended it for comes before what that led to.
func (s *session) reason(streaming context.Context, err error) error {
	if streaming.Err() != nil {
		return context.Cause(streaming)
	}
	if errors.Is(err, io.EOF) {
		return errEnded
	}
	return link.FaultOf(err)
}

// welcome reads the answer to the Hello.
func (s *session) welcome(ctx context.Context, hello *streampb.Hello) error {
	m, err := s.receive()
	if err != nil {
		return err
	}
	w := m.GetWelcome()
	if w == nil || w.GetPartitionCount() == 0 {
		return fmt.Errorf("%w: no welcome", errProtocol)
	}
	if interval := w.GetLimits().GetHeartbeatIntervalMs(); interval > 0 {
		s.beat = time.Duration(interval) * time.Millisecond
	}
	if timeout := w.GetLimits().GetHeartbeatTimeoutMs(); timeout > 0 {
		s.timeout = time.Duration(timeout) * time.Millisecond
	}
	s.welcomed = true
	s.client.stats.sessions.Add(1)
	if s.all, err = s.client.adopt(ctx, w.GetCluster(), w.GetPartitionCount()); err != nil {
		return err
	}
	if s.client.fleet != nil {
		s.client.fleet.Up(s, w.GetNode(), w.GetPartitionCount())
	}
	s.client.cfg.Logger.Info("session began", "address", s.address, "node", w.GetNode(), "recovered", w.GetRecovered())
	connected := notice.Connected{
		Address: s.address, Cluster: w.GetCluster(), Node: w.GetNode(), PartitionCount: w.GetPartitionCount(), Recovered: w.GetRecovered(),
	}
	if hello.GetStart() != streampb.Start_START_RESUME {
		s.held = []notice.Notice{connected} // until a batch tells where it began: another session could not go on there before
		return nil
	}
	return s.client.tell(ctx, connected)
}

// serve sends and receives until the session breaks, or the context ends and the last acknowledgements have been sent.
func (s *session) serve(ctx, streaming context.Context) error {
	receiving, stop := context.WithCancel(ctx) // it ends with either
	defer stop()
	defer context.AfterFunc(streaming, stop)()
	broken := make(chan error, 1)
	var both sync.WaitGroup
	defer both.Wait()
	both.Go(func() { broken <- s.runReceive(receiving) })
	both.Go(func() { s.runSend(streaming) })
	defer s.fail(errEnded) // the first reason stays
	select {
	case err := <-broken:
		return s.reason(streaming, err)
	case <-ctx.Done():
	}
	s.all.Close()
	close(s.closing)
	patience := time.NewTimer(s.client.cfg.StopTimeout)
	defer patience.Stop()
	select {
	case err := <-broken:
		s.client.cfg.Logger.Debug("session stopped", "address", s.address, "error", err)
	case <-patience.C:
	}
	return context.Cause(ctx)
}

// receive takes one message. While there is none, the silence is timed.
func (s *session) receive() (*streampb.ConnectResponse, error) {
	s.silence.Reset(s.timeout)
	m, err := s.stream.Recv()
	s.silence.Stop()
	return m, err
}

// runReceive takes messages until the session breaks. Once the context has ended they are of no use.
func (s *session) runReceive(ctx context.Context) error {
	for {
		m, err := s.receive()
		if err != nil {
			return err
		}
		switch m := m.GetMessage().(type) {
		case *streampb.ConnectResponse_Batch:
			err = s.batch(ctx, m.Batch)
		case *streampb.ConnectResponse_Subscribed:
			if s.outbox.Answered(m.Subscribed.GetId(), false) {
				err = s.notify(ctx, notice.Subscribed{Subscription: m.Subscribed.GetId()})
			}
		case *streampb.ConnectResponse_Rejected:
			if r := m.Rejected; s.outbox.Answered(r.GetId(), true) {
				rejected := notice.Rejected{Subscription: r.GetId(), Code: r.GetCode(), Message: r.GetMessage(), Remedy: r.GetRemedy()}
				err = s.notify(ctx, rejected)
				s.client.reject(ctx, rejected)
			}
		case *streampb.ConnectResponse_Notice:
			s.notice(notice.Of(m.Notice))
		case *streampb.ConnectResponse_Topology:
			if s.client.fleet != nil {
				s.client.fleet.Learn(m.Topology)
			}
		default: // a heartbeat, or something of a later version
		}
		if err != nil && ctx.Err() == nil {
			return err
		}
	}
}

// notify tells something that must not be dropped, in its turn.
func (s *session) notify(ctx context.Context, n notice.Notice) error {
	if s.held != nil {
		s.held = append(s.held, n)
		return nil
	}
	return s.client.tell(ctx, n)
}

// notice tells of something about the service.
func (s *session) notice(n notice.Notice) {
	s.client.offer(told{notice: n})
	_, stopping := n.(notice.ShuttingDown)
	_, detached := n.(notice.Detached)
	switch {
	case s.client.fleet != nil && (stopping || detached):
		s.client.fleet.Retreat(s)
	case stopping:
		select {
		case s.stopping <- struct{}{}:
		default:
		}
	}
}

// batch takes a batch to its partition.
func (s *session) batch(ctx context.Context, b *streampb.Batch) error {
	all := s.all
	if b.GetPartition() >= all.Count() || len(b.GetFrom().GetHead()) == 0 || len(b.GetTo().GetHead()) == 0 || b.GetLoss() != nil && len(b.GetEvents()) > 0 {
		return fmt.Errorf("%w: a batch of partition %d", errProtocol, b.GetPartition())
	}
	if s.held != nil {
		all.SetOrigin(partition.Of(b.GetFrom()))
		for _, n := range s.held {
			if err := s.client.tell(ctx, n); err != nil {
				return err
			}
		}
		s.held = nil
	}
	if s.client.fleet != nil {
		s.client.fleet.Arrived(s, b.GetPartition())
	}
	if s.before != nil && !partition.Of(b.GetFrom()).Equal(partition.Of(b.GetTo())) { // it is past where it begins
		s.before.Leave()
		s.before = nil
	}
	return all.Push(ctx, s, b)
}

// Attach implements fleet.Session.
func (s *session) Attach(partitions []uint32) { s.outbox.Attach(s.all.Stand(partitions, maxHello)) }

// Detach implements fleet.Session.
func (s *session) Detach(partitions []uint32) { s.outbox.Detach(partitions) }

// Leave implements fleet.Session. A session that has ended stays as it is.
func (s *session) Leave() { s.fail(errLeft) }

// Ack implements partition.Source.
func (s *session) Ack(partition uint32, to *streampb.Position) {
	if s.client.cfg.Acks != AckAuto {
		s.outbox.Ack(partition, to)
	}
}

// Moved implements partition.Source.
func (s *session) Moved() { s.moved.Store(true) }

// Hole implements partition.Source: another session goes on where the partition stands.
func (s *session) Hole() { s.fail(errHole) }

// runSend sends what there is until the stream ends, or everything has been acknowledged that will be.
func (s *session) runSend(streaming context.Context) {
	beat := time.NewTicker(s.beat)
	defer beat.Stop()
	for {
		var beating, elsewhere []*streampb.ConnectRequest
		last := false
		select {
		case <-s.outbox.Woken():
		case <-beat.C:
			heartbeat := &streampb.Heartbeat{Checks: s.client.checks()}
			beating = append(beating, &streampb.ConnectRequest{Message: &streampb.ConnectRequest_Heartbeat{Heartbeat: heartbeat}})
			elsewhere = s.elsewhere()
		case <-s.closing:
			last, elsewhere = true, s.elsewhere()
		case <-streaming.Done():
			return
		}
		for _, m := range slices.Concat(beating, s.outbox.Take(s.client.wanted), elsewhere) {
			if err := s.stream.Send(m); err != nil {
				if !errors.Is(err, io.EOF) { // io.EOF: the stream has broken, and Recv tells why
					s.fail(err)
				}
				return
			}
		}
		if last {
			_ = s.stream.CloseSend() // Recv tells
			return
		}
	}
}

// elsewhere tells the node where the program stands in partitions that other nodes serve, for what it keeps under the gateway's id.
func (s *session) elsewhere() []*streampb.ConnectRequest {
	if s.client.fleet == nil || s.client.cfg.Acks == AckAuto {
		return nil
	}
	positions := s.all.Stand(s.client.fleet.Elsewhere(s), 0)
	return []*streampb.ConnectRequest{{Message: &streampb.ConnectRequest_Ack{Ack: &streampb.Ack{Positions: positions}}}}
}
