package member

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/health"
	"github.com/mongostream/streamer/internal/retry"
)

// Config configures a Member.
type Config struct {
	Member cluster.Identity
	// TTL is the time after which the membership expires unless renewed. Defaults to 10 s.
	TTL time.Duration
	// HeartbeatInterval is how often heartbeats are sent. Defaults to 2 s.
	HeartbeatInterval time.Duration
	// Report returns the node's heartbeat. The Member fills in Node, Process, StartedAt and Kind.
	// It must not block.
	Report func() cluster.Heartbeat
	// News signals that the node's report has changed in a way that others must know soon. It may
	// be nil.
	News <-chan struct{}
	// Resume accepts terms that have begun. It may block on the network until its context ends; the
	// terms last longer. After an error the Member calls it again with parts of the terms. It
	// returns the partitions of terms that Resume never accepts, and claims them again a little
	// later. Required.
	Resume func(ctx context.Context, terms []change.Term) error
	// Offer offers terms that Resume has accepted and whose partitions the plan assigns to other
	// nodes: each offer ends with Transfer, Return or Keep, at any later time. It must not block.
	// Required.
	Offer func(terms []change.Term)
	// Detached is called when the node has left the cluster because its lease may have expired,
	// Attached when it is back. Neither may block. They default to no-ops.
	Detached func(cause error)
	Attached func()
	// Alone says that no other node can take over. The node then keeps its terms while the store
	// does not answer, as long as the process is not frozen, and joins again if its membership
	// expired meanwhile. If the membership ended for another reason, Run returns instead of
	// reattaching. The store must have one membership, which another Join replaces in place.
	Alone bool
	// Viewed gets each view of the cluster. It must not block. Defaults to a no-op.
	Viewed func(cluster.View)
	// RetryWindow is how long the node keeps trying to claim partitions that another node still
	// owns. Defaults to 2 s.
	RetryWindow time.Duration
	// Clock includes the time during which the machine is suspended; only differences of its
	// readings count. Defaults to cluster.SinceBoot.
	Clock func() time.Duration
	// Log defaults to none.
	Log *slog.Logger
	// Registerer takes the metrics; nil registers them nowhere.
	Registerer prometheus.Registerer
	// Tracer records the takeover of partitions that other nodes have handed over. Defaults to
	// none.
	Tracer trace.Tracer
}

const (
	// AsksEvery is how often a member asks the store at least, and how long it waits for the
	// answer.
	AsksEvery = 1500 * time.Millisecond
	// TellsWithin is how long a change of the report waits for the next heartbeat at most.
	TellsWithin = 250 * time.Millisecond
)

const (
	defaultTTL = 10 * time.Second

	releaseTimeout = 3 * time.Second

	claimRetry    = 200 * time.Millisecond // between two attempts to claim partitions of another process
	defaultBeat   = 2 * time.Second
	viewEvery     = AsksEvery // finds changes without a hint, and that the store does not answer
	recoverPause  = 250 * time.Millisecond
	recoverStreak = 2           // good renewals in a row before a detached node comes back
	recoverWithin = time.Second // of each other
)

// A Store is the part of a [cluster.Store] that a Member uses.
type Store interface {
	View(ctx context.Context) (cluster.View, error)
	Hints(ctx context.Context) <-chan struct{}
	Join(ctx context.Context, first cluster.Heartbeat, ttl time.Duration) (cluster.Membership, error)
}

// A Member owns the partitions that the cluster's plan assigns to this node.
type Member struct {
	cfg     Config
	store   Store
	metrics metrics
	started time.Time
	held    atomic.Pointer[attachment] // nil while detached
	renewed atomic.Bool                // the last renewal succeeded
	lease   atomic.Int64               // the reading of the clock at which the lease expires unless renewed, 0 before the first lease
	viewed  atomic.Int64               // the reading at the last view, 0 before the first
	turning *health.Loop
	blind   atomic.Pointer[error]  // why later views have failed, nil if they have not
	apart   atomic.Pointer[error]  // why the node cannot rejoin, nil if it can or need not
	outage  atomic.Pointer[outage] // nil while the store answers
}

