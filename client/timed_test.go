package client

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/mongostream/streamer/gateway/streampb"
)

// A pipe is a stream without a network, so that a bubble's clock moves on.
type pipe struct {
	ctx      context.Context
	sent     chan *streampb.ConnectRequest
	received chan *streampb.ConnectResponse
	ends     chan error // the node ends the session
	deaf     bool
	broken   atomic.Bool // nothing can be sent
	seq      uint64
}

func (p *pipe) Send(m *streampb.ConnectRequest) error {
	if p.broken.Load() {
		return errors.New("broken")
	}
	select {
	case p.sent <- m:
		return nil
	case <-p.ctx.Done():
		return io.EOF
	}
}

func (p *pipe) Recv() ([]byte, error) {
	select {
	case m := <-p.received:
		return proto.Marshal(m)
	case err := <-p.ends:
		return nil, err
	case <-p.ctx.Done():
		return nil, context.Cause(p.ctx)
	}
}

func (p *pipe) CloseSend() error {
	if !p.deaf {
		p.ends <- io.EOF
	}
	return nil
}

func (p *pipe) Close() error { return nil }

// A timed program runs a client in a bubble.
type timed struct {
	*Client

	t      *testing.T
	pipes  chan *pipe
	dials  []time.Duration // when, since the beginning
	refuse atomic.Bool
	deaf   bool
	ended  chan error
	stop   context.CancelFunc
}

func startTimed(t *testing.T, cfg Config, handler Handler) *timed {
	t.Helper()
	p := newTimed(t, cfg, handler)
	p.run()
	return p
}

func newTimed(t *testing.T, cfg Config, handler Handler) *timed {
	t.Helper()
	p := &timed{t: t, pipes: make(chan *pipe, 100), ended: make(chan error, 1)}
	cfg.Addresses, cfg.Subscriber, cfg.Start = []string{"localhost:1"}, "g", StartNow
	cfg.Logger = slog.New(slog.DiscardHandler)
	if cfg.OnNotice == nil {
		cfg.OnNotice = func(context.Context, Notice) error { return nil }
	}
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Subscribe(Subscription{ID: "s"}, handler); err != nil {
		t.Fatal(err)
	}
	p.Client = c
	began := time.Now()
	c.dial = func(ctx context.Context, _ string) (stream, error) {
		p.dials = append(p.dials, time.Since(began))
		if p.refuse.Load() {
			return nil, errors.New("refused")
		}
		s := &pipe{ctx: ctx, sent: make(chan *streampb.ConnectRequest), received: make(chan *streampb.ConnectResponse), ends: make(chan error, 2), deaf: p.deaf}
		p.pipes <- s
		return s, nil
	}
	return p
}

func (p *timed) run() {
	ctx, stop := context.WithCancel(p.t.Context())
	p.stop = stop
	go func() { p.ended <- p.Run(ctx) }()
}

func (p *timed) end() {
	p.t.Helper()
	p.stop()
	if err := <-p.ended; err != nil {
		p.t.Error(err)
	}
}

// welcome takes the Hello and answers it, with a bookmark behind.
func (p *timed) welcome() *pipe {
	s := <-p.pipes
	<-s.sent
	s.received <- &streampb.ConnectResponse{Message: &streampb.ConnectResponse_Welcome{Welcome: &streampb.Welcome{
		Cluster: "c", PartitionCount: 1, Limits: &streampb.Limits{HeartbeatIntervalMs: 10_000, HeartbeatTimeoutMs: 30_000},
	}}}
	s.push("a")
	<-s.sent // its acknowledgement
	return s
}

func nothing(context.Context, Change) error { return nil }

