package oplog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/gap"
	"github.com/mongostream/streamer/internal/retry"
)

// maxAttempts is how often a position that the oplog should hold is tried before the reader skips
// it.
const maxAttempts = 3

// open opens a stream at the position or, if the server rejects that, at the earliest later place
// that it accepts; refused is the error if the position was rejected already. The skipped span
// becomes a loss in the ring. It returns when a stream is open, the context ends, or the source
// fails permanently; ErrAhead means that the position belongs to another log.
func (r *reader) open(ctx context.Context, from change.Position, refused error) (stream Stream, err error) {
	l := r.log
	backoff := retry.Backoff{First: 500 * time.Millisecond, Longest: 30 * time.Second}
	for ; ; r.attempts++ {
		if refused == nil {
			if stream, err = r.openSource(ctx, from); err == nil || !errors.Is(err, ErrPositionLost) {
				if err != nil {
					err = fmt.Errorf("open %s: %w", r.kind(), err)
				}
				return stream, err
			}
			refused = err
		}
		at := r.splitter.end
		reach, err := l.cfg.Reach(ctx)
		if err != nil {
			return nil, err
		}
		lost, told := errors.AsType[*LostError](refused)
		isRefusedAsLater := told && !lost.Last.IsZero() && !lost.Holds(at) && lost.First.Compare(at.Time) <= 0
		switch {
		case at.IsZero(): // the server rejects its own present
		case reach.Ahead(at), isRefusedAsLater:
			return nil, fmt.Errorf("%w: %s is after %s", ErrAhead, at, reach.Last)
		case !reach.First.IsZero() && reach.First.Compare(at.Time) <= 0 && r.attempts < maxAttempts:
			from, refused = change.At(at.Time), nil // the oplog holds it: open by time, which needs no token
			continue
		default:
			if stream, err = r.skip(ctx, at, reach, refused); stream != nil || err != nil {
				return stream, err
			}
		}
		// The server rejects every position, even the end of the log: that says nothing about the
		// contents of the log.
		if r.attempts == maxAttempts {
			l.logger.Warn("MongoDB rejects every position, retrying", "reader", r.kind(), "at", at.String(), "error", refused)
		}
		if err := backoff.Wait(ctx, max(1, r.attempts-maxAttempts+1)); err != nil {
			return nil, err
		}
		from = at
		refused = nil
		if !at.IsZero() {
			from = change.At(at.Time)
		}
	}
}

// skip opens a stream at the earliest place after the refused position that the server accepts, and
// records the skipped span as a loss in the ring. It returns nil if the server accepts none.
func (r *reader) skip(ctx context.Context, at change.Position, reach gap.Reach, refused error) (Stream, error) {
	l := r.log
	reason := gap.HistoryLost
	if !reach.First.IsZero() && reach.First.Compare(at.Time) <= 0 {
		reason, reach.First = gap.Refused, at.Time.Next() // treat it as the beginning of the log
	}
	stream, err := l.openEarliest(ctx, newSearch(change.Later(at, change.At(reach.First)).Time, reach.First, reach.Last.Next()), false)
	switch {
	case errors.Is(err, ErrPositionLost):
		return nil, nil //nolint:nilnil // the server rejects everything
	case err != nil:
		return nil, fmt.Errorf("open %s: %w", r.kind(), err)
	}
	base := stream.Base()
	if reason == gap.Refused { // the server accepts positions again: retry the original one, with one stream at a time
		stream.Close()
		again, err := l.openAt(ctx, at.Time)
		if err == nil {
			return again, nil
		}
		if errors.Is(err, ErrPositionLost) {
			stream, err = l.openAt(ctx, base.Time)
		}
		switch {
		case errors.Is(err, ErrPositionLost):
			return nil, nil //nolint:nilnil // it rejects everything again
		case err != nil:
			return nil, fmt.Errorf("open %s: %w", r.kind(), err)
		}
	}
	loss := &Loss{From: at, To: change.Later(at, base), Reason: reason, Found: time.Now(), Unanswered: errors.Is(refused, ErrUnanswered)}
	held := r.lost(loss)
	r.widen()
	l.opened(r, at)
	l.accept(r, &slot{loss: loss, held: held, end: loss.To, size: eventOverhead})
	r.splitter.begin(loss.To)
	return stream, nil
}

// Earliest returns the earliest time at or after from that the log holds. It opens streams to find
// it, because servers before 5.0 reject the time of the oldest entry, which may also be truncated
// meanwhile. It is from itself where the retained log, which may have it, does not answer: who reads
// from there has everything as soon as it answers, or is told what is missing.
func (l *Log) Earliest(ctx context.Context, from change.Timestamp) (change.Timestamp, error) {
	stream, err := l.openEarliest(ctx, newSearch(from, from, change.Timestamp{}), true)
	switch {
	case errors.Is(err, ErrUnanswered):
		return from, nil
	case err != nil:
		return from, fmt.Errorf("find earliest position in the oplog: %w", err)
	}
	defer stream.Close()
	return stream.Base().Time, nil
}

// openEarliest opens a stream at the earliest place that a search finds, one stream at a time. With
// asks, the search ends where the retained log does not answer.
func (l *Log) openEarliest(ctx context.Context, s *search, asks bool) (Stream, error) {
	for last := error(ErrPositionLost); ; {
		at, ok := s.next()
		if !ok && s.high.IsZero() {
			return nil, last
		}
		if !ok { // found before, and closed to look for an earlier one
			return l.openAt(ctx, s.high)
		}
		stream, err := l.openAt(ctx, at)
		switch {
		case err == nil && s.hold(at):
			return stream, nil
		case err == nil:
			stream.Close()
			continue
		case !errors.Is(err, ErrPositionLost), asks && errors.Is(err, ErrUnanswered):
			return nil, err
		}
		first := change.Timestamp{}
		if lost, known := errors.AsType[*LostError](err); known {
			first = lost.First
		}
		last = err
		s.refuse(at, first)
	}
}

// openAt opens a stream at the time and reads its first reply, because some servers reject a
// position only then.
func (l *Log) openAt(ctx context.Context, at change.Timestamp) (Stream, error) {
	stream, err := l.source.Open(ctx, change.At(at))
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

	first *Reply // nil once it has been returned
}

// Next implements Stream.
func (b *begun) Next(ctx context.Context) (Reply, error) {
	if first := b.first; first != nil {
		b.first = nil
		return *first, nil
	}
	return b.Stream.Next(ctx)
}
