package wiring

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/cluster/leader"
	"github.com/mongostream/streamer/cluster/member"
	"github.com/mongostream/streamer/cluster/plan"
	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway"
	"github.com/mongostream/streamer/handoff"
	"github.com/mongostream/streamer/health"
	"github.com/mongostream/streamer/notice"
	"github.com/mongostream/streamer/oplog"
	"github.com/mongostream/streamer/streamer"
)

// MembershipConfig configures a Membership. Everything is required unless it says more.
type MembershipConfig struct {
	Member     cluster.Identity
	Partitions int
	TTL        time.Duration // of the lease
	// TakeOver ends the ownership of another process. It is for a cluster of one.
	TakeOver bool
	// HeartbeatInterval is how often the node sends heartbeats. Defaults to 2 s.
	HeartbeatInterval time.Duration

	Leadership
	Announced
	Moves

	// Registry is that of a cluster of one, Cluster the store of several nodes.
	Registry cluster.Registry
	Cluster  cluster.Store

	// Silence is for how long MongoDB may answer nothing, not even that nothing has happened,
	// before the node says that it cannot reach it.
	Silence time.Duration

	Node  *streamer.Node
	Log   *oplog.Log
	Board *notice.Board
	// Beside runs while the node serves, until its context ends. It may be nil.
	Beside func(ctx context.Context)
	// Stopping reports whether the node's planned stop has begun.
	Stopping func() bool
	// Clock includes the time during which the machine is suspended; only differences of its
	// readings count. Defaults to cluster.SinceBoot.
	Clock func() time.Duration

	Logger     *slog.Logger
	Registerer prometheus.Registerer
	// Tracer records handoffs. Defaults to none.
	Tracer trace.Tracer
}

// Leadership says how the node plans the cluster while it leads it.
type Leadership struct {
	// Expected is the planned number of nodes. One means a single-node cluster.
	Expected int
	// Settle is how long the leader waits for joining nodes, Rebalance how often it measures the
	// load of the nodes.
	Settle, Rebalance time.Duration
	// RebalanceFloor is how many events a second a node must have more or less than its share for
	// partitions to move because of it, RebalanceCooldown how long one that has moved stays.
	RebalanceFloor    float64
	RebalanceCooldown time.Duration
	// Leader has the other settings with which the node leads the cluster. The fields above, and
	// identities, are filled in.
	Leader leader.Config
}

// Announced describes the node to the other nodes and to people: in its heartbeats, and in its log
// when it starts to serve.
type Announced struct {
	// Version, Capacity, Fingerprint and Gateway, the address at which gateways reach the node, are
	// for the others to know. Gateway is empty where there is none.
	Version     string
	Capacity    int
	Fingerprint string
	Gateway     string
	// Coverage lists the changes that the node reads. Sinks are the sinks that it serves, each with
	// a hash of its subscriptions.
	Coverage change.Coverage
	Sinks    []string
	// Address is that of the node's HTTP server, Page the URL of the status page there, for people
	// to find.
	Address, Page string
	// HTTP is the base URL at which the node's components are asked how they do, Host the name of
	// its machine, and Components are their slugs, in its heartbeats. Components may be nil.
	HTTP, Host string
	Components func() []string
	// Verdict returns the node's status and problems, for its heartbeats, and counts the changes of
	// these problems that others must know at once. News signals each. They may be nil.
	Verdict func() (status health.Status, problems []health.Problem, changes uint64)
	News    <-chan struct{}
	// Gateways returns the named subscribers with sessions at the node, and how many more there
	// are. It must not block. Defaults to none.
	Gateways func() (listed []gateway.Peer, unlisted int)
}

// Moves says how partitions move to other nodes.
type Moves struct {
	// Overlap is the broadcast window of handoffs.
	Overlap time.Duration
	// DrainTimeout is how long a stop waits for partitions to move to others.
	DrainTimeout time.Duration
	// Announce sends the node's sessions a message without a place in the log. It must not block.
	Announce func(delivery.Notice)
}

// A Membership is a node's place in its cluster: alone, or with others. It joins what decides which
// partitions are the node's with the node that serves them.
type Membership struct {
	cfg    MembershipConfig
	member *member.Member
	solo   *member.Solo   // the member in a cluster of one
	leader *leader.Leader // nil in a cluster of one
	donor  *handoff.Donor // nil in a cluster of one
	terms  terms
	view   atomic.Pointer[cluster.View] // the last one, nil before
	told   *topologist                  // nil in a cluster of one
	begun  atomic.Bool                  // the log has been open
}

