package wiring

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway"
	"github.com/mongostream/streamer/gateway/access"
	"github.com/mongostream/streamer/handoff"
	"github.com/mongostream/streamer/health"
	"github.com/mongostream/streamer/internal/admin"
	"github.com/mongostream/streamer/internal/listen"
	"github.com/mongostream/streamer/internal/mongodb"
	"github.com/mongostream/streamer/internal/statuspage"
	"github.com/mongostream/streamer/notice"
	"github.com/mongostream/streamer/streamer"
)

// servers are the node's listeners and what serves at them.
type servers struct {
	listeners  *listen.Listeners
	listener   net.Listener
	probing    net.Listener // nil where probes are answered at listener
	grpc       net.Listener // nil without a gRPC server
	gateway    *gateway.Server
	events     *gateway.Events
	server     *http.Server
	probes     *http.Server // nil where probes are answered by server
	endClients func()       // ends the event streams of subscribers
}

// Gateway returns the address of the gRPC server, empty where there is none.
func (s *servers) Gateway() string {
	if s.grpc == nil {
		return ""
	}
	return s.grpc.Addr().String()
}

// Probes returns the address of probes and metrics.
func (s *servers) Probes() string {
	if s.probing == nil {
		return s.Addr()
	}
	return s.probing.Addr().String()
}

// Addr returns the address of the HTTP server.
func (s *servers) Addr() string { return s.listener.Addr().String() }

// Peers returns the gateways that have sessions on this node or had them, and how many were left
// out.
func (s *servers) Peers() ([]gateway.Peer, int) { return s.gateway.Peers() }

// listen binds the addresses, first of all: a port in use must harm nothing.
func (s *Service) listen(ctx context.Context) (err error) {
	if s.listeners, err = listen.New(s.opts.Config, s.logger); err != nil {
		return err
	}
	s.audit()
	s.listeners.Register(s.registry)
	bind := func(listener *net.Listener, listen func(context.Context) (net.Listener, error)) {
		if err != nil {
			return
		}
		if *listener, err = listen(ctx); *listener != nil {
			s.closers = append(s.closers, func() { _ = (*listener).Close() }) // closed by its server already, where it ran
		}
	}
	bind(&s.listener, s.listeners.ListenHTTP)
	bind(&s.probing, s.listeners.ListenProbes)
	bind(&s.grpc, s.listeners.ListenGRPC)
	return err
}

// buildServers makes the HTTP servers: events for subscribers, health and metrics for those who
// look after the node.
func (s *Service) buildServers() error {
	cfg := s.opts.Config
	accounts := s.listeners.Accounts
	mux, v1 := http.NewServeMux(), http.NewServeMux()
	heartbeat := min(cfg.HTTP.Heartbeat, cfg.HTTP.StallTimeout/2) // over HTTP/2 the deadline of a write also ends a stream that is idle
	clients, endClients := context.WithCancelCause(context.Background())
	s.endClients = func() { endClients(fault.Newf(fault.NodeStopping, "the node stops")) }
	s.events = gateway.NewEvents(gateway.EventsConfig{
		Base: clients, Cluster: s.origin.Cluster, Carries: s.carries(), Heartbeat: heartbeat, StallTimeout: cfg.HTTP.StallTimeout,
		MaxClients: cfg.HTTP.MaxClients, Gzip: cfg.HTTP.Compression == "gzip", Accounts: accounts, Audit: s.auditor.Session, Logger: s.logger, Registerer: s.registry,
	}, s.node)
	v1.Handle("/v1/events", s.events)
	v1.Handle("GET /v1/changes", gateway.NewChanges(s.events, mongodb.ParseID))
	v1.Handle("GET /v1/snapshot", gateway.NewPages(gateway.EventsConfig{
		Cluster: s.origin.Cluster, Carries: s.carries(), Accounts: accounts, Logger: s.logger,
	}, s.node))
	v1.Handle("GET /v1/notices", accounts.Handler(access.Notices, notice.NewStream(notice.StreamConfig{
		Heartbeat: heartbeat, StallTimeout: cfg.HTTP.StallTimeout, MaxClients: listen.MaxNotices, Show: shown,
	}, s.board)))
	self := s.self()
	s.registry.MustRegister(problemMetric(s.Judge))
	for _, e := range s.operatorEndpoints(self) {
		v1.Handle(e.pattern, accounts.Handler(access.Request, access.Parameters(e.handler, e.parameters...)))
	}
	mux.Handle("/v1/", s.listeners.Protect(v1))
	if err := statuspage.Handle(mux); err != nil {
		return err
	}
	s.server = s.listeners.Server(clients, mux, s.logger)
	// Probes and metrics answer whatever the parameters are: a probe that is refused restarts a
	// node.
	probes := http.NewServeMux()
	probes.Handle("GET /metrics", s.registry.handler(s.registry, s.tracer != nil)) // traces have exemplars
	self.Handle(probes)
	s.components.Handle(probes)
	if s.probing != nil { // nothing of this is at the address for clients
		s.probes = s.listeners.ProbesServer(clients, probes, s.logger)
		s.logger.Info("probes and metrics have their own listener", "address", s.Probes())
		return nil
	}
	mux.Handle("GET /metrics", s.metrics())
	for _, path := range []string{"/health", "/livez", "/readyz", "/internal/"} {
		mux.Handle(path, probes)
	}
	return nil
}

