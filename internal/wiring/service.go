package wiring

import (
	"cmp"
	"context"
	"io"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/cluster/leader"
	"github.com/mongostream/streamer/cluster/plan"
	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gap"
	"github.com/mongostream/streamer/health"
	"github.com/mongostream/streamer/internal/admin"
	"github.com/mongostream/streamer/internal/backend"
	"github.com/mongostream/streamer/internal/breaker"
	"github.com/mongostream/streamer/internal/config"
	"github.com/mongostream/streamer/internal/mongodb"
	"github.com/mongostream/streamer/internal/mongodb/stream"
	"github.com/mongostream/streamer/internal/profile"
	"github.com/mongostream/streamer/match"
	"github.com/mongostream/streamer/notice"
	"github.com/mongostream/streamer/oplog"
	"github.com/mongostream/streamer/sink"
	"github.com/mongostream/streamer/streamer"
	"github.com/mongostream/streamer/supervisor"
)

// Options are the options of a Service.
type Options struct {
	Config config.Config
	// URIFile is the file with the connection string of Config, which the node reads again after a
	// change; empty if it has no file.
	URIFile string
	Version string
	// Process is a random id of this process. Required.
	Process string
	// TakeOver ends another process's ownership at once.
	TakeOver bool
	// StallHub is called before each turn of the hub, which waits for it. For demonstrations; nil
	// otherwise.
	StallHub func(ctx context.Context)
	// StallSink is called before each batch that a sink publishes, which waits for it. For
	// demonstrations; nil otherwise.
	StallSink func(ctx context.Context)
	// Stdout takes the lines of a sink of type stdout, which needs it. A write may block.
	Stdout io.Writer
	Logger *slog.Logger
	// LogState returns how many lines of the log have been dropped, and how long the oldest has
	// waited for a reader. Optional.
	LogState func() (dropped uint64, stuck time.Duration)
}

// A Service is a node with all that surrounds it. Assemble fills it, one part after the other; from
// Run on no field of it changes, and what does change has a lock of its own.
type Service struct {
	opts     Options
	logger   *slog.Logger
	registry *metricsRegistry
	tracer   trace.Tracer // nil where nothing is traced
	closers  []func()     // in the order of opening
	stopping atomic.Bool

	backends
	reading
	messages
	servers
	watching

	node     *streamer.Node
	member   *Membership
	sinks    []*sink.Sink
	breakers *breaker.Panel
}

// backends are the systems that the node is connected to, and the origin that it has found there.
type backends struct {
	mongo      *mongodb.Client
	conn       *backend.Conn
	store      backend.Store // of checkpoints
	roster     cluster.Store // nil without etcd
	owner      cluster.Registry
	supervised supervisor.Store
	origin     checkpoint.Origin
}

// reading is the node's view of the log: from MongoDB's oplog, and from the retained log.
type reading struct {
	source   *stream.Source
	log      *oplog.Log
	retained retained
	extent   *oplog.Range
}

// messages are the node's messages to people: notices, their channels, and the audit log.
type messages struct {
	board    *notice.Board
	channels channels
	auditor  *notice.Auditor
}

// watching is what looks after the node, and after the components of all nodes while it leads.
type watching struct {
	alarms     alarms // of etcd
	observed   observed
	history    *admin.History
	profiler   *profile.Profiler
	components *health.Components
	supervisor *supervisor.Supervisor
	ordered    chan supervisor.Order // holds the order to restart the process
}

// Assemble connects everything and starts nothing. Its errors are faults where a person can do
// something about them; whatever was opened is closed then.
func Assemble(ctx context.Context, opts Options) (*Service, error) {
	s := &Service{opts: opts, logger: cmp.Or(opts.Logger, slog.New(slog.DiscardHandler))}
	s.history = admin.NewHistory()
	s.observed.news = make(chan struct{}, 1)
	s.registry = newMetricsRegistry(opts.Version, s.logger)
	s.registerLog()
	s.board = s.newBoard()
	circuit := opts.Config.Reliability.CircuitBreaker
	s.breakers = breaker.NewPanel(breaker.Config{Threshold: circuit.Threshold, Timeout: circuit.Timeout, Board: s.board, Registerer: s.registry})
	for _, step := range []func(context.Context) error{
		s.openTracing, s.listen, s.openProfiler, s.connect, s.openSource, s.openStore, s.openChannels, s.buildLog, s.accept, s.findOrigin, s.openRetention, s.buildNode, s.buildGateway, s.buildSinks,
	} {
		if err := step(ctx); err != nil {
			s.Close()
			return nil, err
		}
	}
	return s, nil
}

