package contender

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/mongostream/streamer/gateway/client"
	"github.com/mongostream/streamer/gateway/client/notice"
)

// gateway is a node whose subscriber comes through gRPC, with the Go client.
type gateway struct {
	node

	mu      sync.Mutex // guards the check: partitions are handled side by side
	end     context.CancelFunc
	arrived chan struct{} // closed when everything has come
	over    chan struct{} // closed when the client has ended
	failure error         // why, after that
}

// Open implements Contender.
func (g *gateway) Open(ctx context.Context, round *Round) error {
	round.Gateway = true
	if err := g.node.Open(ctx, round); err != nil {
		return err
	}
	connected := make(chan struct{}, 1)
	g.arrived, g.over = make(chan struct{}), make(chan struct{})
	c, err := client.New(client.Config{
		Addresses: []string{g.service.Gateway()}, GatewayID: "bench", Start: client.StartNow,
		OnNotice: func(_ context.Context, n notice.Notice) error {
			if _, ok := n.(notice.Connected); ok {
				connected <- struct{}{}
			}
			return nil
		},
	})
	if err != nil {
		return err
	}
	if err := c.Subscribe(client.Subscription{ID: "all"}, g.handle); err != nil {
		return err
	}
	running, end := context.WithCancel(context.WithoutCancel(ctx))
	g.end = end
	go func() {
		defer close(g.over)
		g.failure = c.Run(running)
	}()
	select {
	case <-connected:
		return nil
	case <-g.over:
		return errors.Join(errors.New("the client has ended"), g.failure)
	case <-ctx.Done():
		return fmt.Errorf("connect the client: %w", context.Cause(ctx))
	}
}

// handle takes a change.
func (g *gateway) handle(_ context.Context, c client.Change) error {
	now := time.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	check := g.round.Checks[0]
	if check.Done() {
		return nil
	}
	if check.Event(c.Data, now); check.Done() {
		close(g.arrived)
	}
	return nil
}

// Read implements Contender.
func (g *gateway) Read(ctx context.Context) error {
	select {
	case <-g.arrived:
		return nil
	case <-g.over:
		return errors.Join(errors.New("the client has ended"), g.failure)
	case <-g.ended:
		return errors.Join(errors.New("the node has ended"), g.err)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Close implements Contender.
func (g *gateway) Close() error {
	if g.end != nil {
		g.end()
		<-g.over
	}
	return g.node.Close()
}

var _ Contender = (*gateway)(nil)
