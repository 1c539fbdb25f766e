package leader

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/cluster/plan"
	"github.com/mongostream/streamer/health"
	"github.com/mongostream/streamer/internal/retry"
)

const (
	resignTimeout = 3 * time.Second
	// After each turn the leader pauses for this many times its duration.
	share = 9
)

// A Leader leads the cluster whenever its node is elected.
type Leader struct {
	cfg     Config
	store   cluster.Store
	metrics metrics
	turning *health.Loop

	mu struct {
		sync.Mutex

		state *plan.Planner // nil while another node leads
		plan  cluster.Plan
	}
}

// New makes a Leader. The configuration must be valid.
func New(cfg Config, store cluster.Store) *Leader {
	l := &Leader{cfg: cfg.withDefaults(), store: store, turning: health.NewLoop()}
	l.metrics = newMetrics(l.cfg.Registerer, l)
	return l
}

// Run campaigns whenever the node is trusted, and leads while it is elected. When the context ends,
// it resigns and returns nil.
func (l *Leader) Run(ctx context.Context) error {
	hints := l.store.Hints(ctx)
	wait := retry.Backoff{First: 100 * time.Millisecond, Longest: l.cfg.Beat}
	defer l.turning.Rest()
	for failures := 0; ctx.Err() == nil; {
		if !l.cfg.Trusted() {
			l.pause(ctx, hints, l.cfg.Beat)
			continue
		}
		l.turning.Rest() // as long as others lead
		leadership, err := l.store.Campaign(ctx, l.cfg.Node)
		l.turning.Work()
		if err != nil {
			if failures++; failures == 1 && ctx.Err() == nil {
				l.cfg.Log.Warn("campaign failed", "error", err)
			}
			_ = wait.Wait(ctx, failures)
			continue
		}
		failures = 0
		l.cfg.Log.Info("gained cluster leadership")
		why := l.lead(ctx, leadership, hints)
		l.resign(ctx, leadership)
		l.mu.Lock()
		l.mu.state = nil
		l.mu.Unlock()
		l.cfg.Log.Info("lost cluster leadership", "reason", why)
		if ctx.Err() == nil && !errors.Is(why, errUntrusted) {
			_ = wait.Wait(ctx, 1)
		}
	}
	return nil
}

var (
	errUntrusted = errors.New("node is not attached to its cluster")
	errElsewhere = errors.New("another node is elected")
)

// lead leads until the leadership ends, and returns the reason.
func (l *Leader) lead(ctx context.Context, leadership cluster.Leadership, hints <-chan struct{}) error {
	l.mu.Lock()
	l.mu.state = plan.New(l.cfg.Config)
	l.mu.plan = cluster.Plan{}
	l.mu.Unlock()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var watch sync.WaitGroup
	defer watch.Wait()
	defer cancel(nil)
	watch.Go(func() {
		select {
		case <-leadership.Lost():
			cancel(cluster.ErrDeposed)
		case <-ctx.Done():
		}
	})
	for failures := 0; ctx.Err() == nil; {
		if !l.cfg.Trusted() {
			return errUntrusted
		}
		began := l.cfg.Clock()
		l.turning.RestFor(l.cfg.TTL) // which bounds it
		next, err := l.turn(ctx, leadership)
		switch {
		case ctx.Err() != nil:
		case errors.Is(err, cluster.ErrDeposed), errors.Is(err, errElsewhere):
			return err
		case err != nil:
			if failures++; failures == 1 {
				l.cfg.Log.Warn("leading the cluster failed", "error", err)
			}
			l.metrics.failures.Inc()
			next = l.cfg.Clock() + min(l.cfg.Beat, 100*time.Millisecond<<min(failures, 5))
		case failures > 0:
			l.cfg.Log.Info("leading the cluster recovered", "failures", failures)
			failures = 0
		}
		now := l.cfg.Clock()
		l.pause(ctx, nil, l.cfg.rest(now-began))
		l.pause(ctx, hints, min(next-l.cfg.Clock(), l.cfg.Beat))
	}
	return context.Cause(ctx)
}