func TestHeartbeatsGoAsOftenAsTheNodeAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startTimed(t, Config{Checks: func() []Check { return []Check{{Name: "db"}} }}, nothing)
		s := p.welcome()
		began := time.Now()
		for i := range 6 {
			if i%2 == 1 { // the node is there
				s.received <- &streampb.ConnectResponse{Message: &streampb.ConnectResponse_Heartbeat{}}
			}
			if m := <-s.sent; len(m.GetHeartbeat().GetChecks()) != 1 {
				t.Errorf("%v", m)
			}
		}
		if d := time.Since(began); d != time.Minute {
			t.Errorf("6 heartbeats took %s", d)
		}
		p.end()
		if p.Stats().Sessions != 1 {
			t.Errorf("%+v", p.Stats())
		}
	})
}

func TestSilentNodeIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startTimed(t, Config{}, nothing)
		s := p.welcome()
		began := time.Now()
		for open := true; open; { // it takes heartbeats, and says nothing
			select {
			case <-s.sent:
			case <-s.ctx.Done():
				open = false
			}
		}
		if d := time.Since(began); d != 30*time.Second || !errors.Is(context.Cause(s.ctx), errSilent) {
			t.Errorf("left after %s: %v", d, context.Cause(s.ctx))
		}
		p.welcome()
		p.end()
	})
}

func TestNodeThatDoesNotAnswerIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startTimed(t, Config{Timeout: 7 * time.Second}, nothing)
		s := <-p.pipes
		<-s.sent
		began := time.Now()
		<-s.ctx.Done()
		if d := time.Since(began); d != 7*time.Second {
			t.Errorf("left after %s", d)
		}
		<-p.pipes
		p.end()
	})
}

func TestSlowHandlerIsNoSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startTimed(t, Config{QueueBytes: 1}, func(context.Context, Change) error {
			time.Sleep(10 * time.Minute)
			return nil
		})
		s := p.welcome()
		go func() {
			for { // the node hears the heartbeats
				select {
				case <-s.sent:
				case <-s.ctx.Done():
					return
				}
			}
		}()
		for _, place := range []string{"b", "c", "d"} { // the third is not even taken before the first is handled
			s.push(place)
		}
		s.received <- &streampb.ConnectResponse{Message: &streampb.ConnectResponse_Heartbeat{}}
		if s.ctx.Err() != nil || p.Stats().Sessions != 1 {
			t.Errorf("%v, %+v", context.Cause(s.ctx), p.Stats())
		}
		p.end()
	})
}

// push sends the next batch, with changes of partition 0 at one-letter heads, the last of which is
// its end; "*" before a letter makes it one of all partitions. The first batch has none.
func (p *pipe) push(places string) {
	p.seq++
	b := &streampb.Batch{Seq: p.seq}
	all := false
	for _, letter := range places {
		if letter == '*' {
			all = true
			continue
		}
		b.To = make([]byte, placeSize)
		b.To[0], b.To[headSize] = byte(letter), 1
		if p.seq > 1 {
			b.Events = append(b.Events, &streampb.Event{Position: b.GetTo(), AllPartitions: all, Subscriptions: []string{"s"}})
		}
		all = false
	}
	p.received <- &streampb.ConnectResponse{Message: &streampb.ConnectResponse_Batch{Batch: b}}
}

func TestBrokenSessionEndsThoughHandlersAreSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startTimed(t, Config{QueueBytes: 1}, func(context.Context, Change) error {
			time.Sleep(10 * time.Minute)
			return nil
		})
		s := p.welcome()
		s.push("b")
		s.push("c") // it waits for room
		began := time.Now()
		s.broken.Store(true)
		<-p.pipes
		if d := time.Since(began); d > 11*time.Second { // the next heartbeat, and a moment
			t.Errorf("connected again after %s", d)
		}
		p.end()
	})
}

func TestWhatHandlersFinishAtTheEndIsAcknowledged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startTimed(t, Config{}, func(context.Context, Change) error {
			time.Sleep(5 * time.Second)
			return nil
		})
		s := p.welcome()
		s.push("b")
		synctest.Wait()
		p.stop()
		if seq := (<-s.sent).GetAck().GetSeq(); seq != 2 {
			t.Errorf("acknowledged up to %d", seq)
		}
		if err := <-p.ended; err != nil {
			t.Error(err)
		}
	})
}

func TestAttemptsToConnectGrowApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newTimed(t, Config{ReconnectWait: 100 * time.Millisecond, MaxReconnectWait: 10 * time.Second}, nothing)
		p.refuse.Store(true)
		p.run()
		time.Sleep(2 * time.Minute)
		p.end()
		if n := len(p.dials); n < 15 || n > 40 {
			t.Errorf("%d attempts in two minutes", n)
		}
		most := 100 * time.Millisecond
		for i := 1; i < len(p.dials); i++ {
			if wait := p.dials[i] - p.dials[i-1]; wait < most/2 || wait > most {
				t.Errorf("waited %s before attempt %d, want %s at most and half of that at least", wait, i, most)
			}
			most = min(2*most, 10*time.Second)
		}
	})
}

func TestWaitsBeginAnewAfterASessionThatMoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newTimed(t, Config{}, nothing)
		p.refuse.Store(true)
		p.run()
		time.Sleep(time.Minute) // the waits are long by now
		p.refuse.Store(false)
		s := p.welcome()
		began := time.Now()
		s.ends <- io.EOF
		s = p.welcome()
		if d := time.Since(began); d > 100*time.Millisecond {
			t.Errorf("waited %s after a session that moved", d)
		}
		began = time.Now()
		s.ends <- io.EOF
		s = p.welcome() // the one before moved nothing
		if d := time.Since(began); d < 100*time.Millisecond || d > 200*time.Millisecond {
			t.Errorf("waited %s after a session that did not", d)
		}
		time.Sleep(10 * time.Second)
		began = time.Now()
		s.ends <- io.EOF
		p.welcome()
		if d := time.Since(began); d > 100*time.Millisecond {
			t.Errorf("waited %s after one that was long", d)
		}
		p.end()
	})
}

func TestFailedHandlersAreCalledAgainAfterGrowingWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls []time.Time
		p := startTimed(t, Config{Attempts: 6, RetryWait: time.Second, MaxRetryWait: 5 * time.Second, OnPoison: func(context.Context, Poison) Decision { return Skip }},
			func(context.Context, Change) error {
				calls = append(calls, time.Now())
				return errors.New("no")
			})
		s := p.welcome()
		s.push("b")
		for (<-s.sent).GetAck() == nil { // after heartbeats
		}
		if len(calls) != 6 {
			t.Fatalf("%d calls", len(calls))
		}
		for i, most := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 5 * time.Second, 5 * time.Second} {
			if wait := calls[i+1].Sub(calls[i]); wait < most/2 || wait > most {
				t.Errorf("waited %s after call %d", wait, i+1)
			}
		}
		p.end()
	})
}

func TestStopWaitsForTheNodeOnlySoLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newTimed(t, Config{StopTimeout: 3 * time.Second}, nothing)
		p.deaf = true // the node does not hear that it ends
		p.run()
		s := p.welcome()
		began := time.Now()
		synctest.Wait()
		p.stop()
		<-s.ctx.Done()
		if d := time.Since(began); d != 3*time.Second {
			t.Errorf("it took %s", d)
		}
		if err := <-p.ended; err != nil {
			t.Error(err)
		}
	})
}

func TestNoticesThatNobodyTakesAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		taken := make(chan struct{})
		p := startTimed(t, Config{OnNotice: func(context.Context, Notice) error {
			<-taken
			return nil
		}}, nothing)
		s := p.welcome() // one notice is being taken: that it is connected
		for range maxNotices + 10 {
			s.received <- &streampb.ConnectResponse{Message: &streampb.ConnectResponse_Notice{Notice: &streampb.Notice{Kind: "stale"}}}
		}
		synctest.Wait()
		if n := p.Stats().NoticesDropped; n != 10 {
			t.Errorf("%d dropped", n)
		}
		close(taken)
		p.end()
	})
}

