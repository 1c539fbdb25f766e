package simulation

import (
	"context"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/gateway/fanout"
	"github.com/mongostream/streamer/lane"
)

// A readers is the hub as the consumers ask it.
type readers struct {
	*fanout.Hub

	breaks breakage
}

// Low implements [streamer.Readers].
func (r readers) Low(p change.Partition, progress change.Position) change.Position {
	low := r.Hub.Low(p, progress)
	if r.breaks.hold && !low.IsZero() {
		return progress
	}
	return low
}

// A source is the log as a process reads it.
type source struct {
	lane.Source

	network *network
}

// Open implements [lane.Source].
func (s source) Open(ctx context.Context, from change.Position) (lane.Stream, error) {
	s.network.pass()
	opened, err := s.Source.Open(ctx, from)
	if err != nil {
		return nil, err
	}
	return stream{opened, s.network}, nil
}

type stream struct {
	lane.Stream

	network *network
}

// Next implements [lane.Stream]: a process that stands still learns of a reply when it goes on.
func (s stream) Next(ctx context.Context) (lane.Reply, error) {
	reply, err := s.Stream.Next(ctx)
	s.network.pass()
	return reply, err
}
