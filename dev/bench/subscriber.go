package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/mongostream/streamer/client"
)

// subscriber is a program with the Go client, which connects to a node through gRPC and takes every
// event.
type subscriber struct {
	round   *round
	mu      sync.Mutex // guards the check: handlers of partitions run concurrently
	client  *clientRun
	arrived chan struct{} // closed when everything has arrived
}

// Open implements Contender.
func (s *subscriber) Open(ctx context.Context, round *round) error {
	s.round = round
	connected := make(chan struct{}, 100)
	s.arrived = make(chan struct{})
	cfg := client.Config{
		Logger:    slog.New(slog.DiscardHandler),
		Addresses: []string{round.Node.GRPC}, Subscriber: round.Subscriber, Start: client.StartNow,
		OnNotice: connects(connected),
	}
	if round.Start != 0 {
		cfg.Start = client.StartTime
		cfg.Time = time.Unix(round.Start, 0)
	}
	if round.Snapshot {
		cfg.Start = client.StartSnapshot
	}
	c, err := client.New(cfg)
	if err != nil {
		return err
	}
	wanted := client.Subscription{ID: "all", DB: round.DB, Coll: round.Coll}
	if round.JSON {
		wanted.Format = client.JSON
	}
	if err := c.Subscribe(wanted, s.handle); err != nil {
		return err
	}
	round.begin()
	s.client = runClient(ctx, c)
	return s.client.await(ctx, connected)
}

// handle takes a change.
func (s *subscriber) handle(_ context.Context, c client.Change) error {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	check := s.round.check
	switch {
	case check.done(), s.round.Snapshot && !c.Snapshot, s.round.Coll == "" && !bytes.Contains(c.Data, []byte(checkedField)):
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

// checkedField is the collection in the namespace of an event that the check knows.
const checkedField = "\x02coll\x00\x08\x00\x00\x00" + collection + "\x00"

// Read implements Contender.
func (s *subscriber) Read(ctx context.Context) error {
	if err := s.client.await(ctx, s.arrived); err != nil || s.round.Retained.Folder == "" || s.round.Start != 0 {
		return err
	}
	s.round.stop()
	return s.round.awaitSegments(ctx)
}

// Close implements Contender.
func (s *subscriber) Close() error {
	s.client.stop()
	return nil
}

var _ contender = (*subscriber)(nil)

// A clientRun is a Go client that runs.
type clientRun struct {
	end  context.CancelFunc
	over chan struct{} // closed when the client has ended
	err  error         // why, after that
}

// runClient runs a client until it is stopped.
func runClient(ctx context.Context, c *client.Client) *clientRun {
	ctx, end := context.WithCancel(context.WithoutCancel(ctx))
	r := &clientRun{end: end, over: make(chan struct{})}
	go func() {
		defer close(r.over)
		r.err = c.Run(ctx)
	}()
	return r
}

// await waits until the client has delivered its changes.
func (r *clientRun) await(ctx context.Context, brought <-chan struct{}) error {
	select {
	case <-brought:
		return nil
	case <-r.over:
		return errors.Join(errors.New("the client has ended"), r.err)
	case <-ctx.Done():
		return fmt.Errorf("wait for the client: %w", context.Cause(ctx))
	}
}

// stop stops the client, if there is one, and waits until it has ended.
func (r *clientRun) stop() {
	if r != nil {
		r.end()
		<-r.over
	}
}

// connects handles the notices of a client: it reports connections, and ends the client at a loss.
func connects(connected chan<- struct{}) func(context.Context, client.Notice) error {
	return func(_ context.Context, n client.Notice) error {
		switch n := n.(type) {
		case client.Connected:
			connected <- struct{}{}
		case client.Resync:
			return fmt.Errorf("told of a loss: %+v", n)
		}
		return nil
	}
}
