package connect

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway/access"
	"github.com/mongostream/streamer/gateway/connect/line"
	"github.com/mongostream/streamer/gateway/connect/standing"
	"github.com/mongostream/streamer/gateway/fanout"
	"github.com/mongostream/streamer/gateway/streampb"
	"github.com/mongostream/streamer/match"
)

// Config configures a Server.
type Config struct {
	// Cluster, Node and Partitions go into every Welcome. Required.
	Cluster, Node string
	Partitions    int
	// Now returns the log's current time. Required.
	Now func(context.Context) (change.Timestamp, error)
	// First returns the time of the log's oldest entry; known is false where the log cannot be looked at. Required.
	First func(context.Context) (first change.Timestamp, known bool, err error)
	// Rows keeps where gateways stand; nil keeps nothing.
	Rows Rows
	// Cursors seals where batches end; nil seals and opens nothing.
	Cursors standing.Cursors
	// Recent returns what a process of a gateway is told of the service that has not been here before, as it could not hear it when it
	// happened. Defaults to nothing.
	Recent func() []fanout.Notice
	// Topology tells clients who owns what; nil tells nothing.
	Topology Topologist
	// Carries says what the log's events have, for filters.
	Carries match.Carries
	// MaxSessions bounds the connections, MaxSubscriptions the subscriptions of each. Default to 1000 and 10000.
	MaxSessions, MaxSubscriptions int
	// Credit goes into every Welcome, as the hub has it.
	CreditEvents, CreditBytes int
	// HandshakeTimeout is how long a connection may take to be established, and then to say hello. Defaults to 10 s.
	HandshakeTimeout time.Duration
	// IdleTimeout is how long a connection may be open without a call. Defaults to 2 min.
	IdleTimeout time.Duration
	// ProbeAfter is how long a connection may be silent before its other end is probed, ProbeTimeout how long that one may take to answer.
	// Default to 30 s and 10 s.
	ProbeAfter, ProbeTimeout time.Duration
	// HeartbeatTimeout is how long a client may be silent. Defaults to 30 s; heartbeats are asked for three times as often.
	HeartbeatTimeout time.Duration
	// Access says who may connect, and Accounts what their connections use together. Default to everybody, without limits.
	Access   *access.Authenticator
	Accounts *access.Accounts
	// Logger defaults to one that discards.
	Logger *slog.Logger
}

// Rows keeps where gateways stand. checkpoint.RowKeeper is one.
type Rows interface {
	SaveRow(ctx context.Context, r checkpoint.Row) error
	Row(ctx context.Context, gateway string) (row checkpoint.Row, ok bool, err error)
}

// A Server implements streampb.GatewayServer.
type Server struct {
	streampb.UnimplementedGatewayServer

	cfg    Config
	hub    *fanout.Hub
	logger *slog.Logger

	mu struct {
		sync.Mutex
		connections int
		gateways    map[string]*holder
		processes   map[string]string // the last process of each gateway
	}
}

// A holder is who has a gateway's id.
type holder struct {
	process string
	started time.Time
	session *fanout.Session
}

var _ streampb.GatewayServer = (*Server)(nil)

// NewServer makes a Server over a hub.
func NewServer(cfg Config, hub *fanout.Hub) *Server {
	cfg.MaxSessions, cfg.MaxSubscriptions = cmp.Or(cfg.MaxSessions, 1000), cmp.Or(cfg.MaxSubscriptions, 10_000)
	cfg.HandshakeTimeout = cmp.Or(cfg.HandshakeTimeout, 10*time.Second)
	cfg.IdleTimeout = cmp.Or(cfg.IdleTimeout, 2*time.Minute)
	cfg.ProbeAfter, cfg.ProbeTimeout = cmp.Or(cfg.ProbeAfter, 30*time.Second), cmp.Or(cfg.ProbeTimeout, 10*time.Second)
	cfg.HeartbeatTimeout = cmp.Or(cfg.HeartbeatTimeout, 30*time.Second)
	if cfg.Access == nil {
		cfg.Access = access.Everybody()
	}
	if cfg.Accounts == nil {
		cfg.Accounts = access.NewAccounts()
	}
	s := &Server{cfg: cfg, hub: hub, logger: cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))}
	s.mu.gateways, s.mu.processes = make(map[string]*holder), make(map[string]string)
	return s
}

// Connect implements streampb.GatewayServer.
func (s *Server) Connect(stream streampb.Gateway_ConnectServer) (err error) {
	if !s.enter() {
		return refusal(fault.Newf(fault.SessionTooMany, "%d gateways are connected", s.cfg.MaxSessions))
	}
	defer s.exit()
	defer foretellTooLarge(stream, &err)()
	identity := access.From(stream.Context())
	account := s.cfg.Accounts.Open(identity)
	defer account.Close()
	c := &connection{
		server: s, stream: stream, identity: identity, account: account, writer: line.NewWriter(s.transport(stream)),
		requests: make(chan *streampb.ConnectRequest), subscribed: make(map[string]struct{}),
	}
	return refusal(c.run(stream.Context()))
}

// transport hands messages to a stream, but no batch once the node may serve nobody: since the session gave it the process may have stood
// still, or the client have taken nothing.
func (s *Server) transport(stream streampb.Gateway_ConnectServer) func(*streampb.ConnectResponse) error {
	return func(m *streampb.ConnectResponse) error {
		if m.GetBatch() != nil {
			if err := s.hub.Err(); err != nil {
				return err
			}
		}
		return stream.Send(m)
	}
}

func (s *Server) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.connections >= s.cfg.MaxSessions {
		return false
	}
	s.mu.connections++
	return true
}

func (s *Server) exit() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.connections--
}

// claim gives a session its gateway's id, and closes the session that had it. An older process is refused. New says that the process was not
// the last one of the gateway that was here.
func (s *Server) claim(gateway string, h *holder) (isNew bool, err error) {
	s.mu.Lock()
	before := s.mu.gateways[gateway]
	if before != nil && before.process != h.process && before.started.After(h.started) {
		s.mu.Unlock()
		return false, fault.Newf(fault.SessionReplaced, "gateway %q is process %q, which started later", gateway, before.process)
	}
	s.mu.gateways[gateway] = h
	isNew = s.mu.processes[gateway] != h.process
	if len(s.mu.processes) > rememberedPerSession*s.cfg.MaxSessions {
		clear(s.mu.processes) // who comes again hears things twice
	}
	s.mu.processes[gateway] = h.process
	s.mu.Unlock()
	if before != nil {
		before.session.Close(fault.Newf(fault.SessionReplaced, "gateway %q has connected again, as process %q", gateway, h.process))
	}
	return isNew, nil
}

// rememberedPerSession is of how many gateways the last process is remembered, for each session that there may be.
const rememberedPerSession = 10

// release gives a gateway's id back, unless another session has it.
func (s *Server) release(gateway string, h *holder) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.gateways[gateway] == h {
		delete(s.mu.gateways, gateway)
	}
}

// Announce tells every session of the node something that has no place in the log.
func (s *Server) Announce(n fanout.Notice) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.mu.gateways {
		h.session.Tell(n)
	}
}
