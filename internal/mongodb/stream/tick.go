package stream

import (
	"context"
	"sync"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/internal/mongodb"
)

// Behind mongos a change waits: mongos hands it out when every other shard, and the config servers,
// have told that they are past its time. Those that have no change to tell of answer only when a
// wait of max_await is over, and their time moves with their own log: every 10 s where nothing is
// written to a shard (periodicNoopIntervalSecs), every second on config servers. A tick moves the
// logs on.
//
// Nobody can see what mongos holds. What can be seen are the cluster's time, which it has heard
// from its fastest shard, and the position of the stream, which is that of its slowest. While the
// position does not pass what the cluster's time was a tick ago, something may wait. After a tick
// the cluster's time is that of the no-ops: as long as it stays there, and every shard has written
// one, nothing waits.

// progress is what replies have told of the cluster and of the stream that stands furthest on.
type progress struct {
	mu sync.Mutex

	cluster  mongodb.ClusterTime
	position change.Timestamp

	awaited change.Timestamp // the cluster's time that the position is to reach, zero where it has
	since   time.Time        // when that time was heard
}

// note takes a reply, and returns how long the slowest shard took to get where the cluster was,
// once for each time that is awaited.
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
		took, reached = now.Sub(p.since), true
		p.awaited = change.Timestamp{}
	}
	if p.awaited.IsZero() && p.cluster.Compare(p.position) > 0 {
		p.awaited, p.since = p.cluster.Timestamp, now
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
	before  change.Timestamp // the cluster's time when it was last asked
	settled change.Timestamp // the cluster's time after a tick that moved every shard on
}

// due reports whether something may wait that a tick would let pass.
func (p *pacer) due(cluster, position change.Timestamp) bool {
	before := p.before
	p.before = cluster
	return !before.IsZero() && cluster.Compare(p.settled) > 0 && position.Compare(before) <= 0
}

// ticked notes the cluster's time after a tick. Where a shard was past the time already it has
// written since, and what it wrote may wait.
func (p *pacer) ticked(at change.Timestamp, all bool) {
	if all {
		p.settled = at
	}
}

const (
	// tickTimeout bounds one tick.
	tickTimeout = 5 * time.Second
	// tickAgain is when what was refused for good is tried again: a right may have been given
	// meanwhile.
	tickAgain = time.Minute
)

// Run moves the shards' logs on while changes may wait for them, as often as Tick says, until the
// context ends. Without a Tick, and without shards, it does nothing.
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

// tick moves the logs on that are not past the time: first the config servers', so that the time
// that the shards tell is the latest.
func (t *ticker) tick(ctx context.Context, past mongodb.ClusterTime) {
	ctx, cancel := context.WithTimeout(ctx, tickTimeout)
	defer cancel()
	logger, m := t.source.client.Logger(), t.source.metrics.shardMetrics
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

// A refusal is when something was refused for good, if it was.
type refusal struct{ at time.Time }

func (r *refusal) recent() bool { return !r.at.IsZero() && time.Since(r.at) < tickAgain }

// is notes whether it was refused, and reports whether it was for the first time.
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
