package gateway

import (
	"cmp"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway/access"
	"github.com/mongostream/streamer/gateway/streampb"
	"github.com/mongostream/streamer/internal/input"
	"github.com/mongostream/streamer/match"
	"github.com/mongostream/streamer/streamer"
)

// Config configures a Server.
type Config struct {
	// Cluster, Node and Partitions are sent in every Welcome. Required.
	Cluster, Node string
	Partitions    int
	// Recent returns notices that are still relevant for a new session. Optional.
	Recent func() []delivery.Notice
	// Topology announces the owners of partitions to clients. Optional.
	Topology Topologist
	// Carries describes the contents of the log's events, for the validation of filters.
	Carries match.Carries
	// MaxSessions bounds the connections, MaxSubscriptions the subscriptions of each. Default to
	// 1000 and 10000.
	MaxSessions, MaxSubscriptions int
	// SubscribeRate and SubscribeBurst bound how many subscriptions a connection may change a
	// second, and at once; excess requests are delayed. Default to 200 and 10000.
	SubscribeRate, SubscribeBurst int
	// CreditEvents and CreditBytes are the hub's limits, sent in every Welcome.
	CreditEvents, CreditBytes int
	// HandshakeTimeout bounds connection establishment, and then the wait for a Hello. Defaults to
	// 10 s.
	HandshakeTimeout time.Duration
	// IdleTimeout bounds how long a connection may be open without a call. Defaults to 2 min.
	IdleTimeout time.Duration
	// ProbeAfter is the idle time before a keepalive ping, ProbeTimeout bounds the answer. Default
	// to 30 s and 10 s.
	ProbeAfter, ProbeTimeout time.Duration
	// StallTimeout is how long a client may read nothing, whatever it sends. Defaults to 30 s.
	StallTimeout time.Duration
	// HeartbeatTimeout bounds the silence of a client. Defaults to 30 s; clients send heartbeats
	// three times as often.
	HeartbeatTimeout time.Duration
	// MaxPeers is how many named subscribers Peers returns at most, KeepLeft for how long it
	// returns one that has left. Default to 256 and 10 s.
	MaxPeers int
	KeepLeft time.Duration
	// Access authenticates peers, Accounts enforce their limits. Default to access for every client
	// without limits.
	Access   *access.Authenticator
	Accounts *access.Accounts
	// Audit gets every session. Optional.
	Audit Audit
	// Logger defaults to one that discards.
	Logger *slog.Logger
	// Registerer registers the metrics. Optional.
	Registerer prometheus.Registerer
}

// Audit records that a subscriber of an identity has connected from an address over GRPC or HTTP,
// and returns a function to call when its session is over.
type Audit func(transport, address, identity, subscriber string) (ended func(why string))

// begin calls an Audit, if there is one, for a session without an error so far.
func (a Audit) begin(transport, address string, identity *access.Identity, subscriber string) (ended func(why string)) {
	if a == nil || identity == nil {
		return func(string) {}
	}
	return a(transport, address, identity.Name, subscriber)
}

// A Server serves the protocol of proto/streamer/v1 over gRPC: one session of the node for each
// connection.
type Server struct {
	streampb.UnimplementedGatewayServer

	cfg    Config
	node   *streamer.Node
	logger *slog.Logger
	input  *input.Messages
	peers  peers
	ended  endings
	health *health.Server

	mu struct {
		sync.Mutex
		leaving     bool
		connections int
		sessions    map[*delivery.Session]*access.Identity
	}
}

var _ streampb.GatewayServer = (*Server)(nil)

