package lane

import (
	"context"
	"errors"
	"fmt"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/lane/plan"
)

// lostForGood returns what is known of the loss of a position where the log does not hold it, so that reading can only go on behind it; nil
// where the error is another one, or the log should have had the position: that may pass. Older servers refuse the time of the first entry itself.
func lostForGood(err error, p change.Position) *LostError {
	lost, known := errors.AsType[*LostError](err)
	if !known || p.IsZero() || !lost.Last.IsZero() && p.Time.Compare(lost.Last) > 0 {
		return nil
	}
	if lost.First.IsZero() || lost.First.Compare(p.Time) >= 0 {
		return lost
	}
	return nil
}

// Earliest returns the earliest time at or after from that the log still holds, found by opening streams there.
func Earliest(ctx context.Context, source Source, from change.Timestamp) (change.Timestamp, error) {
	stream, err := openOnward(ctx, source, plan.NewSearch(from, from, change.Timestamp{}))
	if err != nil {
		return from, err
	}
	defer stream.Close()
	return stream.Base().Time, nil
}

// openOnward opens a stream at the earliest place that the search finds, and reads from it once: some servers refuse a position only then.
func openOnward(ctx context.Context, source Source, search *plan.Search) (Stream, error) {
	var best Stream
	err := error(ErrPositionLost)
	for {
		at, ok := search.Next()
		if !ok {
			break
		}
		var stream Stream
		if stream, err = openAt(ctx, source, at); err == nil {
			if best != nil {
				best.Close()
			}
			if best = stream; search.Held(at) {
				break
			}
			continue
		}
		if !errors.Is(err, ErrPositionLost) {
			break
		}
		first := change.Timestamp{}
		if lost, known := errors.AsType[*LostError](err); known {
			first = lost.First
		}
		search.Refused(at, first)
	}
	if best != nil {
		return best, nil
	}
	return nil, fmt.Errorf("look for the earliest place in the log: %w", err)
}

// openAt opens a stream at the time and reads its first reply.
func openAt(ctx context.Context, source Source, at change.Timestamp) (Stream, error) {
	stream, err := source.Open(ctx, change.At(at))
	if err != nil {
		return nil, err
	}
	reply, err := stream.Next(ctx)
	if err != nil {
		stream.Close()
		return nil, err
	}
	return &begun{Stream: stream, first: &reply}, nil
}

// A begun stream has been read from once.
type begun struct {
	Stream

	first *Reply // nil when it has been handed out
}

// Next implements Stream.
func (b *begun) Next(ctx context.Context) (Reply, error) {
	if first := b.first; first != nil {
		b.first = nil
		return *first, nil
	}
	return b.Stream.Next(ctx)
}