// A program is told of a rewind when nothing from before is being handled any more, also by a
// session that follows the one that has brought it.
func TestNothingFromBeforeIsHandledAfterARewind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told atomic.Int32
		handling, dealt := make(chan struct{}), make(chan struct{})
		p := startTimed(t, Config{OnNotice: func(_ context.Context, n Notice) error {
			if _, ok := n.(Rewound); ok {
				told.Add(1)
			}
			return nil
		}}, func(context.Context, Change) error {
			close(handling)
			<-dealt
			return nil
		})
		s := p.welcome()
		s.push("b")
		<-handling
		s.ends <- errors.New("broken")
		s = <-p.pipes
		<-s.sent
		s.received <- &streampb.ConnectResponse{Message: &streampb.ConnectResponse_Welcome{Welcome: &streampb.Welcome{
			Cluster: "c", PartitionCount: 1, Begin: streampb.Begin_BEGIN_CHECKPOINT, Generation: 1,
		}}}
		s.push("a")
		synctest.Wait()
		if n := told.Load(); n != 0 {
			t.Errorf("told %d times while a change from before was being handled", n)
		}
		close(dealt)
		<-s.sent // the acknowledgement of where it begins
		if n := told.Load(); n != 1 {
			t.Errorf("told %d times", n)
		}
		p.end()
	})
}

// Of an operator's rewind each session hears, in its stream or when it begins: the program is told
// once, however the tellings overlap.
func TestRewindThatSeveralSessionsHearOfIsToldOnce(t *testing.T) {
	for _, name := range []string{"both are there", "one begins", "one begins as before"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				told, dealt := 0, make(chan struct{})
				p := startTimed(t, Config{Partitions: Owned, OnNotice: func(ctx context.Context, n Notice) error {
					if _, ok := n.(Rewound); ok {
						told++
						select {
						case <-dealt:
						case <-ctx.Done():
						}
					}
					return nil
				}}, nothing)
				topology := &streampb.Topology{
					Version: 1, Nodes: []*streampb.Topology_Node{{Name: "0", Address: "localhost:1"}, {Name: "1", Address: "localhost:2"}}, Owners: []int32{0, 1},
				}
				hello := func() *pipe {
					s := <-p.pipes
					<-s.sent
					go func() { // it hears what the client says
						for {
							select {
							case <-s.sent:
							case <-s.ctx.Done():
								return
							}
						}
					}()
					return s
				}
				begin := func(s *pipe, node string, begin streampb.Begin, generation uint64) {
					welcome := &streampb.Welcome{Cluster: "c", Node: node, PartitionCount: 2, Begin: begin, Generation: generation}
					s.received <- &streampb.ConnectResponse{Message: &streampb.ConnectResponse_Welcome{Welcome: welcome}}
					s.received <- &streampb.ConnectResponse{Message: &streampb.ConnectResponse_Topology{Topology: topology}}
					s.push("a")
				}
				rewound := func(s *pipe) {
					s.seq++
					b := &streampb.Batch{Seq: s.seq, To: make([]byte, placeSize), Loss: &streampb.Loss{Kind: streampb.Loss_KIND_REWOUND, Generation: 1}}
					select {
					case s.received <- &streampb.ConnectResponse{Message: &streampb.ConnectResponse_Batch{Batch: b}}:
					case <-s.ctx.Done(): // the other one has been faster
					}
				}
				one := hello()
				begin(one, "0", streampb.Begin_BEGIN_START, 0)
				other := hello()
				switch name {
				case "one begins":
					rewound(one)
					synctest.Wait()
					begin(other, "1", streampb.Begin_BEGIN_CHECKPOINT, 1)
				case "one begins as before":
					rewound(one)
					synctest.Wait()
					begin(other, "1", streampb.Begin_BEGIN_POSITIONS, 0)
					synctest.Wait()
					if other.ctx.Err() == nil {
						t.Error("a session whose changes are from before has begun")
					}
				default:
					begin(other, "1", streampb.Begin_BEGIN_POSITIONS, 0)
					synctest.Wait()
					rewound(one)
					rewound(other)
				}
				synctest.Wait()
				close(dealt)
				synctest.Wait()
				if told != 1 {
					t.Errorf("told %d times", told)
				}
				p.end()
			})
		})
	}
}
