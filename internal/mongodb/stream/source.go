package stream

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/internal/mongodb"
	"github.com/mongostream/streamer/oplog"
)

// ErrNotTried reports that the guard refused an attempt to open a stream.
var ErrNotTried = errors.New("not tried")

// SourceConfig configures a Source.
type SourceConfig struct {
	Watch Watch
	// MaxAwait is how long the server waits for events before it answers with an empty reply.
	// Defaults to 1 s, on sharded clusters to 100 ms, because there a change of one shard waits for
	// the answers of the others.
	MaxAwait time.Duration
	// Tick is how often Run makes shards write a no-op while changes may wait for them. Defaults to
	// never.
	Tick time.Duration
	// Ticks reports whether this node is the one that ticks. Defaults to always.
	Ticks func() bool
	// MinReopen is the least time between two openings of one stream. Defaults to 1 s.
	MinReopen time.Duration
	// MaxBackoff bounds the time between two attempts to open while MongoDB fails. Defaults to 5 s.
	MaxBackoff time.Duration
	// MaxStreams is the number of change streams that may be open at a time; each holds a
	// connection while it waits. Defaults to 5.
	MaxStreams int
	// CredentialsTimeout is how long a stream that was open waits for its credentials to be
	// accepted again. Defaults to 2 min.
	CredentialsTimeout time.Duration
	// Guard, if set, calls the given function for every opening, or returns an error that wraps
	// ErrNotTried.
	Guard func(open func() error) error
	// Registerer takes the metrics; nil registers them nowhere.
	Registerer prometheus.Registerer
}

// A Source opens change streams on a deployment. It implements oplog.Source.
type Source struct {
	cfg     SourceConfig
	client  *mongodb.Client
	home    site
	can     abilities
	metrics metrics

	progress progress
	resting  atomic.Int32 // streams that back off before they reopen
	failure  atomic.Pointer[failure]

	mu struct {
		sync.Mutex
		members map[string]site // by host
		due     time.Time       // when the delays of all losses so far end, each MinReopen
	}
}

var _ oplog.Source = (*Source)(nil)

// NewSource makes a Source.
func NewSource(cfg SourceConfig, client *mongodb.Client) (*Source, error) {
	await := time.Second
	if client.Sharded() {
		await = 100 * time.Millisecond
	}
	cfg.MaxAwait = cmp.Or(cfg.MaxAwait, await)
	if cfg.Ticks == nil {
		cfg.Ticks = func() bool { return true }
	}
	cfg.MinReopen = cmp.Or(cfg.MinReopen, time.Second)
	cfg.MaxBackoff = cmp.Or(cfg.MaxBackoff, 5*time.Second)
	cfg.MaxStreams = cmp.Or(cfg.MaxStreams, 5)
	cfg.CredentialsTimeout = cmp.Or(cfg.CredentialsTimeout, 2*time.Minute)
	if cfg.Guard == nil {
		cfg.Guard = func(open func() error) error { return open() }
	}
	s := &Source{cfg: cfg, client: client, metrics: newMetrics(cfg.Registerer)}
	if client.Sharded() {
		s.metrics.shardMetrics = newShardMetrics(cfg.Registerer)
	}
	var err error
	if s.home, err = s.site(client); err != nil {
		return nil, err
	}
	s.mu.members = make(map[string]site)
	return s, nil
}

// MaxAwait returns how long the server waits for events before it answers with an empty reply.
func (s *Source) MaxAwait() time.Duration { return s.cfg.MaxAwait }

// Resting reports whether a stream is backing off after a MongoDB failure.
func (s *Source) Resting() bool { return s.resting.Load() > 0 }

// A failure is the reason why streams break, and the time of the first break.
type failure struct {
	err   error
	since time.Time
}

// passing is how long streams may be broken before Failure reports it: most are open again by then.
const passing = 3 * time.Second

// Failure returns why nothing has been read for a while, as an error with a code, and since when:
// no server is reachable, or streams break. The error is nil as soon as a stream has answered.
func (s *Source) Failure(now time.Time) (since time.Time, err error) {
	if since, err = s.client.Outage(); err == nil {
		if f := s.failure.Load(); f != nil {
			since = f.since
			err = mongodb.AsFault(f.err)
		}
	}
	if err == nil || now.Sub(since) < passing {
		return time.Time{}, nil
	}
	return since, err
}

// failing notes the outcome of the last attempt.
func (s *Source) failing(err error) {
	before := s.failure.Load()
	switch {
	case err == nil && before == nil:
	case err == nil:
		s.failure.Store(nil)
	case before == nil:
		s.failure.Store(&failure{err: err, since: time.Now()})
	default:
		s.failure.Store(&failure{err: err, since: before.since})
	}
}

// Open implements oplog.Source.
func (s *Source) Open(ctx context.Context, from change.Position) (oplog.Stream, error) {
	if err := s.waitForPace(ctx); err != nil {
		return nil, err
	}
	st := &stream{source: s, at: s.home, position: from, gate: gate{least: s.cfg.MinReopen, shards: s.client.Sharded()}}
	if err := st.open(ctx); err != nil {
		if st.gate.opened > 0 { // else its range has told that the position is lost, which costs the server no stream
			err = s.slowDown(err)
		}
		return nil, err
	}
	st.base = st.position
	return st, nil
}
