package gateways

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/lane"
)

// A feed is a log in memory that one stream reads: each push is one reply.
type feed struct {
	replies chan [][]byte
	opened  atomic.Bool
}

func newFeed() *feed { return &feed{replies: make(chan [][]byte)} }

// push hands the stream a reply, unless the log is over.
func (f *feed) push(ctx context.Context, over <-chan struct{}, events [][]byte) error {
	select {
	case f.replies <- events:
		return nil
	case <-over:
		return errors.New("the log has ended")
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Open implements lane.Source. Who reads what the ring has let go of would measure something else.
func (f *feed) Open(_ context.Context, from change.Position) (lane.Stream, error) {
	if f.opened.Swap(true) {
		return nil, errors.New("a session has fallen behind the ring")
	}
	return &feeding{feed: f, base: from}, nil
}

type feeding struct {
	feed *feed
	base change.Position
}

// Base implements lane.Stream.
func (s *feeding) Base() change.Position { return s.base }

// Next implements lane.Stream.
func (s *feeding) Next(ctx context.Context) (reply lane.Reply, err error) {
	select {
	case events := <-s.feed.replies:
		last, err := change.Parse(events[len(events)-1])
		if err != nil {
			return reply, fmt.Errorf("feed: %w", err)
		}
		reply = lane.Reply{Events: events, At: time.Now(), End: last.Position()}
		for _, e := range events {
			reply.Size += len(e)
		}
		return reply, nil
	case <-ctx.Done():
		return reply, context.Cause(ctx)
	}
}

// Close implements lane.Stream.
func (s *feeding) Close() {}