// NewMembership returns a Membership. Run runs it.
func NewMembership(cfg MembershipConfig) *Membership {
	if cfg.Clock == nil {
		cfg.Clock = cluster.SinceBoot
	}
	cfg.HeartbeatInterval = cmp.Or(cfg.HeartbeatInterval, 2*time.Second)
	cfg.Coverage = *cfg.Coverage.Bounded()
	cfg.Sinks = slices.Sorted(slices.Values(cfg.Sinks))
	if cfg.Tracer == nil {
		cfg.Tracer = noop.Tracer{}
	}
	m := &Membership{cfg: cfg}
	if cfg.Expected < 2 {
		m.solo = member.NewSolo(member.SoloConfig{
			Member: cfg.Member, Partitions: cfg.Partitions, TTL: cfg.TTL, TakeOver: cfg.TakeOver, Resume: m.resume, Clock: cfg.Clock,
			Log: cfg.Logger,
		}, cfg.Registry)
		m.member = m.solo.Member
		return m
	}
	m.told = newTopologist()
	m.member = member.New(member.Config{
		Member: cfg.Member, TTL: cfg.TTL, HeartbeatInterval: cfg.HeartbeatInterval, Report: m.report, News: cfg.News, Resume: m.resume,
		Offer:  func(terms []change.Term) { m.donor.Offer(terms) },
		Viewed: m.viewed, Clock: cfg.Clock, Log: cfg.Logger, Registerer: cfg.Registerer, Tracer: cfg.Tracer,
	}, cfg.Cluster)
	m.donor = handoff.NewDonor(handoff.Config{
		Node: cfg.Member.Node, Partitions: cfg.Partitions, Server: donorServer{m}, Owner: m.member, Overlap: cfg.Overlap, View: m.View, Board: cfg.Board, Logger: cfg.Logger,
		Registerer: cfg.Registerer, Tracer: cfg.Tracer,
	})
	c := cfg.Leader
	c.Config = m.planConfig()
	c.Trusted = m.leads
	c.Board = cfg.Board
	c.Clock = cfg.Clock
	c.Log = cfg.Logger
	c.Registerer = cfg.Registerer
	m.leader = leader.New(c, cfg.Cluster)
	return m
}

// planConfig returns how the cluster is planned while the node leads it.
func (m *Membership) planConfig() plan.Config {
	cfg := m.cfg
	c := m.cfg.Leader.Config
	c.Node = cfg.Member.Node
	c.Partitions = cfg.Partitions
	c.Expected = cfg.Expected
	c.Settle = cfg.Settle
	c.TTL, c.Beat, c.Rebalance = cfg.TTL, cfg.HeartbeatInterval, cfg.Rebalance
	c.RebalanceFloor, c.RebalanceCooldown = cfg.RebalanceFloor, cfg.RebalanceCooldown
	return c
}

// Run takes the partitions that are the node's and serves them until the context ends: all of them,
// or a share.
func (m *Membership) Run(ctx context.Context) error {
	if !m.Alone() {
		return m.returning(ctx, func() error { return m.member.Run(ctx, m.serveShare) })
	}
	return m.returning(ctx, func() error {
		return m.solo.Run(ctx, func(serving context.Context, terms []change.Term) error {
			switch err := m.resume(serving, terms); {
			case err == nil:
				watching, stop := context.WithCancel(serving)
				var watch sync.WaitGroup
				watch.Go(func() { m.watchGateways(watching) })
				defer watch.Wait()
				defer stop()
				return m.serve(serving)
			case ctx.Err() != nil && errors.Is(err, context.Canceled):
				return nil // a planned stop while the node began
			default:
				return err
			}
		})
	})
}

// serve runs the node until the context ends.
func (m *Membership) serve(ctx context.Context) error {
	m.cfg.Logger.Info("node runs", "node", m.cfg.Member.Node, "process", m.cfg.Member.Process, "address", m.cfg.Address, "version", m.cfg.Version, "page", m.cfg.Page)
	if m.cfg.Beside != nil {
		beside, stop := context.WithCancel(ctx)
		var running sync.WaitGroup
		defer running.Wait()
		defer stop()
		running.Go(func() { m.cfg.Beside(beside) })
	}
	return m.cfg.Node.Run(ctx)
}

// serveShare runs the node while terms come and go, and the leader until the node has ended,
// because it may have to plan its own departure.
func (m *Membership) serveShare(ctx context.Context) error {
	lifetime, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var moving sync.WaitGroup
	defer moving.Wait()
	moving.Go(func() { m.donor.Run(lifetime) })
	ended := make(chan error, 1)
	go func() { ended <- m.leader.Run(lifetime) }()
	serving, end := context.WithCancelCause(context.WithoutCancel(ctx))
	drained := context.AfterFunc(ctx, func() {
		m.drain(lifetime)
		end(context.Cause(ctx))
	})
	defer drained()
	err := m.serve(serving)
	stop()
	moving.Wait()
	return errors.Join(err, <-ended)
}

