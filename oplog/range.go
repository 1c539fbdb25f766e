package oplog

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/gap"
	"github.com/mongostream/streamer/internal/retry"
)

// RangeConfig configures a Range.
type RangeConfig struct {
	// Ask asks the server for the extent of its oplog. It may block until the context ends.
	// Required.
	Ask func(ctx context.Context) (gap.Reach, error)
	// Warning and Critical are head-room thresholds: the log time until a position leaves the
	// oplog. Default to 1 h and 15 min. In a short oplog they are limited to a half and a quarter
	// of its length.
	Warning, Critical time.Duration
	// Heard is called with each answer and with the time before which head-room is critical, zero
	// if that is unknown or nothing leaves the log.
	Heard func(reach gap.Reach, floor change.Timestamp)
	// Logger defaults to one that discards.
	Logger *slog.Logger
}

const (
	askEvery   = 5 * time.Second
	askTimeout = 4 * time.Second
	// believed is how old an answer may be.
	believed = 20 * time.Second
)

// A Range tracks the extent of MongoDB's oplog: it asks regularly and on demand. Its methods are
// safe for concurrent use.
type Range struct {
	cfg    RangeConfig
	last   atomic.Pointer[answer]
	asking chan struct{} // holds one value while an on-demand request runs
	next   struct {
		sync.Mutex
		question *question // that waits to be asked; nil if there is none
	}
}

// A question is shared by the callers that want its answer.
type question struct {
	answered chan struct{} // closed when the following is set
	reach    gap.Reach
	err      error
	dropped  bool // the caller that was to ask has gone
}

// An answer is the last result.
type answer struct {
	reach gap.Reach
	at    time.Time
}

// NewRange returns a Range.
func NewRange(cfg RangeConfig) *Range {
	cfg.Warning = cmp.Or(cfg.Warning, time.Hour)
	cfg.Critical = cmp.Or(cfg.Critical, 15*time.Minute)
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	return &Range{cfg: cfg, asking: make(chan struct{}, 1)}
}

// Run asks regularly until the context ends.
func (s *Range) Run(ctx context.Context) {
	tick := time.NewTicker(askEvery)
	defer tick.Stop()
	for {
		_, _ = s.ask(ctx) // Latest reports answers that are too old
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// ask asks once.
func (s *Range) ask(ctx context.Context) (gap.Reach, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	reach, err := s.cfg.Ask(ctx)
	if err != nil {
		return reach, err
	}
	s.last.Store(&answer{reach: reach, at: time.Now()})
	if s.cfg.Heard != nil {
		var floor change.Timestamp
		if begins, near := reach.Begins(), s.critical(reach)-reach.Spare; !begins.IsZero() && !reach.Growing && near > 0 {
			floor.T = begins.T + uint32(near.Seconds())
		}
		s.cfg.Heard(reach, floor)
	}
	return reach, nil
}

// Recently returns an answer no older than one interval, and asks if there is none.
func (s *Range) Recently(ctx context.Context) (gap.Reach, error) {
	if last := s.last.Load(); last != nil && time.Since(last.at) < askEvery {
		return last.reach, nil
	}
	return s.Now(ctx)
}

// Now asks, and retries until there is an answer or the context ends. Callers share a request that
// begins after all of them have called.
func (s *Range) Now(ctx context.Context) (reach gap.Reach, err error) {
	err = retry.Until(ctx, func() (err error) {
		reach, err = s.share(ctx)
		return err
	}, func(err error) { s.cfg.Logger.Warn("reading oplog range failed", "error", err) })
	return reach, err
}

// share asks once, or waits for another caller's question that has yet to be asked.
func (s *Range) share(ctx context.Context) (gap.Reach, error) {
	for {
		s.next.Lock()
		q := s.next.question
		if q == nil {
			q = &question{answered: make(chan struct{})}
			s.next.question = q
			s.next.Unlock()
			s.put(ctx, q)
			return q.reach, q.err
		}
		s.next.Unlock()
		select {
		case <-q.answered:
			if !q.dropped {
				return q.reach, q.err
			}
		case <-ctx.Done():
			return gap.Reach{}, context.Cause(ctx)
		}
	}
}

// put asks a question when the one before it is answered. Callers that come later ask another one.
func (s *Range) put(ctx context.Context, q *question) {
	defer close(q.answered)
	begin := func() {
		s.next.Lock()
		defer s.next.Unlock()
		s.next.question = nil
	}
	select {
	case s.asking <- struct{}{}:
		defer func() { <-s.asking }()
		begin()
		q.reach, q.err = s.ask(ctx)
	case <-ctx.Done():
		begin()
		q.err = context.Cause(ctx)
	}
	q.dropped = q.err != nil && ctx.Err() != nil
}

// Latest returns the last answer; ok is false if it is too old.
func (s *Range) Latest(now time.Time) (reach gap.Reach, ok bool) {
	last := s.last.Load()
	if last == nil || now.Sub(last.at) > believed {
		return reach, false
	}
	return last.reach, true
}

// Answered returns when the server last answered, zero before it has.
func (s *Range) Answered() time.Time {
	if last := s.last.Load(); last != nil {
		return last.at
	}
	return time.Time{}
}

// A Level classifies head-room.
type Level int

// The levels.
const (
	Fine Level = iota
	Low
	CriticallyLow
)

// HeadRoom returns the log time until the position leaves the log, and its level; ok is false if
// that is unknown or nothing leaves the log.
func (s *Range) HeadRoom(reach gap.Reach, p change.Position) (room time.Duration, level Level, ok bool) {
	room, ok = reach.HeadRoom(p)
	switch {
	case !ok:
	case room < s.critical(reach):
		level = CriticallyLow
	case room < min(s.cfg.Warning, reach.Length()/2):
		level = Low
	}
	return room, level, ok
}

func (s *Range) critical(r gap.Reach) time.Duration { return min(s.cfg.Critical, r.Length()/4) }