// connect reaches MongoDB.
func (s *Service) connect(ctx context.Context) (err error) {
	cfg := s.opts.Config
	s.logger.Info("connecting to MongoDB", "uri", cfg.MongoDB.URI, "at_most", cfg.MongoDB.ServerSelectionTimeout)
	for _, remark := range cfg.MongoDB.URI.Remarks() {
		s.logger.Warn("option of mongodb.uri does not do what it says", "option", remark, "code", fault.MongoOption)
	}
	err = s.persist(ctx, func(ctx context.Context) (err error) {
		s.mongo, err = mongodb.Dial(ctx, mongodb.Config{
			URI: string(cfg.MongoDB.URI), Application: "streamer " + cfg.Cluster.ID + "/" + cfg.Node.ID,
			SelectionTimeout: cfg.MongoDB.ServerSelectionTimeout, Logger: s.logger,
		})
		return err
	})
	if err != nil {
		return err
	}
	s.closers = append(s.closers, s.mongo.Close)
	return nil
}

// openSource prepares the reading of the log, and opens a stream once: a right that is missing must
// be found before anything is written.
func (s *Service) openSource(ctx context.Context) (err error) {
	cfg := s.opts.Config.MongoDB
	s.source, err = stream.NewSource(stream.SourceConfig{
		Watch: backend.Watch(s.opts.Config), MaxAwait: cfg.MaxAwait, MaxStreams: cfg.MaxStreams, Guard: s.guardOpening(), Registerer: s.registry,
		Tick: cfg.Tick, Ticks: func() bool { return s.member.Leads() },
	}, s.mongo)
	if err != nil {
		return err
	}
	return s.persist(ctx, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, cfg.ServerSelectionTimeout)
		defer cancel()
		return s.source.Probe(ctx)
	})
}

// buildLog makes the node's view of the log.
func (s *Service) buildLog(context.Context) error {
	cfg := s.opts.Config
	s.extent = oplog.NewRange(oplog.RangeConfig{
		Ask: s.reach, Warning: cfg.MongoDB.HeadRoomWarning, Critical: cfg.MongoDB.HeadRoomCritical, Logger: s.logger,
		Heard: func(reach gap.Reach, floor change.Timestamp) { s.node.Heard(reach, floor) },
	})
	s.log = oplog.New(oplog.Config{
		Partitions: cfg.Cluster.Partitions, Reach: s.extent.Now, RingBytes: cfg.MongoDB.RingSize, PrefetchBytes: cfg.MongoDB.Prefetch,
		MaxStreams: cfg.MongoDB.MaxStreams, MaxGap: maxGap(cfg.Reliability.GapDetection), Dedup: dedupConfig(cfg.Reliability.Dedup),
		Keep: backend.Watch(s.opts.Config).Keeps(), Namespaces: cfg.MongoDB.Watch, Lost: func(l oplog.Loss) { s.node.Lost(l) },
		Logger: s.logger, Registerer: s.registry,
	}, s.retainedSource())
	return nil
}

