package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/mongostream/streamer/gateway/streampb"
)

// A session is one connection, from its Hello to its end.
type session struct {
	feed

	client  *Client
	address string
	stream  stream
	silence *time.Timer   // runs while a message is awaited
	timeout time.Duration // for silence
	beat    time.Duration // between heartbeats
	closing chan struct{} // closed when no further acknowledgements follow

	before   *session      // the session that this one replaces, because its node is about to stop; may be nil
	stopping chan struct{} // holds one signal: the node is about to stop
	welcome  *streampb.Welcome
	rewound  bool // the node did not accept the client's position, because an operator has rewound the subscriber
	welcomed bool
	begun    bool     // the begin position is known
	held     []Notice // notices held until then
	topology *streampb.Topology
	seq      uint64 // of the last batch
	to       place  // its end
	work     *work  // set by the welcome
}

var _ member = (*session)(nil)

func newSession(c *Client, address string, before *session) *session {
	s := &session{
		client: c, address: address, before: before, closing: make(chan struct{}), stopping: make(chan struct{}, 1),
		timeout: c.cfg.Timeout, beat: c.cfg.Timeout / 3,
	}
	s.outbox = newOutbox()
	s.rest = make(chan struct{}, 1)
	return s
}

// run runs the session. Its error says why the session ended.
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
		if c.fleet != nil {
			c.fleet.down(s)
		}
		if s.work != nil { // afterwards, because sessions that wait for others look again then
			s.work.forget(&s.feed)
		}
	}()
	var err error
	if s.stream, err = c.dial(streaming, s.address); err != nil {
		return s.reason(streaming, err)
	}
	defer func() { _ = s.stream.Close() }() // the session has ended
	hello := c.hello(s)
	if err := s.stream.Send(&streampb.ConnectRequest{Message: &streampb.ConnectRequest_Hello{Hello: hello}}); err != nil && !errors.Is(err, io.EOF) {
		return s.reason(streaming, err)
	}
	if err := s.answered(ctx, hello); err != nil {
		return s.reason(streaming, err)
	}
	if !opening() {
		return context.Cause(ctx)
	}
	return s.serve(ctx, streaming)
}

// wait waits for the end of the session. It returns errStopping earlier if the node is about to
// stop, another address is available, and the position is known, so that another session can take
// over.
func (s *session) wait(ended <-chan error, others bool) error {
	select {
	case err := <-ended:
		return err
	case <-s.stopping:
	}
	if others && !s.client.Position().IsZero() {
		s.client.cfg.Logger.Info("node announced shutdown", "address", s.address)
		return errStopping
	}
	return <-ended
}

// hasMoved reports whether the session has made progress.
func (s *session) hasMoved() bool { return s.work != nil && s.work.hasMoved(&s.feed) }

// reason returns why the session ended. A cause set by the client takes precedence over the
// resulting error.
func (s *session) reason(streaming context.Context, err error) error {
	if streaming.Err() != nil {
		return context.Cause(streaming)
	}
	if errors.Is(err, io.EOF) {
		return errEnded
	}
	return hinted(faultOf(err))
}

// answered handles the answer to the Hello.
func (s *session) answered(ctx context.Context, hello *streampb.Hello) error {
	message, err := s.receive()
	if err != nil {
		return err
	}
	_, m, err := s.client.read(message)
	if err != nil {
		return err
	}
	w := m.GetWelcome()
	if w == nil || w.GetPartitionCount() == 0 || w.GetPartitionCount() > maxPartitions {
		return fmt.Errorf("%w: expected a welcome", errProtocol)
	}
	if interval := w.GetLimits().GetHeartbeatIntervalMs(); interval > 0 {
		s.beat = time.Duration(interval) * time.Millisecond
	}
	if timeout := w.GetLimits().GetHeartbeatTimeoutMs(); timeout > 0 {
		s.timeout = time.Duration(timeout) * time.Millisecond
	}
	s.welcome = w
	s.welcomed = true
	s.rewound = hello.GetPosition() != nil && w.GetBegin() != streampb.Begin_BEGIN_POSITIONS
	s.client.stats.sessions.Add(1)
	before := s.client.working()
	if s.work, err = s.client.adopt(ctx, w.GetCluster(), w.GetPartitionCount()); err != nil {
		return err
	}
	if s.work != before {
		s.era = 0
	}
	s.client.cfg.Logger.Info("session started", "address", s.address, "node", w.GetNode(), "begin", w.GetBegin().String())
	s.held = []Notice{Connected{
		Address: s.address, Cluster: w.GetCluster(), Node: w.GetNode(), PartitionCount: w.GetPartitionCount(), Begin: Begin(w.GetBegin()),
	}}
	return nil
}