// NewServer returns a Server of a node.
func NewServer(cfg Config, node *streamer.Node) *Server {
	cfg.MaxSessions, cfg.MaxSubscriptions = cmp.Or(cfg.MaxSessions, 1000), cmp.Or(cfg.MaxSubscriptions, 10_000)
	cfg.SubscribeRate, cfg.SubscribeBurst = cmp.Or(cfg.SubscribeRate, 200), cmp.Or(cfg.SubscribeBurst, 10_000)
	cfg.HandshakeTimeout = cmp.Or(cfg.HandshakeTimeout, 10*time.Second)
	cfg.IdleTimeout = cmp.Or(cfg.IdleTimeout, 2*time.Minute)
	cfg.ProbeAfter, cfg.ProbeTimeout = cmp.Or(cfg.ProbeAfter, 30*time.Second), cmp.Or(cfg.ProbeTimeout, 10*time.Second)
	cfg.StallTimeout = cmp.Or(cfg.StallTimeout, 30*time.Second)
	cfg.HeartbeatTimeout = cmp.Or(cfg.HeartbeatTimeout, 30*time.Second)
	cfg.MaxPeers, cfg.KeepLeft = cmp.Or(cfg.MaxPeers, 256), cmp.Or(cfg.KeepLeft, 10*time.Second)
	if cfg.Access == nil {
		cfg.Access = access.Everybody()
	}
	if cfg.Accounts == nil {
		cfg.Accounts = access.NewAccounts(access.Defaults{})
	}
	s := &Server{cfg: cfg, node: node, input: input.NewMessages(cfg.MaxSubscriptions), logger: cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler)), ended: newEnded(cfg.Registerer, "grpc")}
	s.health = health.NewServer()
	s.Serving(true)
	s.peers.most, s.peers.keep = cfg.MaxPeers, cfg.KeepLeft
	s.mu.sessions = make(map[*delivery.Session]*access.Identity)
	return s
}

// Connect implements streampb.GatewayServer.
func (s *Server) Connect(stream streampb.Gateway_ConnectServer) error {
	err := s.connect(stream)
	s.ended.count(reasonOf(stream.Context(), err))
	holdBack(stream.Context(), s.cfg.Accounts, err)
	return refusal(err)
}

// connect serves one connection. It releases all its resources before it returns.
func (s *Server) connect(stream streampb.Gateway_ConnectServer) (err error) {
	ctx := stream.Context()
	identity := access.From(ctx)
	account, err := s.cfg.Accounts.Open(identity, access.Session, addressOf(ctx))
	if err != nil {
		return err
	}
	defer account.Close()
	if err := s.enter(); err != nil {
		return err
	}
	defer s.exit()
	defer presetTooLarge(stream, &err)()
	c := &connection{
		server: s, stream: stream, identity: identity, account: account, writer: newWriter(stream.SendMsg),
		requests: make(chan *streampb.ConnectRequest), subscribed: make(map[string]subscribed),
	}
	if err = c.run(ctx); !ended(err) && !fault.IsPublic(err) && ctx.Err() == nil {
		s.logger.Warn("session failed", "identity", identity.Name, "error", err)
	}
	if c.writer.stall.left(time.Now(), closeAfter) <= 0 && !isGone(ctx) {
		hangUp(ctx)
	}
	return err
}

// enter counts a connection, unless the node leaves or has too many.
func (s *Server) enter() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.leaving {
		return fault.Newf(fault.NodeStopping, "the node stops")
	}
	if s.mu.connections >= s.cfg.MaxSessions {
		return fault.Newf(fault.SessionTooMany, "%d subscribers are connected", s.cfg.MaxSessions)
	}
	s.mu.connections++
	return nil
}

// Serving has the health service say whether the node can serve clients, which it can until this
// is called first. A node that leaves cannot.
func (s *Server) Serving(ready bool) {
	status := grpc_health_v1.HealthCheckResponse_NOT_SERVING
	if ready {
		status = grpc_health_v1.HealthCheckResponse_SERVING
	}
	for _, service := range []string{"", streampb.Gateway_ServiceDesc.ServiceName} {
		s.health.SetServingStatus(service, status)
	}
}

// Leave tells clients that the node is about to stop: the health service reports NOT_SERVING, no
// new session begins, and clients of open sessions get the request to connect to another node. Open
// sessions continue.
func (s *Server) Leave() {
	s.health.Shutdown()
	s.mu.Lock()
	s.mu.leaving = true
	s.mu.Unlock()
	s.Announce(delivery.Notice{
		Kind: "shutting_down", Text: "The node is about to stop: connect to another one.", Code: fault.NodeStopping, At: time.Now(),
	})
}

func (s *Server) exit() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.connections--
}

// announces registers a session of an identity for Announce until the returned function is called.
func (s *Server) announces(session *delivery.Session, identity *access.Identity) (stop func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.sessions[session] = identity
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.mu.sessions, session)
	}
}

// Announce sends a notice, which has no place in the log, to every session that may know of it.
func (s *Server) Announce(n delivery.Notice) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for session, identity := range s.mu.sessions {
		if mayKnow(identity, n) {
			session.Notify(n)
		}
	}
}

// mayKnow reports whether an identity may get a notice.
func mayKnow(i *access.Identity, n delivery.Notice) bool {
	_, some := i.Readable(n.Namespaces)
	return some && (!n.Private || i.Operates())
}