// pause waits for a while, or for a hint.
func (l *Leader) pause(ctx context.Context, hints <-chan struct{}, d time.Duration) {
	if d <= 0 {
		return
	}
	l.turning.RestFor(d)
	defer l.turning.Work()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-hints:
	case <-ctx.Done():
	}
}

// turn reads the state once, applies the decision, and returns when the next turn is due.
func (l *Leader) turn(ctx context.Context, leadership cluster.Leadership) (next time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, l.cfg.TTL)
	defer cancel()
	view, err := l.store.View(ctx)
	if err != nil {
		return 0, err
	}
	if view.Leader != l.cfg.Node {
		return 0, errElsewhere
	}
	began := time.Now()
	l.mu.Lock()
	d := l.mu.state.Step(l.cfg.Clock(), view)
	l.mu.plan = view.Plan
	l.mu.Unlock()
	l.metrics.steps.Observe(time.Since(began).Seconds())

	for _, news := range d.News {
		l.cfg.Log.Info(news) //nolint:sloglint // a sentence of the plan's, which is tested there
	}
	for _, n := range d.Notices {
		for name, value := range n.Fields {
			if ago, is := value.(plan.Ago); is {
				n.Fields[name] = ago.Time(time.Now())
			}
		}
		l.cfg.Board.Post(n)
	}
	for _, r := range d.Resync {
		l.metrics.resynced.Add(float64(len(r.Partitions)))
		l.cfg.Resynced(r)
	}
	return d.Next, l.carryOut(ctx, leadership, d)
}

// carryOut publishes the plan and evicts owners. After an error the next view leads to a new
// decision.
func (l *Leader) carryOut(ctx context.Context, leadership cluster.Leadership, d plan.Decision) error {
	if d.Publish != nil {
		plan := *d.Publish
		plan.At = time.Now()
		if err := leadership.Publish(ctx, plan); err != nil {
			return err
		}
		l.cfg.Log.Info("plan published", "plan", plan.Version, "replan", string(d.Replan), "cause", plan.Cause, "moved", d.Moved)
		l.metrics.replans.WithLabelValues(string(d.Replan)).Inc()
		l.metrics.moves.Add(float64(d.Moved))
		l.mu.Lock()
		l.mu.plan = plan
		l.mu.Unlock()
	}
	for _, e := range d.Evict {
		if err := leadership.Evict(ctx, e.Partition, e.Epoch); err != nil {
			return err
		}
		l.cfg.Log.Warn("owner evicted", "partition", int(e.Partition), "epoch", e.Epoch.String())
		l.metrics.evictions.Inc()
	}
	return nil
}

// resign ends the leadership, also when the context has ended.
func (l *Leader) resign(ctx context.Context, leadership cluster.Leadership) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), resignTimeout)
	defer cancel()
	if err := leadership.Resign(ctx); err != nil {
		l.cfg.Log.Warn("resigning cluster leadership failed, it expires by itself", "error", err)
	}
}

// Age returns how long the leader's loop has had work without making progress. Each wait for the
// store is bounded by the TTL.
func (l *Leader) Age() time.Duration { return l.turning.Age() }

// Leading reports whether this node leads. It may be called from any goroutine.
func (l *Leader) Leading() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.state != nil
}

// An Explanation is the knowledge of the leader.
type Explanation struct {
	// Leading says that this node leads; everything else is empty where it does not.
	Leading bool
	Members []plan.MemberStatus
	Plan    cluster.Plan
}

// Explain returns the state of the members. It may be called from any goroutine.
func (l *Leader) Explain() Explanation {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.state == nil {
		return Explanation{}
	}
	return Explanation{Leading: true, Members: l.mu.state.Members(), Plan: l.mu.plan}
}