// buildNode makes the node and its HTTP server.
func (s *Service) buildNode(context.Context) error {
	cfg := s.opts.Config
	var overlap time.Duration
	if cfg.Cluster.ExpectedNodes > 1 { // otherwise there is nowhere else to go
		overlap = cfg.Handoff.Overlap
	}
	documents := mongodb.NewDocuments(s.mongo, backend.Watch(cfg).Covers)
	hub := delivery.New(delivery.Config{
		Partitions: cfg.Cluster.Partitions, Halt: cfg.OnHistoryLost == "halt", CreditEvents: cfg.Gateway.CreditEvents, CreditBytes: int(cfg.Gateway.CreditBytes),
		QueueBytes: int(cfg.Gateway.QueueBytes),
		Covers:     backend.Watch(cfg).Covers,
		Kinds:      documents.Kinds,
		Snapshots:  documents, SnapshotPage: cfg.Rescan.Page(),
		SnapshotRate: rate.NewLimiter(rate.Limit(cfg.Rescan.Rate), cfg.Rescan.Page()),
		Recover:      recovered(cfg.Rescan.Collections), Stall: s.opts.StallHub, Logger: s.logger, Registerer: s.registry,
		Tracer: s.tracer, Range: s.extent,
	}, s.log)
	s.node = streamer.NewNode(streamer.NodeConfig{
		Origin: s.origin, Fingerprint: s.source.Fingerprint(), Coverage: backend.Watch(cfg).Coverage(), By: cfg.Node.ID, Namespaces: cfg.MongoDB.Watch, Range: s.extent, Away: s.observed.mongoDBAway, Board: s.board,
		Policy: checkpoint.Policy{
			Interval: cfg.Reliability.Checkpoint.Interval, EventCount: cfg.Reliability.Checkpoint.EventCount,
			MinInterval: cfg.Reliability.Checkpoint.MinInterval, MaxUnsaved: cfg.Reliability.Checkpoint.MaxUnsaved,
			IdentityRate: cfg.Reliability.Checkpoint.IdentityRate,
		},
		LagThreshold: cfg.Reliability.LagThreshold,
		AckTimeout:   cfg.Gateway.AckTimeout,
		Overlap:      overlap, FlushTimeout: cfg.Reliability.Shutdown.FlushTimeout, CheckpointTimeout: cfg.Reliability.Shutdown.CheckpointTimeout,
		Logger: s.logger, Registerer: s.registry,
	}, hub, s.log, s.guardStore())
	s.closers = append(s.closers, s.node.Close)
	if err := s.buildComponents(); err != nil {
		return err
	}
	s.buildMember()
	return s.buildServers() //nolint:contextcheck // requests last longer than the start
}

// recovered returns the collections that are read again after a loss.
func recovered(collections []string) (all []change.Namespace) {
	for _, text := range collections {
		db, coll, _ := strings.Cut(text, ".")
		all = append(all, change.Namespace{DB: db, Coll: coll})
	}
	return all
}

// silence is how long MongoDB may be late with an answer, beyond the requested wait.
const silence = 10 * time.Second

// buildMember makes the node's place in its cluster.
func (s *Service) buildMember() {
	cfg := s.opts.Config
	s.member = NewMembership(MembershipConfig{
		Member: cluster.Identity{Node: cfg.Node.ID, Process: s.opts.Process}, Partitions: cfg.Cluster.Partitions,
		TTL: cfg.Cluster.LeaseTTL, TakeOver: s.opts.TakeOver, HeartbeatInterval: cfg.Cluster.HeartbeatInterval,
		Leadership: Leadership{
			Expected: cfg.Cluster.ExpectedNodes, Settle: cfg.Cluster.SettleTime, Rebalance: cfg.Cluster.Rebalance,
			RebalanceFloor: float64(cfg.Cluster.RebalanceFloor), RebalanceCooldown: cfg.Cluster.RebalanceCooldown,
			Leader: leaderConfig(cfg.Cluster),
		},
		Announced: Announced{
			Version: s.opts.Version, Capacity: cfg.Node.Capacity, Fingerprint: s.source.Fingerprint(),
			Gateway: cmp.Or(cfg.GRPC.Advertise, s.Gateway()), Coverage: backend.Watch(cfg).Coverage(), Sinks: backend.Served(cfg.Sinks),
			Address: s.Addr(), Page: s.page(), HTTP: s.vitalsURL(), Host: hostname(),
			Components: s.components.Slugs, Verdict: s.reported, News: s.observed.news, Gateways: s.Peers,
		},
		Moves: Moves{
			Overlap: cfg.Handoff.Overlap, DrainTimeout: cfg.Reliability.Shutdown.DrainTimeout,
			Announce: func(n delivery.Notice) { s.gateway.Announce(n) },
		},
		Registry: s.owner, Cluster: s.roster, Silence: silence + s.source.MaxAwait(),
		Node: s.node, Log: s.log, Board: s.board, Beside: s.supervise, Stopping: s.stopping.Load,
		Logger: s.logger, Registerer: s.registry, Tracer: s.tracer,
	})
}

// leaderConfig returns the settings with which the node leads the cluster.
func leaderConfig(c config.Cluster) leader.Config {
	return leader.Config{
		RoundFloor: c.RoundFloor, Debounce: c.RebalanceDebounce,
		Config: plan.Config{
			ResyncDelay: c.Resync.Debounce, ResyncRate: c.Resync.RateLimit,
			Failures: c.AssignmentCircuit.FailureThreshold, OpenFor: c.AssignmentCircuit.HalfOpenTimeout, Successes: c.AssignmentCircuit.SuccessThreshold,
		},
	}
}