// viewed takes a view of the cluster.
func (m *Membership) viewed(v cluster.View) {
	m.view.Store(&v)
	m.told.viewed(v)
}

// Topology informs gateways about the owners of partitions. In a single-node cluster it only waits
// until the context ends.
func (m *Membership) Topology() gateway.Topologist {
	if m.told == nil {
		return newTopologist()
	}
	return m.told
}

// leads reports whether the node may lead: it is a member, and can read the cluster's shared state.
func (m *Membership) leads() bool { return m.member.Trusted() && m.member.Sees() == nil }

// Sees returns why the node cannot read the cluster's shared state, nil if it can and in a
// single-node cluster.
func (m *Membership) Sees() error { return m.member.Sees() }

// DeadlineLag returns how long the node's lease lives unless it is renewed; of several nodes only.
func (m *Membership) DeadlineLag() time.Duration { return m.member.DeadlineLag() }

// Outage returns since when the store of the cluster has not answered, and why; nil while it does.
func (m *Membership) Outage() (since time.Time, err error) { return m.member.Outage() }

// Apart returns why a node that is detached cannot join again although the store answers, nil where
// that is not so.
func (m *Membership) Apart() error { return m.member.Apart() }

// Trusted reports whether the node may hand anything to anybody now.
func (m *Membership) Trusted() bool { return m.Alone() || m.member.Trusted() }

// Alone reports whether this is a cluster of one.
func (m *Membership) Alone() bool { return m.solo != nil }

// Leads reports whether what one node of the cluster does for all of them is this node's to do.
func (m *Membership) Leads() bool { return m.Alone() || m.leader.Leading() }

// View returns the last view of the cluster; none before the first and in a cluster of one.
func (m *Membership) View() (cluster.View, bool) {
	if v := m.view.Load(); v != nil {
		return *v, true
	}
	return cluster.View{}, false
}

// Supervised returns the members whose components must be supervised, and the age of that list: in
// a single-node cluster the node itself.
func (m *Membership) Supervised() (cluster.View, time.Duration) {
	if m.Alone() {
		h := m.report()
		h.Node = m.cfg.Member.Node
		h.Process = m.cfg.Member.Process
		h.Kind = cluster.KindNode
		return cluster.View{Members: []cluster.Member{{Heartbeat: h}}}, 0
	}
	view, _ := m.View()
	return view, m.member.ViewAge()
}

// LeaseAge returns how long the loop that keeps the lease has made no progress although it had
// work, LeaderAge the same for the leader's loop.
func (m *Membership) LeaseAge() time.Duration { return m.member.Age() }

// LeaderAge is documented with LeaseAge.
func (m *Membership) LeaderAge() time.Duration {
	if m.leader == nil {
		return 0
	}
	return m.leader.Age()
}

// Served returns an error that lists the node's partitions that it does not serve yet, nil if there
// are none.
func (m *Membership) Served() error {
	if m.Alone() {
		served := 0
		for p := range change.Partition(m.cfg.Partitions) {
			if m.cfg.Node.Epoch(p) != (change.Epoch{}) {
				served++
			}
		}
		if served < m.cfg.Partitions {
			return fmt.Errorf("%d of %d partitions are served", served, m.cfg.Partitions)
		}
		return nil
	}
	view, known := m.View()
	switch {
	case m.member.Apart() != nil:
		return m.member.Apart()
	case !m.member.Trusted():
		return errors.New("the node is not a member of its cluster now")
	case !known || view.Plan.Version == 0:
		return errors.New("the cluster has no plan yet")
	}
	missing := 0
	for p, node := range view.Plan.Owners {
		if node == m.cfg.Member.Node && m.cfg.Node.Epoch(change.Partition(p)) == (change.Epoch{}) {
			missing++
		}
	}
	if missing > 0 {
		return fmt.Errorf("%d partitions of this node are not served yet", missing)
	}
	return nil
}

// reads reports whether MongoDB lets the node read its log. A log that waits for those who read it
// asks nothing, which is no silence.
func (m *Membership) reads() bool {
	log := m.cfg.Log.Stats()
	return log.Open && (log.Paused || log.Full || time.Since(log.LastReply) < m.cfg.Silence)
}

