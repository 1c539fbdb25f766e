package gateways

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/cmd/bench/contender"
	"github.com/mongostream/streamer/gateway/fanout"
	"github.com/mongostream/streamer/gateway/wire"
	"github.com/mongostream/streamer/internal/mongodb/stream"
	"github.com/mongostream/streamer/lane"
	"github.com/mongostream/streamer/match"
)

// A crew is sessions of one hub, which all want every event. Some may never acknowledge.
type crew struct {
	sessions int
	stalled  int // of them
	size     int // bytes of a document
	burst    int // events of a reply
	shape    func(session int) wire.Shape
	delays   bool // measure them too, after the rate

	round   *contender.Round
	feed    *feed
	running sync.WaitGroup
	ctx     context.Context //nolint:containedctx // the life of the crew, between Open and Close
	end     context.CancelCauseFunc
	healthy []*member
	made    int // events

	missing atomic.Int64  // events that have yet to come to members that keep up
	arrived chan struct{} // holds one signal: nothing is missing
	pushed  atomic.Int64  // when the last reply was pushed, in nanoseconds since 1970
}

// A member is a session and who receives for it.
type member struct {
	session *fanout.Session
	delays  []time.Duration // of each event
}

// Readers implements contender.Contender.
func (c *crew) Readers(contender.Job) int { return 1 }

// crewCredit is a session's, in events: little, so that who stalls is out of it before the clocks begin.
const crewCredit = 2048

// Open implements contender.Contender. The clocks begin in Read.
func (c *crew) Open(ctx context.Context, round *contender.Round) error {
	c.round, c.feed, c.arrived = round, newFeed(), make(chan struct{}, 1)
	log := lane.NewLog(lane.Config{Partitions: 1}, c.feed)
	hub := fanout.New(fanout.Config{Partitions: 1, JSON: stream.DocumentJSON, CreditEvents: crewCredit}, log)
	c.ctx, c.end = context.WithCancelCause(context.WithoutCancel(ctx))
	begin := change.At(timeOf(0).Prev())
	c.running.Go(func() { c.end(log.Run(c.ctx, begin)) })
	c.running.Go(func() { c.end(hub.Run(c.ctx)) })
	program, err := match.Compile(match.Filter{})
	if err != nil {
		return fmt.Errorf("open a crew: %w", err)
	}
	for i := range c.sessions {
		session, err := hub.Open(c.ctx, //nolint:contextcheck // it lives as long as the crew
			fanout.SessionConfig{Gateway: fmt.Sprint(i), Start: begin},
			[]fanout.Subscription{{ID: "all", Program: program, Shape: c.shape(i)}})
		if err != nil {
			return fmt.Errorf("open a crew: %w", err)
		}
		m := &member{session: session}
		if i < c.stalled {
			c.running.Go(func() { m.stall(c.ctx) })
			continue
		}
		c.healthy = append(c.healthy, m)
		c.running.Go(func() { c.end(c.follow(m)) })
	}
	// Until everybody is on the live path, and who stalls is off it again.
	warm := 4 * c.burst
	if c.delays {
		warm = 2 * crewCredit
	}
	for c.made < warm {
		if err := c.send(ctx, c.burst); err != nil {
			return err
		}
	}
	for _, m := range c.healthy {
		m.delays = m.delays[:0]
	}
	return nil
}

// follow receives and acknowledges for a member that keeps up.
func (c *crew) follow(m *member) error {
	for {
		batches, _, err := m.session.Receive(c.ctx)
		if err != nil {
			return err
		}
		delay := time.Since(time.Unix(0, c.pushed.Load()))
		for _, b := range batches {
			if err := m.session.Ack(b.Partition, b.To); err != nil {
				return err
			}
			for range b.Events {
				m.delays = append(m.delays, delay)
			}
			if n := len(b.Events); n > 0 && c.missing.Add(-int64(n)) == 0 {
				c.arrived <- struct{}{}
			}
		}
	}
}

// stall receives for a member and never acknowledges.
func (m *member) stall(ctx context.Context) {
	for {
		if _, _, err := m.session.Receive(ctx); err != nil {
			return
		}
	}
}

// send makes one reply of events and waits until everybody who keeps up has them.
func (c *crew) send(ctx context.Context, events int) error {
	reply := make([][]byte, events)
	for i := range reply {
		raw, err := eventOf("insert", c.made, int64(c.made), bson.D{{Key: "_id", Value: int64(c.made)}, {Key: "pad", Value: strings.Repeat("x", c.size)}})
		if err != nil {
			return err
		}
		reply[i] = raw
		c.made++
	}
	c.missing.Add(int64(events * len(c.healthy)))
	c.pushed.Store(time.Now().UnixNano())
	if err := c.feed.push(ctx, c.ctx.Done(), reply); err != nil {
		return err
	}
	select {
	case <-c.arrived:
		return nil
	case <-c.ctx.Done():
		return context.Cause(c.ctx) //nolint:contextcheck // why the crew has ended
	case <-ctx.Done():
		return fmt.Errorf("%d events have not come: %w", c.missing.Load(), context.Cause(ctx))
	}
}

// Read implements contender.Contender.
func (c *crew) Read(ctx context.Context) error {
	c.round.Begin()
	for sent := 0; sent < c.round.Steps; sent += c.burst {
		if err := c.send(ctx, c.burst); err != nil {
			return err
		}
	}
	c.round.Did(c.round.Steps)
	if c.delays {
		for _, m := range c.healthy {
			c.round.Delayed(m.delays)
		}
	}
	return nil
}

// Close implements contender.Contender.
func (c *crew) Close() error {
	if c.end != nil {
		c.end(context.Canceled)
	}
	c.running.Wait()
	return nil
}

// many are sessions that want an event as JSON: all in the same form, which is written once, or each in a form of its own.
func many(own bool) contender.Contender {
	return &crew{sessions: 1000, size: 1000, burst: 1, shape: func(session int) wire.Shape {
		shape := wire.Shape{Format: wire.JSON}
		if own {
			shape.Fields = []string{"pad", fmt.Sprint("none", session)}
		}
		return shape
	}}
}

// beside are sessions that keep up beside so many that do not.
func beside(stalled int) contender.Contender {
	return &crew{sessions: 90 + stalled, stalled: stalled, size: 200, burst: 32, delays: true, shape: func(int) wire.Shape { return wire.Shape{} }}
}

var _ contender.Contender = (*crew)(nil)
