package client

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongostream/streamer/gateway/client/link"
	"github.com/mongostream/streamer/gateway/client/notice"
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

func (p *pipe) Recv() (*streampb.ConnectResponse, error) {
	select {
	case m := <-p.received:
		return m, nil
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
	cfg.Addresses, cfg.GatewayID, cfg.Start = []string{"localhost:1"}, "g", StartNow
	if cfg.OnNotice == nil {
		cfg.OnNotice = func(context.Context, notice.Notice) error { return nil }
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
	c.dial = func(ctx context.Context, _ string) (link.Stream, error) {
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
	at := &streampb.Position{Head: []byte("a")}
	s.received <- &streampb.ConnectResponse{Message: &streampb.ConnectResponse_Batch{Batch: &streampb.Batch{From: at, To: at}}}
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
		for _, heads := range []string{"ab", "bc", "cd"} { // the third is not even taken before the first is handled
			s.push(heads[:1], heads[1:])
		}
		s.received <- &streampb.ConnectResponse{Message: &streampb.ConnectResponse_Heartbeat{}}
		if s.ctx.Err() != nil || p.Stats().Sessions != 1 {
			t.Errorf("%v, %+v", context.Cause(s.ctx), p.Stats())
		}
		p.end()
	})
}

// push sends a change between two one-letter heads.
func (p *pipe) push(from, to string) {
	end := &streampb.Position{Head: []byte(to)}
	e := &streampb.Event{Position: &streampb.Position{Head: []byte(to), Hashes: [][]byte{{1}}}, Subscriptions: []string{"s"}}
	b := &streampb.Batch{From: &streampb.Position{Head: []byte(from)}, To: end, Events: []*streampb.Event{e}}
	p.received <- &streampb.ConnectResponse{Message: &streampb.ConnectResponse_Batch{Batch: b}}
}

func TestBrokenSessionEndsThoughHandlersAreSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startTimed(t, Config{QueueBytes: 1}, func(context.Context, Change) error {
			time.Sleep(10 * time.Minute)
			return nil
		})
		s := p.welcome()
		s.push("a", "b")
		s.push("b", "c") // it waits for room
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
		s.push("a", "b")
		synctest.Wait()
		p.stop()
		if positions := (<-s.sent).GetAck().GetPositions(); len(positions) != 1 || string(positions[0].GetPosition().GetHead()) != "b" {
			t.Errorf("%v", positions)
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
		s.push("a", "b")
		for len((<-s.sent).GetAck().GetPositions()) == 0 { // behind heartbeats
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
		p := startTimed(t, Config{OnNotice: func(context.Context, notice.Notice) error {
			<-taken
			return nil
		}}, nothing)
		s := p.welcome() // one notice is being taken: that it is connected
		for range maxTold + 10 {
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