// Alike returns which other nodes read something else or serve other sinks, nil where there are
// none: a gateway that goes from one to the other may get less than it asked for, and only nodes
// that cover all others own partitions.
func (m *Membership) Alike() error {
	view, _ := m.View()
	var reads, serves []string
	for _, s := range view.Members {
		if s.Garbled != nil {
			continue
		}
		if s.Fingerprint != "" && s.Fingerprint != m.cfg.Fingerprint {
			reads = append(reads, s.Node)
		}
		if s.Coverage != nil && !slices.Equal(s.Sinks, m.cfg.Sinks) {
			serves = append(serves, s.Node)
		}
	}
	var differs []string
	if len(reads) > 0 {
		differs = append(differs, strings.Join(reads, ", ")+": other settings of mongodb (watch, operations, full_document, …) than here")
	}
	if len(serves) > 0 {
		differs = append(differs, strings.Join(serves, ", ")+": other sinks, or other subscriptions of them, than here")
	}
	if len(differs) == 0 {
		return nil
	}
	return fault.Newf(fault.ClusterCoverage, "%s", strings.Join(differs, "; "))
}

// report returns the node's heartbeat for the other members.
func (m *Membership) report() cluster.Heartbeat {
	cfg := m.cfg
	open := m.reads()
	failing := m.cfg.Node.Failing()
	load := m.cfg.Node.Hub().Load()
	if open {
		m.begun.Store(true)
	}
	h := cluster.Heartbeat{
		Version: cfg.Version, Status: cluster.StatusHealthy, Capacity: float64(cfg.Capacity), Gateway: Advertised(cfg.Gateway),
		Count: cfg.Partitions, Fingerprint: cfg.Fingerprint, Coverage: &cfg.Coverage, Sinks: cfg.Sinks,
		Load: cluster.Load{Queued: int64(load.Bytes)},
		HTTP: cfg.HTTP, Host: cfg.Host,
	}
	if cfg.Components != nil {
		h.Components = cfg.Components()
	}
	if m.begun.Load() { // before that, nothing is known
		h.Checks = map[string]bool{
			cluster.CheckMongoDB: open, cluster.CheckEtcd: m.member.Renewed() && m.member.Sees() == nil,
			cluster.CheckCheckpoint: !failing, cluster.CheckGateway: load.Ready,
		}
	}
	h.Gateways, h.Unlisted = m.gateways()
	if cfg.Verdict != nil {
		h.Verdict, h.Problems, h.News = cfg.Verdict()
	}
	switch {
	case cfg.Stopping():
		h.Status = cluster.StatusStopping
	case !m.begun.Load():
		h.Status = cluster.StatusStarting
	case !open, failing:
		h.Status = cluster.StatusDegraded
	}
	for _, p := range cfg.Node.Status() {
		h.Held = append(h.Held, cluster.HeldPartition{Partition: p.Partition, Epoch: p.Epoch, Rate: p.Rate, State: string(p.State)})
		h.Load.Rate += p.Rate
		if p.Lag != nil && (h.Load.Lag == nil || *h.Load.Lag < p.Lag.Seconds()) {
			lag := p.Lag.Seconds()
			h.Load.Lag = &lag
		}
	}
	h.Lags = lags(m.cfg.Node.Subscribers(), len(h.Held))
	return h
}

// lags returns how late the shared subscribers are at a node that holds so many partitions. It
// leaves out those that do not get all of them: how late they are there is unknown.
func lags(subscribers []streamer.SubscriberStatus, held int) map[string]float64 {
	lags := make(map[string]float64)
	for _, s := range subscribers {
		getsAll := s.Failure == nil && s.Partitions >= held
		if s.Shared && s.Lag != nil && getsAll {
			lags[s.Name] = s.Lag.Seconds()
		}
	}
	return lags
}

// SharedLag returns how late a shared subscriber is where it is latest; known is false while some
// node that serves partitions does not say it, while nobody serves some partition, and while the
// node is cut off from the others: what they said is old then.
func (m *Membership) SharedLag(subscriber string) (seconds float64, known bool) {
	if !m.Trusted() {
		return 0, false
	}
	return sharedLag(m.Overview().Members, m.cfg.Partitions, subscriber)
}

func sharedLag(members []cluster.Member, partitions int, subscriber string) (seconds float64, known bool) {
	held := make(map[change.Partition]bool, partitions)
	for _, member := range members {
		if len(member.Held) == 0 {
			continue
		}
		for _, p := range member.Held {
			held[p.Partition] = true
		}
		lag, told := member.Lags[subscriber]
		if !told {
			return 0, false
		}
		seconds = max(seconds, lag)
	}
	if len(held) < partitions || partitions == 0 {
		return 0, false
	}
	return seconds, true
}

// Advertised returns an address as other machines may use it: with this machine's name where it
// says all addresses of the machine.
func Advertised(address string) string {
	host, port, err := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	namesAll := host == "" || ip != nil && ip.IsUnspecified()
	if err == nil && namesAll {
		if name, err := os.Hostname(); err == nil {
			return net.JoinHostPort(cmp.Or(name, host), port)
		}
	}
	return address
}