// An endpoint is a path under /v1/ with an immediate answer, and the parameters that it takes.
type endpoint struct {
	pattern    string
	handler    http.Handler
	parameters []string
}

// operatorEndpoints are the paths of the status page and of the operators' commands.
func (s *Service) operatorEndpoints(self health.Node) []endpoint {
	cfg := s.opts.Config
	operations := s.operations()
	status := func() *admin.Status { return s.status(self.Report()) }
	sinks := admin.ServeSinks(cfg.Node.ID, s.Sinks, s.board, s.channels.recorded)
	return []endpoint{
		{"GET /v1/audit", admin.ServeAudit(s.board), nil},
		{"GET /v1/sinks", sinks, nil},
		{"POST /v1/sinks/{name}/{do}", sinks, nil},
		{"GET /v1/gaps", admin.ServeGaps(s.store, s.logger), nil},
		{"GET /v1/subscribers", admin.ServeSubscribers(cfg.Node.ID, served{s.node, s.member}, s.store, s.readable(), s.logger), nil},
		{"GET /v1/reports", admin.ServeReports(s.supervised, s.logger), []string{"limit"}},
		{"POST /v1/subscribers/snapshots", admin.ServeSnapshots(s.node, s.board), []string{"subscriber", "operation", "subscription", "namespace"}},
		{"GET /v1/status", admin.ServeStatus(status, operations.May), nil},
		{"POST /v1/nodes/{node}/{do}", operations.ServeDrain(), nil},
		{"POST /v1/partitions/{partition}/handoff", operations.ServeHandoff(), []string{"to"}},
		{"POST /v1/restarts/{do}", operations.ServeRestarts(), []string{"slug", "for"}},
		{"GET /v1/configuration", admin.ServeConfiguration(cfg, s.opts.Version), nil},
		{"GET /v1/history", admin.ServeHistory(cfg.Node.ID, s.history), []string{"subscriber"}},
		{"GET /v1/subscribers/detail", admin.ServeDetail(s.node, s.store, s.logger), []string{"subscriber"}},
		{"GET /v1/subscribers/rewind", operations.ServeRewindPlan(), []string{"subscriber", "to"}},
		{"POST /v1/subscribers/rewind", operations.ServeRewind(), []string{"subscriber", "to"}},
		{"POST /v1/subscribers/delete", operations.ServeDelete(), []string{"subscriber"}},
	}
}

// A served node has its subscribers, and the lag of the cluster's shared ones.
type served struct {
	*streamer.Node

	member *Membership
}

// SharedLag implements admin.Node.
func (s served) SharedLag(subscriber string) (float64, bool) { return s.member.SharedLag(subscriber) }

// self is this node as /health shows it.
func (s *Service) self() health.Node {
	cfg := s.opts.Config
	return health.Node{
		Name: cfg.Node.ID, Cluster: cfg.Cluster.ID, Version: s.opts.Version, Uptime: s.node.Uptime, Partitions: s.partitions,
		Judge: s.Judge, Membership: s.membership, Stages: s.history.Stages, Alive: s.components.Alive,
	}
}

