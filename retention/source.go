package retention

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/gap"
	"github.com/mongostream/streamer/internal/retry"
	"github.com/mongostream/streamer/oplog"
)

// SourceConfig configures a Source.
type SourceConfig struct {
	// Coverage is the coverage of the node's streams. A segment that covers less costs its readers
	// a loss.
	Coverage Coverage
	// Keep selects the changes of segments that the node reads: it may read less now than when they
	// were written. It must not retain the event; nil keeps all.
	Keep func(*change.Event) bool
	// Reach asks MongoDB for the extent of its oplog. Required.
	Reach func(ctx context.Context) (gap.Reach, error)
	// CacheBytes bounds the fetched bytes that streams share. Defaults to 12 MiB.
	CacheBytes int64
	// Logger defaults to one that discards.
	Logger *slog.Logger
	// Registerer registers the metrics. Optional.
	Registerer prometheus.Registerer
}

// patience is how long readers wait for a store that does not answer, from its first failure on,
// before they continue in MongoDB with a loss.
const patience = 5 * time.Minute

// A Source opens streams on MongoDB and, at positions that MongoDB has lost, on the chain. Streams
// of the chain share the blocks that they fetch.
type Source struct {
	cfg   SourceConfig
	mongo oplog.Source
	chain func() *Chain
	cache *cache

	mu struct {
		sync.Mutex
		failing time.Time // since when the store has not answered; zero while it does
		failed  time.Time // when a request failed last
		err     error
	}
}

var _ oplog.Retainer = (*Source)(nil)

// NewSource returns a Source. The chain may be unknown for a while: chain returns nil then.
func NewSource(cfg SourceConfig, mongo oplog.Source, chain func() *Chain) *Source {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Source{cfg: cfg, mongo: mongo, chain: chain, cache: newCache(cmp.Or(cfg.CacheBytes, 12<<20), cfg.Registerer)}
}

// Open implements oplog.Source. A stream of the chain continues in MongoDB where the chain ends.
func (s *Source) Open(ctx context.Context, from change.Position) (oplog.Stream, error) {
	st, err := s.open(ctx, from, nil)
	if err != nil {
		return nil, err
	}
	st.joins = true
	return st, nil
}

// OpenNarrow implements oplog.Retainer. A stream that begins in the chain leaves out the lanes of
// its segments that do not concern the scope.
func (s *Source) OpenNarrow(ctx context.Context, from change.Position, scope oplog.Scope, left bool) (_ oplog.Stream, retained bool, err error) {
	var st *stream
	if left {
		st, err = s.openChain(ctx, from, scope)
	} else {
		st, err = s.open(ctx, from, scope)
	}
	if err != nil {
		return nil, false, err
	}
	return st, st.mongo == nil, nil
}

// open opens a stream on MongoDB or, where that has lost the position, on the chain.
func (s *Source) open(ctx context.Context, from change.Position, scope oplog.Scope) (*stream, error) {
	mongo, err := s.mongo.Open(ctx, from)
	switch {
	case err == nil:
		return &stream{source: s, base: mongo.Base(), at: from.Time, mongo: mongo}, nil
	case from.IsZero(), !errors.Is(err, oplog.ErrPositionLost):
		return nil, err
	}
	first, outlives, askErr := s.outlives(ctx, from, err)
	if !outlives {
		return nil, errors.Join(err, askErr)
	}
	st, findErr := s.find(ctx, from, scope, first)
	if findErr != nil || st == nil {
		return nil, errors.Join(err, findErr)
	}
	st.lost = from.Time
	return st, nil
}

// openChain opens a stream on the chain alone. Whatever is wrong with that, MongoDB is asked then.
func (s *Source) openChain(ctx context.Context, from change.Position, scope oplog.Scope) (*stream, error) {
	reach, err := s.cfg.Reach(ctx)
	if err != nil || s.chain() == nil {
		return nil, errors.Join(oplog.ErrJoin, err)
	}
	st, err := s.find(ctx, from, scope, reach.First)
	if err != nil || st == nil {
		return nil, errors.Join(oplog.ErrJoin, err)
	}
	return st, nil
}

// find returns a stream of the chain, nil if that does not have the position.
func (s *Source) find(ctx context.Context, from change.Position, scope oplog.Scope, oplogFirst change.Timestamp) (*stream, error) {
	st := &stream{source: s, base: from, at: from.Time, scope: scope}
	found, err := st.begin(ctx, oplogFirst)
	if err != nil || !found {
		return nil, err
	}
	s.cfg.Logger.Info("reading the retained log", "from", from.String(), "segment", st.header.Number)
	return st, nil
}

// outlives reports whether a position that MongoDB rejects is one that the chain may have: its
// oplog begins later, or rejects even the time of the position. It also returns where the oplog
// begins, zero if that is unknown. The error says that it could not be found out.
func (s *Source) outlives(ctx context.Context, p change.Position, rejected error) (first change.Timestamp, may bool, err error) {
	if s.chain() == nil {
		return first, false, nil
	}
	ahead := false
	if lost, told := errors.AsType[*oplog.LostError](rejected); told && !lost.First.IsZero() {
		first = lost.First
		ahead = !lost.Last.IsZero() && p.Time.Compare(lost.Last) > 0
	} else {
		reach, err := s.cfg.Reach(ctx)
		if err != nil {
			return first, false, fmt.Errorf("%w: %w", oplog.ErrUnanswered, err)
		}
		first = reach.First
		ahead = reach.Ahead(p)
	}
	holds := !first.IsZero() && first.Compare(p.Time) < 0
	return first, !ahead && (!holds || p.Token == nil), nil
}

// ask asks the store, and repeats that until there is an answer, the store has failed for too long,
// or the context ends.
func (s *Source) ask(ctx context.Context, question func(context.Context) error) error {
	backoff := retry.Backoff{First: 200 * time.Millisecond, Longest: 10 * time.Second}
	for attempt := 1; ; attempt++ {
		err := question(ctx)
		if err == nil || unreadable(err) || errors.Is(err, errRewritten) {
			s.answered()
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if since := s.failed(err); time.Since(since) >= patience && !errors.Is(err, ErrFormat) {
			return fmt.Errorf("%w: %w", oplog.ErrUnanswered, err)
		}
		if err := backoff.Wait(ctx, attempt); err != nil {
			return err
		}
	}
}

func (s *Source) answered() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.failing = time.Time{}
	s.mu.err = nil
}

// failed records that the store has not answered, and returns since when.
func (s *Source) failed(err error) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.forgotten() {
		s.mu.failing = time.Now()
		s.cfg.Logger.Warn("cannot read the retained log", "error", err)
	}
	s.mu.err = err
	s.mu.failed = time.Now()
	return s.mu.failing
}

// Trouble returns why a reader cannot read the chain, and since when; nil while all is well.
func (s *Source) Trouble() (since time.Time, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.forgotten() {
		return time.Time{}, nil
	}
	return s.mu.failing, s.mu.err
}

// forgotten reports whether no failure counts: nobody has met one for so long that every reader
// has asked again, or gone. Called with the mutex held.
func (s *Source) forgotten() bool {
	return s.mu.failing.IsZero() || time.Since(s.mu.failed) > 2*storeTimeout
}