// serve sends and receives until the session breaks, or until the context ends and the last
// acknowledgements have been sent.
func (s *session) serve(ctx, streaming context.Context) error {
	receiving, stop := context.WithCancel(ctx) // ends with either context
	defer stop()
	defer context.AfterFunc(streaming, stop)()
	broken := make(chan error, 1)
	var both sync.WaitGroup
	defer both.Wait()
	both.Go(func() { broken <- s.runReceive(receiving) })
	both.Go(func() { s.runSend(streaming) })
	defer s.fail(errEnded) // an earlier cause is kept
	select {
	case err := <-broken:
		return s.reason(streaming, err)
	case <-ctx.Done():
	}
	s.work.close()
	if s.client.cfg.Acks == AckAuto { // nothing to acknowledge
		return context.Cause(ctx)
	}
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

// receive returns one message. The silence timer runs while it waits.
func (s *session) receive() ([]byte, error) {
	s.silence.Reset(s.timeout)
	m, err := s.stream.Recv()
	s.silence.Stop()
	return m, err
}

// runReceive handles messages until the session breaks. If the context ends while a message is
// handled, it discards the following messages: a change must not be handled after one that was not.
func (s *session) runReceive(ctx context.Context) error {
	for {
		message, err := s.receive()
		if err != nil {
			return err
		}
		b, m, err := s.client.read(message)
		switch {
		case err != nil:
		case b != nil:
			err = s.batch(ctx, b)
		default:
			err = s.other(ctx, m)
		}
		if err != nil && ctx.Err() == nil {
			return err
		}
		if err != nil {
			return s.discard()
		}
	}
}

// discard receives until the session breaks.
func (s *session) discard() error {
	for {
		if _, err := s.receive(); err != nil {
			return err
		}
	}
}

// other handles a message that is not a batch.
func (s *session) other(ctx context.Context, m *streampb.ConnectResponse) error {
	switch m := m.GetMessage().(type) {
	case *streampb.ConnectResponse_Subscribed:
		if s.outbox.answered(m.Subscribed.GetId(), false) {
			return s.notify(ctx, Subscribed{Subscription: m.Subscribed.GetId()})
		}
	case *streampb.ConnectResponse_Rejected:
		if r := m.Rejected; s.outbox.answered(r.GetId(), true) {
			rejected := Rejected{Subscription: r.GetId(), Code: r.GetCode(), Message: r.GetMessage(), Remedy: r.GetRemedy()}
			err := s.notify(ctx, rejected)
			s.client.reject(ctx, rejected)
			return err
		}
	case *streampb.ConnectResponse_Notice:
		s.heard(serviceOf(m.Notice))
	case *streampb.ConnectResponse_Topology:
		if s.topology = m.Topology; s.begun && s.client.fleet != nil {
			s.client.fleet.learn(m.Topology)
		}
	default: // a heartbeat, or a message of a later version
	}
	return nil
}

// notify passes on a notice that must not be dropped, in order.
func (s *session) notify(ctx context.Context, n Notice) error {
	if !s.begun {
		s.held = append(s.held, n)
		return nil
	}
	return s.client.notify(ctx, n)
}

// heard handles a notice about the service.
func (s *session) heard(n Service) {
	s.client.offer(n)
	switch {
	case s.client.fleet != nil && n.Kind == ShuttingDown:
		s.client.fleet.retreat(s)
	case s.client.fleet == nil && n.Kind == ShuttingDown:
		notify(s.stopping)
	}
}

// batch passes a batch to its partitions. It blocks while the queue is full, at losses and marks of
// snapshots, and at changes of all partitions.
func (s *session) batch(ctx context.Context, b *batch) error {
	if err := s.check(b); err != nil {
		return err
	}
	s.seq, s.to = b.seq, b.to
	if !s.begun {
		if err := s.begins(ctx, b); err != nil {
			return err
		}
	}
	if len(b.detached) > 0 {
		s.work.withdraw(&s.feed, b.detached, b.seq)
		s.client.fleet.withdrawn(s, b.detached)
	}
	if err := s.client.room.take(ctx, &s.guest, b.size); err != nil {
		return err
	}
	return s.work.push(ctx, &s.feed, b)
}

// check validates a batch.
func (s *session) check(b *batch) error {
	partitions := s.welcome.GetPartitionCount()
	switch {
	case b.seq != s.seq+1:
		return fmt.Errorf("%w: batch %d after %d", errProtocol, b.seq, s.seq)
	case (b.loss != nil || b.snapshot != nil) && len(b.events) > 0:
		return fmt.Errorf("%w: batch %d has events and a notice", errProtocol, b.seq)
	case b.to.compare(&s.to) < 0 && b.attached == nil && b.loss.GetKind() != streampb.Loss_KIND_REWOUND:
		return fmt.Errorf("%w: batch %d is earlier than its predecessor", errProtocol, b.seq)
	case slices.ContainsFunc(slices.Concat(b.attached, b.detached), func(p uint32) bool { return p >= partitions }):
		return fmt.Errorf("%w: batch %d attaches or detaches partitions of %d", errProtocol, b.seq, partitions)
	case len(b.attached)+len(b.detached) > 0 && s.client.fleet == nil:
		return fmt.Errorf("%w: batch %d attaches or detaches partitions of a session that has all partitions", errProtocol, b.seq)
	}
	for i := range b.events {
		if b.events[i].partition >= partitions {
			return fmt.Errorf("%w: event in partition %d of %d", errProtocol, b.events[i].partition, partitions)
		}
	}
	return nil
}

// begins handles the first batch, which says where the session begins.
func (s *session) begins(ctx context.Context, b *batch) error {
	c := s.client
	if s.rewound {
		if err := s.work.rewound(ctx, &s.feed, &b.to, s.welcome.GetGeneration()); err != nil {
			return err
		}
	}
	if !s.work.begin(&s.feed, &b.to, c.fleet == nil, s.before != nil, s.welcome.GetGeneration()) {
		return errRewound
	}
	for _, n := range s.held {
		if err := c.notify(ctx, n); err != nil {
			return err
		}
	}
	s.held, s.begun = nil, true
	if c.fleet != nil {
		c.fleet.up(s, s.welcome.GetNode(), s.welcome.GetPartitionCount())
		c.fleet.learn(s.topology)
	}
	return nil
}

// attach implements member.
func (s *session) attach(partitions []uint32) {
	s.work.want(&s.feed, partitions, true)
	s.outbox.attach(partitions, true)
}

// detach implements member.
func (s *session) detach(partitions []uint32) {
	s.work.want(&s.feed, partitions, false)
	s.outbox.attach(partitions, false)
}

// leave implements member. It has no effect on a session that has ended. The node sees that the
// stream ends, and the next session brings everything that this one has not begun to handle: so
// this one stops first.
func (s *session) leave() {
	s.work.leave(&s.feed)
	s.fail(errLeft)
	if s.before != nil {
		s.before.leave()
	}
}

// runSend sends until the stream ends or the last acknowledgement has been sent.
func (s *session) runSend(streaming context.Context) {
	beat := time.NewTicker(s.beat)
	defer beat.Stop()
	for {
		var messages []*streampb.ConnectRequest
		last := false
		select {
		case <-s.outbox.woken:
			s.follow()
		case <-beat.C:
			heartbeat := &streampb.Heartbeat{Checks: s.client.checks()}
			messages = append(messages, &streampb.ConnectRequest{Message: &streampb.ConnectRequest_Heartbeat{Heartbeat: heartbeat}})
		case <-s.closing:
			last = true
		case <-streaming.Done():
			return
		}
		messages = append(messages, s.outbox.take(s.client.wanted, func(partitions []uint32) []*streampb.PartitionPosition {
			return s.work.ask(&s.feed, partitions)
		})...)
		for _, m := range messages {
			if m.GetAck() != nil && s.client.cfg.Acks == AckAuto {
				continue
			}
			if err := s.stream.Send(m); err != nil {
				if !errors.Is(err, io.EOF) { // io.EOF: the stream is broken, and Recv returns the cause
					s.fail(err)
				}
				return
			}
		}
		if last {
			_ = s.stream.CloseSend() // Recv returns the error
			return
		}
	}
}

// follow ends the sessions that this one has caught up with.
func (s *session) follow() {
	partitions, caught := s.work.arrived(&s.feed)
	if s.client.fleet != nil && len(partitions) > 0 {
		s.client.fleet.arrived(s, partitions)
	}
	if before := s.before; before != nil && caught {
		before.leave()
	}
}
