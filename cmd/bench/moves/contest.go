package moves

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/cmd/bench/contender"
	"github.com/mongostream/streamer/gateway/client"
	"github.com/mongostream/streamer/gateway/client/notice"
)

// All are the contenders by their names.
func All() map[string]func() contender.Contender {
	return map[string]func() contender.Contender{
		"moved":     func() contender.Contender { return &contest{nodes: 2, move: (*cluster).drain} },
		"restarted": func() contender.Contender { return &contest{nodes: 1, move: (*cluster).restart} },
	}
}

// A contest is a cluster with two gateways, of which partitions change hands.
type contest struct {
	nodes int
	move  func(*cluster, context.Context) error

	round   *contender.Round
	cluster *cluster
	follows *gateway // follows the owners
	stays   *gateway // has one session
}

// Readers implements contender.Contender.
func (c *contest) Readers(contender.Job) int { return 1 }

// Open implements contender.Contender.
func (c *contest) Open(ctx context.Context, round *contender.Round) (err error) {
	c.round = round
	if c.cluster, err = open(ctx, round, c.nodes); err != nil {
		return err
	}
	if c.follows, err = c.connect(ctx, client.Owned, c.nodes); err != nil {
		return err
	}
	c.stays, err = c.connect(ctx, client.All, 1)
	return err
}

const (
	// before is how long everything goes its way before the move, after how long it is watched behind it: the node that gives partitions
	// away delivers on for a second.
	before, after = time.Second, 1500 * time.Millisecond
)

// Read implements contender.Contender.
func (c *contest) Read(ctx context.Context) error {
	w := newWriter(c.round.URI, c.round.DB, c.round.Rate)
	writing, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- w.run(writing) }()
	c.round.Begin()
	moved, err := c.watch(ctx, ended)
	stop()
	if err != nil {
		return err
	}
	if err := <-ended; err != nil {
		return err
	}
	numbers, total := w.written()
	for _, g := range []*gateway{c.follows, c.stays} {
		if err := g.await(ctx, numbers); err != nil {
			return err
		}
	}
	c.round.Did(total)
	c.round.Delayed(c.follows.check.watched(moved))
	c.round.Tell("p99_of_a_gateway_at_any_node", contender.P99(c.stays.check.watched(moved)))
	c.round.Tell("partitions", float64(len(moved)))
	c.round.Tell("came_again", float64(c.follows.client.Stats().Duplicates))
	return nil
}

// watch has partitions change hands, and returns which. The writer is not to end meanwhile.
func (c *contest) watch(ctx context.Context, writing <-chan error) (moved map[change.Partition]bool, err error) {
	if err := pause(ctx, before, writing); err != nil {
		return nil, err
	}
	c.follows.check.watch()
	if err := pause(ctx, before, writing); err != nil {
		return nil, err
	}
	if moved, err = c.cluster.owned(ctx, c.cluster.nodes[0]); err != nil {
		return nil, err
	}
	c.round.Tell("p99_before", contender.P99(c.follows.check.watched(moved)))
	c.follows.check.watch()
	c.stays.check.watch()
	begun := time.Now()
	if err := c.move(c.cluster, ctx); err != nil {
		return nil, err
	}
	c.round.Tell("move_took_s", time.Since(begun).Seconds())
	return moved, pause(ctx, after, writing)
}

// pause waits.
func pause(ctx context.Context, d time.Duration, writing <-chan error) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case err := <-writing:
		return errors.Join(errors.New("the writer has ended"), err)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Close implements contender.Contender.
func (c *contest) Close() error {
	var errs []error
	for _, g := range []*gateway{c.follows, c.stays} {
		if g != nil {
			errs = append(errs, g.close())
		}
	}
	if c.cluster != nil {
		errs = append(errs, c.cluster.close())
	}
	return errors.Join(errs...)
}

// A gateway is a Go client that checks what it gets.
type gateway struct {
	client *client.Client
	check  *check
	end    context.CancelFunc
	over   chan struct{} // closed when the client has ended
	err    error         // why, after that
}

// connect runs a gateway, and returns when it has so many sessions.
func (c *contest) connect(ctx context.Context, partitions client.Partitions, sessions int) (*gateway, error) {
	g := &gateway{check: newCheck(documents), over: make(chan struct{})}
	connected := make(chan struct{}, 100)
	var err error
	g.client, err = client.New(client.Config{
		Addresses: c.cluster.addresses(), GatewayID: fmt.Sprint("bench-", partitions), Start: client.StartNow, Partitions: partitions,
		OnNotice: func(_ context.Context, n notice.Notice) error {
			switch n := n.(type) {
			case notice.Connected:
				connected <- struct{}{}
			case notice.Resync:
				return fmt.Errorf("told of a loss: %+v", n)
			}
			return nil
		},
	})
	if err != nil {
		return nil, err
	}
	take := func(_ context.Context, change client.Change) error { return g.check.take(change) }
	if err := g.client.Subscribe(client.Subscription{ID: "all"}, take); err != nil {
		return nil, err
	}
	running, end := context.WithCancel(context.WithoutCancel(ctx))
	g.end = end
	go func() {
		defer close(g.over)
		g.err = g.client.Run(running)
	}()
	for range sessions {
		select {
		case <-connected:
		case <-g.over:
			return g, errors.Join(errors.New("the client has ended"), g.err)
		case <-ctx.Done():
			return g, fmt.Errorf("connect the client: %w", context.Cause(ctx))
		}
	}
	return g, nil
}

// await waits until everything has come that was written.
func (g *gateway) await(ctx context.Context, written []int64) error {
	for {
		if whole, err := g.check.has(written); whole || err != nil {
			return err
		}
		select {
		case <-g.check.more:
		case <-g.over:
			return errors.Join(errors.New("the client has ended"), g.err)
		case <-ctx.Done():
			return fmt.Errorf("wait for what was written: %w", context.Cause(ctx))
		}
	}
}

func (g *gateway) close() error {
	g.end()
	<-g.over
	return g.err
}

var _ contender.Contender = (*contest)(nil)