// Share begins a shared subscriber of everything that is watched, before Run.
func (s *Service) Share(ctx context.Context, name string) (*streamer.Shared, error) {
	program, err := match.Compile(match.Filter{Carries: s.carries()})
	if err != nil {
		return nil, err
	}
	return s.node.Share(ctx, name, []delivery.Subscription{{ID: name, Program: program, Form: delivery.Form{Format: delivery.JSON}}})
}

// Node returns the node, for what lives in the same process.
func (s *Service) Node() *streamer.Node { return s.node }

// Log returns the node's view of the log.
func (s *reading) Log() *oplog.Log { return s.log }

// Board returns the node's notices.
func (s *messages) Board() *notice.Board { return s.board }

// Origin returns the origin of the checkpoints.
func (s *backends) Origin() checkpoint.Origin { return s.origin }

// Metrics returns what /metrics shows.
func (s *Service) Metrics() *prometheus.Registry { return s.registry.Registry }

// Components returns the parts of the node whose progress is watched.
func (s *watching) Components() *health.Components { return s.components }

// Supervisor returns what sweeps the components of all nodes while this node leads.
func (s *watching) Supervisor() *supervisor.Supervisor { return s.supervisor }

// Supervision returns where the supervisor keeps its reports and orders.
func (s *backends) Supervision() supervisor.Store { return s.supervised }

// Health returns what /health shows.
func (s *Service) Health() health.Report { return s.self().Report() }

// Checkpoints returns the checkpoints as they are stored; those that can be read.
func (s *backends) Checkpoints(ctx context.Context) ([]checkpoint.Checkpoint, error) {
	return s.store.List(ctx)
}

// Run claims the partitions and serves until the context ends, which is a planned stop: it refuses
// new subscribers, stops reading, waits for the acknowledgement of delivered changes, saves the
// last checkpoints, and releases the partitions. Then it closes everything.
func (s *Service) Run(ctx context.Context) error {
	defer s.Close()
	defer s.tell(context.WithoutCancel(ctx))() // after everything that logs or posts
	web, stopWeb := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWeb()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, s.beginStop)()
	var g errgroup.Group
	run := func(loop func(context.Context)) {
		g.Go(func() error {
			loop(web)
			return nil
		})
	}
	g.Go(func() error {
		defer cancel() // without its HTTP server a node is blind and deaf
		return s.runServer(web, s.server, func() error { return s.listeners.Serve(s.server, s.listener) })
	})
	if s.probes != nil {
		g.Go(func() error {
			defer cancel()
			return s.runServer(web, s.probes, func() error { return s.probes.Serve(s.probing) })
		})
	}
	run(s.profiler.Run)
	run(s.components.Run)
	run(s.runWatchdog)
	g.Go(func() error {
		defer stopWeb()
		return s.member.Run(ctx)
	})
	g.Go(func() error {
		defer cancel()
		return s.runGateway(web)
	})
	run(s.source.Run)
	run(s.runRetention)
	run(func(ctx context.Context) { s.alarms.follow(ctx, s.conn.Alarms) })
	run(s.runRenewal)
	run(s.watchProblems)
	run(s.runHistory)
	run(s.followSinks)
	for _, k := range s.sinks {
		g.Go(func() error { return s.runSink(web, k) })
	}
	return s.awaitEnd(cancel, g.Wait)
}

// tell writes the audit log and delivers notices until stop is called, and then those that were
// posted before.
func (s *messages) tell(ctx context.Context) (stop func()) {
	carrying, stopCarrying := context.WithCancel(ctx)
	auditing, stopAuditing := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() {
		defer stopCarrying()
		s.auditor.Run(auditing)
	})
	running.Go(func() { s.channels.run(carrying) })
	return func() {
		stopAuditing()
		running.Wait()
	}
}

// beginStop tells subscribers and probes, before anything else, that the node stops; subscribers
// find another one meanwhile.
func (s *Service) beginStop() {
	s.stopping.Store(true)
	s.notifySystemd(daemon.SdNotifyStopping)
	s.gateway.Leave()
	s.endClients()
}

// closeTimeout bounds how long HTTP requests under way are waited for.
const closeTimeout = 3 * time.Second

// Close closes whatever Assemble opened.
func (s *Service) Close() {
	for _, closer := range s.closers {
		defer closer()
	}
	s.closers = nil
}
