package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/mongostream/streamer/client"
)

// subscriber is a program with the Go client, which comes to a node through gRPC and takes every event.
type subscriber struct {
	round   *round
	mu      sync.Mutex // guards the check: partitions are handled side by side
	end     context.CancelFunc
	arrived chan struct{} // closed when everything has come
	over    chan struct{} // closed when the client has ended
	failure error         // why, after that
}

// Open implements Contender.
func (s *subscriber) Open(ctx context.Context, round *round) error {
	s.round = round
	connected := make(chan struct{}, 100)
	s.arrived, s.over = make(chan struct{}), make(chan struct{})
	cfg := client.Config{
		Addresses: []string{round.Node.GRPC}, Subscriber: round.Subscriber, Start: client.StartNow,
		OnNotice: func(_ context.Context, n client.Notice) error {
			switch n := n.(type) {
			case client.Connected:
				connected <- struct{}{}
			case client.Resync:
				return fmt.Errorf("told of a loss: %+v", n)
			}
			return nil
		},
	}
	if round.Start != 0 {
		cfg.Start, cfg.Time = client.StartTime, time.Unix(round.Start, 0)
	}
	if round.Snapshot {
		cfg.Start = client.StartSnapshot
	}
	c, err := client.New(cfg)
	if err != nil {
		return err
	}
	wanted := client.Subscription{ID: "all", DB: round.DB, Coll: collection}
	if round.JSON {
		wanted.Format = client.JSON
	}
	if err := c.Subscribe(wanted, s.handle); err != nil {
		return err
	}
	round.begin()
	running, end := context.WithCancel(context.WithoutCancel(ctx))
	s.end = end
	go func() {
		defer close(s.over)
		s.failure = c.Run(running)
	}()
	select {
	case <-connected:
		return nil
	case <-s.over:
		return errors.Join(errors.New("the client has ended"), s.failure)
	case <-ctx.Done():
		return fmt.Errorf("connect the client: %w", context.Cause(ctx))
	}
}

// handle takes a change.
func (s *subscriber) handle(_ context.Context, c client.Change) error {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	check := s.round.check
	switch {
	case check.done(), s.round.Snapshot && !c.Snapshot:
		return nil
	case s.round.JSON:
		check.text(c.Data, now)
	default:
		check.event(c.Data, now)
	}
	if check.done() {
		close(s.arrived)
	}
	return nil
}

// Read implements Contender.
func (s *subscriber) Read(ctx context.Context) error {
	select {
	case <-s.arrived:
		return nil
	case <-s.over:
		return errors.Join(errors.New("the client has ended"), s.failure)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Close implements Contender.
func (s *subscriber) Close() error {
	if s.end != nil {
		s.end()
		<-s.over
	}
	return nil
}

var _ contender = (*subscriber)(nil)