// New makes a Member.
func New(cfg Config, store Store) *Member {
	cfg.TTL = cmp.Or(cfg.TTL, defaultTTL)
	cfg.HeartbeatInterval = cmp.Or(cfg.HeartbeatInterval, defaultBeat)
	cfg.RetryWindow = cmp.Or(cfg.RetryWindow, 2*time.Second)
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	if cfg.Clock == nil {
		cfg.Clock = cluster.SinceBoot
	}
	if cfg.Tracer == nil {
		cfg.Tracer = noop.Tracer{}
	}
	if cfg.Detached == nil {
		cfg.Detached = func(error) {}
	}
	if cfg.Attached == nil {
		cfg.Attached = func() {}
	}
	if cfg.Viewed == nil {
		cfg.Viewed = func(cluster.View) {}
	}
	s := &Member{cfg: cfg, store: store, started: time.Now(), turning: health.NewLoop()}
	s.metrics = newMetrics(cfg.Registerer, s)
	return s
}

// Run joins the cluster and calls serve. Until serve returns, Run claims the partitions that the
// plan assigns to this node and offers those that it assigns to others. Then it leaves. It returns
// after all its goroutines have ended.
//
// When the lease may have expired, all terms end at once, before anything else happens. The node is
// then detached, but serve continues, and as soon as the store answers again the node rejoins with
// a new lease and new terms. The end of ctx tells serve to stop; then no further terms begin, and
// those that run last until serve returns.
//
// If another process has the node's name, Run waits until that process's lease expires unless
// renewed, and then returns the fault NodeRunning. It returns NodeTermLost if that happens to a
// detached node, or if a single node has lost its membership. A ctx that ends before serve is
// called is a planned stop. Otherwise Run returns the result of serve.
func (s *Member) Run(ctx context.Context, serve func(ctx context.Context) error) error {
	lifetime := context.WithoutCancel(ctx)
	m, deadline, err := s.join(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	s.cfg.Log.Info("joined the cluster", "node", s.cfg.Member.Node, "process", s.cfg.Member.Process)
	serving, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var served error
	done := make(chan struct{})
	go func() {
		defer close(done)
		served = serve(serving)
	}()
	defer s.turning.Rest()
	for m != nil {
		a := s.attach(lifetime, m, deadline)
		lost := a.run(lifetime, serving.Done(), done)
		s.detach(a, lost)
		a.asking.Wait() // it has been canceled
		if lost == nil {
			s.leave(lifetime, m)
			break
		}
		if s.cfg.Alone {
			err = lost
		} else {
			m, deadline, err = s.reattach(lifetime, m, done)
		}
		if err != nil {
			stop(change.ErrTermLost)
			<-done
			if s.cfg.Alone && onlyLeft(lost) == nil {
				s.leave(lifetime, m)
			}
			return errors.Join(fault.New(fault.NodeTermLost, err), ignoring(served, change.ErrTermLost, context.Canceled))
		}
	}
	<-done
	return served
}

// ignoring returns err unless it is one of those.
func ignoring(err error, those ...error) error {
	for _, e := range those {
		if errors.Is(err, e) {
			return nil
		}
	}
	return err
}

// Return returns a term that is no longer in use, for any reason. It may be called from any
// goroutine and never blocks.
func (s *Member) Return(term change.Term) {
	if held := s.held.Load(); held != nil {
		held.terms.Return(term)
	}
}

// Transfer makes another member the owner of the partitions of terms whose work has ended. It
// returns how many transfers are known to have succeeded. It returns all of the terms; the node
// that the plan names claims the partitions that were not transferred.
func (s *Member) Transfer(ctx context.Context, to cluster.Member, terms []change.Term) (transferred int, err error) {
	held := s.held.Load()
	if held == nil {
		return 0, fault.Newf(fault.NodeDetached, "the node is not a member of its cluster now")
	}
	partitions, epochs := make([]change.Partition, len(terms)), make([]change.Epoch, len(terms))
	for i, term := range terms {
		partitions[i], epochs[i] = term.Partition, term.Epoch
	}
	owners, err := held.membership.Transfer(ctx, to, partitions, epochs)
	for i := range owners {
		if owners[i].Process == to.Process {
			transferred++
		}
	}
	for _, term := range terms {
		held.terms.Return(term)
	}
	return transferred, err
}

// Window returns terms for partitions that have been transferred. They end after d, or earlier with
// the lease of the original terms.
func (s *Member) Window(terms []change.Term, d time.Duration) []change.Term {
	if held := s.held.Load(); held != nil {
		return held.terms.Window(terms, d)
	}
	return terms // they have ended
}

// Keep declines the offer of a term, which continues. The Member offers it again while the plan
// assigns its partition to another node.
func (s *Member) Keep(term change.Term) {
	if held := s.held.Load(); held != nil {
		held.terms.Keep(term.Partition, term.Epoch)
	}
}

// Age returns how long the member has made no progress although it had work; waiting for the store
// counts as progress.
func (s *Member) Age() time.Duration { return s.turning.Age() }

// ViewAge returns the age of the last view of the cluster, 0 before the first.
func (s *Member) ViewAge() time.Duration { return s.viewAge() }

// Renewed reports whether the last renewal of the lease succeeded.
func (s *Member) Renewed() bool { return s.renewed.Load() }

// DeadlineLag returns the time until the lease expires unless renewed: the send time of the last
// successful renewal, plus the TTL, minus now. The node is detached when a third of the TTL is
// left. Until it is back, DeadlineLag refers to the former lease and becomes negative. It is 0
// before the first lease.
func (s *Member) DeadlineLag() time.Duration {
	deadline := time.Duration(s.lease.Load())
	if deadline == 0 {
		return 0
	}
	return deadline - s.cfg.Clock()
}

// Sees returns an error if the cluster could not be read for as long as a lease is trusted: the
// node then knows neither the other members nor the plan. It is detached, even if it can renew its
// lease, unless the cluster was read and is corrupt.
func (s *Member) Sees() error {
	failure := s.blind.Load()
	age := s.viewAge()
	if failure == nil || age < trustedFor(s.cfg.TTL) {
		return nil
	}
	return fmt.Errorf("the cluster could not be read for %s: %w", age.Truncate(time.Second), *failure)
}

// An outage is a time during which the store has not answered, and the reason.
type outage struct {
	since time.Time
	err   error
}

// Outage returns since when the store has not answered both kinds of requests, renewals of the
// lease and views, and the reason, nil while it answers.
func (s *Member) Outage() (since time.Time, err error) {
	if o := s.outage.Load(); o != nil {
		return o.since, o.err
	}
	return time.Time{}, nil
}

// unansweredSince notes that a request that was sent at that time got no reply.
func (s *Member) unansweredSince(sent time.Duration, err error) {
	o := outage{since: time.Now().Add(sent - s.cfg.Clock()), err: err}
	if before := s.outage.Load(); before != nil {
		o.since = before.since
	}
	s.outage.Store(&o)
}

// Apart returns why a detached node cannot rejoin although the store answers, nil if it can.
func (s *Member) Apart() error {
	if why := s.apart.Load(); why != nil && s.held.Load() == nil {
		return *why
	}
	return nil
}

// viewAge returns the age of the last view of the cluster, 0 before the first.
func (s *Member) viewAge() time.Duration {
	viewed := time.Duration(s.viewed.Load())
	if viewed == 0 {
		return 0
	}
	return s.cfg.Clock() - viewed
}

// seen notes that the cluster was read.
func (s *Member) seen() {
	s.blind.Store(nil)
	s.viewed.Store(max(int64(s.cfg.Clock()), 1)) // a clock may start at 0
}

// rely notes when a lease expires.
func (s *Member) rely(t leaseDeadline) { s.lease.Store(int64(t.Sent + t.TTL)) }

// Trusted reports whether the node is a member of the cluster and can rely on its lease now.
// Callers check it before they send anything.
func (s *Member) Trusted() bool {
	held := s.held.Load()
	return held != nil && held.terms.Trusted()
}

// within calls f with a timeout.
func within[T any](ctx context.Context, timeout time.Duration, f func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return f(ctx)
}

func (s *Member) tryJoin(ctx context.Context) (cluster.Membership, error) {
	return s.store.Join(ctx, s.report(), s.cfg.TTL)
}

// report returns the node's current heartbeat.
func (s *Member) report() cluster.Heartbeat {
	var h cluster.Heartbeat
	if s.cfg.Report != nil {
		h = s.cfg.Report()
	}
	h.Node = s.cfg.Member.Node
	h.Process = s.cfg.Member.Process
	h.StartedAt = s.started
	h.Kind = cluster.KindNode
	return h
}

// attach starts an attachment under a new membership.
func (s *Member) attach(ctx context.Context, m cluster.Membership, t leaseDeadline) *attachment {
	owned, end := context.WithCancelCause(ctx)
	a := &attachment{
		Member: s, membership: m, deadline: t, end: end, terms: newTermSet(owned, s.cfg.Clock, t),
		answers: make(chan func() error, requests), blocked: make(map[change.Partition]time.Duration),
	}
	s.held.Store(a)
	s.renewed.Store(true)
	s.outage.Store(nil)
	s.rely(t)
	s.seen() // joining includes a view
	s.metrics.detached.Set(0)
	s.cfg.Attached()
	return a
}

// detach ends the terms, before anything else is done. A nil cause is a planned stop.
func (s *Member) detach(a *attachment, lost error) {
	if lost == nil {
		a.end(context.Canceled)
		s.held.Store(nil)
		return
	}
	a.end(change.ErrTermLost)
	s.held.Store(nil)
	if s.cfg.Alone {
		s.cfg.Log.Warn("terms ended: the partitions are not ours any more", "error", lost)
		return
	}
	lag := max(s.cfg.Clock()-a.deadline.Until, 0)
	s.metrics.detached.Set(1)
	s.cfg.Log.Error("detached from the cluster: terms ended", "code", string(fault.NodeDetached), "terms", len(a.terms.Held()), "after_deadline", lag, "error", lost)
	s.cfg.Detached(lost)
}

// reattach rejoins with a new lease once the store answers steadily. It returns no membership if
// done is closed first, and a *cluster.HeldError if another process has the node's name.
func (s *Member) reattach(ctx context.Context, old cluster.Membership, done <-chan struct{}) (cluster.Membership, leaseDeadline, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var watch sync.WaitGroup
	defer watch.Wait()
	watch.Go(func() {
		select {
		case <-done:
			cancel()
		case <-ctx.Done():
		}
	})
	defer cancel() // before the wait
	good := 0
	first := time.Duration(0)
	said := false
	for ctx.Err() == nil {
		s.turning.RestFor(s.cfg.TTL) // longer than an attempt may take
		now := s.cfg.Clock()
		if !s.answers(ctx, old) || good > 0 && now-first > recoverWithin {
			good = 0
		} else {
			good++
		}
		if good == 1 {
			first = now
		}
		if good >= recoverStreak {
			m, t, err := s.rejoin(ctx, old)
			held, isHeld := errors.AsType[*cluster.HeldError](err)
			switch {
			case err == nil:
				s.cfg.Log.Info("attached to the cluster again")
				s.apart.Store(nil)
				return m, t, nil
			case isHeld && held.Node == s.cfg.Member.Node:
				return nil, t, err
			}
			s.apart.Store(&err)
			if !said && ctx.Err() == nil {
				s.cfg.Log.Warn("the store answers again, but the node cannot come back yet", "error", err)
				said = true
			}
			good = 0
		}
		_ = retry.Sleep(ctx, recoverPause)
	}
	return nil, leaseDeadline{}, nil
}

// answers reports whether the store replies to a request about the old lease, with any result. If
// the cluster could not be read, a view must succeed first, so that the old lease expires
// meanwhile.
func (s *Member) answers(ctx context.Context, old cluster.Membership) bool {
	ctx, cancel := context.WithTimeout(ctx, recoverWithin)
	defer cancel()
	if s.blind.Load() != nil {
		if _, err := s.store.View(ctx); unanswered(err) && fault.Of(err) != fault.ClusterReplaced {
			s.metrics.unseen.Inc()
			return false
		}
		s.seen()
	}
	_, err := old.Renew(ctx)
	answered := err == nil || errors.Is(err, cluster.ErrLeft)
	if answered {
		s.outage.Store(nil)
	}
	return answered
}

// rejoin ends the old lease and joins under a new one.
func (s *Member) rejoin(ctx context.Context, old cluster.Membership) (cluster.Membership, leaseDeadline, error) {
	leaving, cancel := context.WithTimeout(ctx, releaseTimeout)
	defer cancel()
	if _, err := s.store.View(leaving); errors.Is(err, cluster.ErrGone) { // a remaining member prevents others from creating a cluster
		return nil, leaseDeadline{}, err
	}
	if err := old.Leave(leaving); err != nil {
		return nil, leaseDeadline{}, fmt.Errorf("end the old lease: %w", err)
	}
	sent := s.cfg.Clock()
	m, err := within(ctx, trustedFor(s.cfg.TTL), s.tryJoin)
	return m, granted(sent, s.cfg.TTL), err
}

// leave ends the membership, so that no process has to wait for the lease to expire.
func (s *Member) leave(ctx context.Context, m cluster.Membership) {
	ctx, cancel := context.WithTimeout(ctx, releaseTimeout)
	defer cancel()
	if err := m.Leave(ctx); err != nil {
		s.cfg.Log.Warn("the lease was not ended and runs out by itself", "error", err)
		return
	}
	if s.cfg.Alone {
		s.cfg.Log.Info("partitions released")
		return
	}
	s.cfg.Log.Info("left the cluster")
}
