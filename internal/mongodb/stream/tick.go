package stream

import (
	"context"
	"sync"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/internal/mongodb"
)

// mongos holds a change until every other shard, and the config servers, have reported a later
// time. Shards without changes answer only after a wait of max_await, and their time advances with
// their own oplog: every 10 s without writes to the shard (periodicNoopIntervalSecs), every second
// on config servers. A tick advances the oplogs.
//
// Nobody can see the changes that mongos holds. Visible are only the cluster's time, which comes
// from its fastest shard, and the position of the stream, which follows its slowest. While the
// position has not passed the cluster's time of one tick ago, changes may wait. After a tick the
// cluster's time is that of the no-ops: as long as it stays there, and every shard has written one,
// nothing waits.

// progress holds the latest time of the cluster and the latest position of any stream, from
// replies.
type progress struct {
	mu sync.Mutex

	cluster  mongodb.ClusterTime
	position change.Timestamp

	awaited change.Timestamp // the cluster's time that the position must reach, zero if it has
	since   time.Time        // when that time was heard
}

// note takes the times of a reply. Once for each awaited time, it returns how long the slowest
// shard took to reach it.
func (p *progress) note(cluster mongodb.ClusterTime, position change.Timestamp, now time.Time) (took time.Duration, reached bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if cluster.Compare(p.cluster.Timestamp) > 0 {
		p.cluster = cluster
	}
	if position.Compare(p.position) > 0 {
		p.position = position
	}
	if !p.awaited.IsZero() && p.position.Compare(p.awaited) >= 0 {
		took = now.Sub(p.since)
		reached = true
		p.awaited = change.Timestamp{}
	}
	if p.awaited.IsZero() && p.cluster.Compare(p.position) > 0 {
		p.awaited = p.cluster.Timestamp
		p.since = now
	}
	return took, reached
}

func (p *progress) latest() (cluster mongodb.ClusterTime, position change.Timestamp) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cluster, p.position
}

// A pacer decides when a tick is due.
type pacer struct {
	before  change.Timestamp // the cluster's time at the last call of due
	settled change.Timestamp // the cluster's time after a tick that advanced every shard
}

// due reports whether changes may wait that a tick would release.
func (p *pacer) due(cluster, position change.Timestamp) bool {
	before := p.before
	p.before = cluster
	return !before.IsZero() && cluster.Compare(p.settled) > 0 && position.Compare(before) <= 0
}

// ticked notes the cluster's time after a tick that advanced all shards. A shard that was past the
// time already has written since, and its changes may wait.
func (p *pacer) ticked(at change.Timestamp, all bool) {
	if all {
		p.settled = at
	}
}

const (
	// tickTimeout bounds one tick.
	tickTimeout = 5 * time.Second
	// tickAgain is the time after which a permanently refused request is tried again: an
	// administrator may have granted the right meanwhile.
	tickAgain = time.Minute
)

// Run advances the shards' oplogs while changes may wait for them, every Tick, until the context
// ends. Without a Tick, or without shards, it does nothing.
func (s *Source) Run(ctx context.Context) {
	if s.cfg.Tick <= 0 || !s.client.Sharded() {
		return
	}
	every := time.NewTicker(s.cfg.Tick)
	defer every.Stop()
	t := ticker{source: s}
	for {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
		if cluster, position := s.progress.latest(); t.due(cluster.Timestamp, position) && s.cfg.Ticks() {
			t.tick(ctx, cluster)
		}
	}
}

// A ticker makes ticks.
type ticker struct {
	pacer

	source         *Source
	config, shards refusal
}

// tick advances the oplogs that are not past the time: first the config servers', so that the
// shards report the latest time.
func (t *ticker) tick(ctx context.Context, past mongodb.ClusterTime) {
	ctx, cancel := context.WithTimeout(ctx, tickTimeout)
	defer cancel()
	logger := t.source.client.Logger()
	m := t.source.metrics.shardMetrics
	failed := false
	if !t.config.recent() {
		err := t.source.client.AdvanceConfig(ctx, past)
		failed = err != nil
		if t.config.is(fault.Of(err) == fault.MongoUnauthorized) {
			logger.Warn("config servers are not asked to advance: changes wait up to a second for them", "error", err)
		}
	}
	if !t.shards.recent() {
		done, err := t.source.client.AdvanceShards(ctx, past)
		failed = failed || err != nil
		if t.shards.is(fault.Of(err) == fault.MongoShards) {
			logger.Warn("shards are not asked to advance: changes wait up to 10 s for shards without writes", "error", err)
		}
		for _, shard := range done.Moved {
			m.ticks.WithLabelValues(shard, "moved").Inc()
		}
		for _, shard := range done.Ahead {
			m.ticks.WithLabelValues(shard, "ahead").Inc()
		}
		t.ticked(done.At.Timestamp, err == nil && len(done.Ahead) == 0)
	}
	if failed {
		m.ticksFailed.Inc()
	}
}

// A refusal is the time of the last permanent refusal, zero if there was none.
type refusal struct{ at time.Time }

func (r *refusal) recent() bool { return !r.at.IsZero() && time.Since(r.at) < tickAgain }

// is notes whether a request was refused, and reports whether this is the first refusal in a row.
func (r *refusal) is(refused bool) (first bool) {
	switch {
	case refused:
		first = r.at.IsZero()
		r.at = time.Now()
	default:
		r.at = time.Time{}
	}
	return first
}