// operations returns the operations over HTTP.
func (s *Service) operations() admin.Operations {
	o := admin.Operations{Restarts: s.supervised, Supervised: s.supervises, Board: s.board, Trusted: access.IsLocal(s.opts.Config.HTTP.Listen), Logger: s.logger}
	o.Movable = admin.Movable{Store: s.store, Source: s.readable(), Recorded: s.channels.recorded, Rewound: s.node.Rewound}
	if directives, ok := s.conn.Roster.(handoff.DirectiveStore); ok && !s.member.Alone() {
		o.Cluster = handoff.Cluster{View: s.conn.Roster, Directives: directives, HeartbeatInterval: s.opts.Config.Cluster.HeartbeatInterval}
	}
	return o
}

// supervises reports whether a slug may be that of a node of the cluster, or of a component of one:
// a node that has no view, or that restarts again and again, knows less.
func (s *Service) supervises(slug string) bool {
	view, _ := s.member.Supervised()
	return len(view.Members) == 0 || slices.ContainsFunc(view.Members, func(m cluster.Member) bool { return slug == m.Node || strings.HasPrefix(slug, m.Node+"/") })
}

// status returns the public status of the node and its cluster.
func (s *Service) status(report health.Report) *admin.Status {
	cfg := s.opts.Config
	status := admin.NewStatus(report, s.member.Overview())
	status.HeadRoomWarning = cfg.MongoDB.HeadRoomWarning.Seconds()
	status.HeadRoomCritical = cfg.MongoDB.HeadRoomCritical.Seconds()
	status.Expected = cfg.Cluster.ExpectedNodes
	_, age := s.member.Supervised()
	status.ViewAge = age.Seconds()
	return status
}

// runServer serves HTTP until the context ends.
func (s *Service) runServer(ctx context.Context, server *http.Server, serve func() error) error {
	defer s.endClients()
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		s.endClients()
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		_ = server.Shutdown(grace) // connections that are still open then close with the process
		s.events.Wait(grace)
	})
	if err := serve(); !errors.Is(err, http.ErrServerClosed) {
		stop()
		return fmt.Errorf("serve HTTP: %w", err)
	}
	<-stopped
	return nil
}

// membership returns the node's membership for /health.
func (s *Service) membership() *health.Membership {
	if s.member.Alone() {
		return nil
	}
	view, _ := s.member.View()
	m := &health.Membership{Detached: !s.member.Trusted(), Leader: view.Leader, Plan: view.Plan.Version, Members: map[string]int{}}
	m.LeaseDeadlineLag = s.member.DeadlineLag().Seconds()
	for _, seat := range view.Members {
		status := cmp.Or(string(seat.Condition()), "unknown") // of another version, or not to be read
		m.Members[status]++
	}
	for _, node := range view.Plan.Owners {
		if node == s.opts.Config.Node.ID {
			m.Planned++
		}
	}
	for _, owner := range view.Owners {
		if owner.Process == s.opts.Process && !m.Detached {
			m.Owned++
		}
	}
	return m
}

// partitions returns the state of the partitions for /health.
func (s *Service) partitions() []health.Partition {
	status := s.node.Status()
	partitions, seconds := make([]health.Partition, len(status)), make([]struct{ lag, room float64 }, len(status))
	for i, p := range status {
		partitions[i] = health.Partition{ID: int(p.Partition), Status: p.State, Rate: p.Rate, LastKnown: p.LastKnown}
		if p.Lag != nil {
			seconds[i].lag = p.Lag.Seconds()
			partitions[i].Lag = &seconds[i].lag
		}
		if p.HeadRoom != nil {
			seconds[i].room = p.HeadRoom.Seconds()
			partitions[i].HeadRoom = &seconds[i].room
		}
		if p.Failure != nil {
			partitions[i].Error = p.Failure.Error()
		}
		if !p.LastEvent.IsZero() {
			partitions[i].LastEventAt = &status[i].LastEvent
		}
	}
	return partitions
}
