package listen

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"syscall"
	"time"

	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway/access"
	"github.com/mongostream/streamer/internal/config"
)

// spareConnections is the number of connections beyond twice the served ones: for probes, and for
// clients that get the answer that the server is full.
const spareConnections = 200

// A Listeners is the network side that a node's servers share.
type Listeners struct {
	// Access authenticates clients. Accounts count the resources of each identity over all its
	// connections.
	Access   *access.Authenticator
	Accounts *access.Accounts

	cfg        config.Config
	http, grpc *access.TLS // nil: no TLS
	refused    refused
}

// New reads the files of the configuration. It starts nothing; the logger may be nil.
func New(cfg config.Config, logger *slog.Logger) (*Listeners, error) {
	l := &Listeners{Accounts: access.NewAccounts(defaults(cfg)), cfg: cfg, refused: newRefused()}
	l.Accounts.MaxFilterBytes = int(cfg.Gateway.MaxFilterBytes)
	base := access.Config{
		Identities: cfg.Access.IdentitiesFile, JWKS: cfg.Access.JWKSFile, Issuer: cfg.Access.Issuer, Audiences: cfg.Access.Audiences,
		Leeway: cfg.Access.Leeway, Recheck: cfg.Access.Recheck, Logger: logger,
	}
	var err error
	if l.http, err = access.NewTLS(withTLS(base, cfg.HTTP.TLS)); err != nil {
		return nil, err
	}
	if l.grpc, err = access.NewTLS(withTLS(base, cfg.GRPC.TLS)); err != nil {
		return nil, err
	}
	// Both servers share one list of identities. It may contain subjects of certificates if one of
	// the servers requires certificates. If both do, from different authorities, a subject is valid
	// at one of them.
	base.Apart = Apart(cfg)
	asks := cfg.GRPC.TLS
	if asks.ClientCAFile == "" {
		asks = cfg.HTTP.TLS
	}
	if l.Access, err = access.New(withTLS(base, asks)); err != nil {
		return nil, err
	}
	return l, nil
}

// MaxNotices bounds the streams of notices of a node.
const MaxNotices = 100

// defaults returns the limits of an identity without its own: its share of the node's resources.
func defaults(cfg config.Config) access.Defaults {
	share := func(of int) int { return max(1, of*cfg.Access.Share/100) }
	return access.Defaults{
		Sessions: share(cfg.Gateway.MaxSessions), Events: share(cfg.HTTP.MaxClients), Notices: share(MaxNotices),
		Connections:     share(connections(cfg.Gateway.MaxSessions) + connections(cfg.HTTP.MaxClients)),
		StartsPerSecond: cfg.Access.StartsPerSecond,
	}
}

// connections returns how many connections a server needs for a number of clients.
func connections(clients int) int { return 2*clients + spareConnections }

// Apart reports whether the servers require certificates of different authorities.
func Apart(cfg config.Config) bool {
	return cfg.GRPC.TLS.ClientCAFile != "" && cfg.HTTP.TLS.ClientCAFile != "" && cfg.GRPC.TLS.ClientCAFile != cfg.HTTP.TLS.ClientCAFile
}

func withTLS(c access.Config, t config.ServerTLS) access.Config {
	c.TLS = access.TLSConfig{Certificate: t.CertFile, Key: t.KeyFile, ClientCA: t.ClientCAFile, ClientOptional: t.ClientOptional}
	return c
}

// ListenHTTP binds the address of the HTTP server.
func (l *Listeners) ListenHTTP(ctx context.Context) (net.Listener, error) {
	c := l.cfg.HTTP
	return l.listen(ctx, port{access.HTTP, "http.listen", c.Listen, l.http != nil, c.Insecure, connections(c.MaxClients), c.StallTimeout})
}

// ListenProbes binds the address of the server of probes and metrics, which speaks plaintext. It
// returns nil and no error if none is configured.
func (l *Listeners) ListenProbes(ctx context.Context) (net.Listener, error) {
	c := l.cfg.HTTP
	if c.ProbesListen == "" {
		return nil, nil //nolint:nilnil // as documented
	}
	return l.listen(ctx, port{access.HTTP, "http.probes_listen", c.ProbesListen, false, c.Insecure, spareConnections, c.StallTimeout})
}

// ListenGRPC binds the address of the gRPC server. It returns nil and no error if none is
// configured.
func (l *Listeners) ListenGRPC(ctx context.Context) (net.Listener, error) {
	c := l.cfg.GRPC
	if c.Listen == "" {
		return nil, nil //nolint:nilnil // as documented
	}
	return l.listen(ctx, port{access.GRPC, "grpc.listen", c.Listen, l.grpc != nil, c.Insecure, connections(l.cfg.Gateway.MaxSessions), c.StallTimeout})
}

// A port is the address of a server, from a key of the configuration.
type port struct {
	name             string // of the server, as access.Peer names it
	key, address     string
	secure, insecure bool // speaks TLS; may speak plaintext to other machines
	connections      int
	stall            time.Duration // how long a client may read nothing
}

// listen listens on a port. The listener accepts at most the port's number of connections, less if
// the limit of open files is lower; further ones wait. One address may have half of them.
func (l *Listeners) listen(ctx context.Context, p port) (net.Listener, error) {
	if err := access.CheckListen(p.address, p.secure, p.insecure); err != nil {
		return nil, fault.Newf(fault.Of(err), "%s: %w", p.key, errors.Unwrap(err))
	}
	open := net.ListenConfig{
		Control:         userTimeout(max(probeAfter+probeTimeout, p.stall+probeTimeout)),
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: probeAfter, Interval: probeTimeout / 2, Count: 2},
	}
	listener, err := open.Listen(ctx, "tcp", p.address)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fault.Newf(fault.NodeAddressInUse, "%s: %w", p.key, err)
	case err != nil:
		return nil, fault.Newf(fault.ConfigBadValue, "%s: %w", p.key, err)
	}
	failed := func(from net.Addr) {
		if l.Access.Seen != nil {
			l.Access.Seen(access.Peer{Listener: p.name, Address: from.String()}, nil, access.ErrHandshake)
		}
	}
	needed, limit := Files(l.cfg)
	room := fitting(p.connections, needed, demand(l.cfg), limit)
	return newGate(listener, room, cmp.Or(l.cfg.Access.ConnectionsPerAddress, room/2), p.secure, l.refused, failed), nil
}

// GRPC returns the TLS configuration of the gRPC server, nil for plaintext.
func (l *Listeners) GRPC() *tls.Config {
	if l.grpc == nil {
		return nil
	}
	return l.grpc.Config("h2")
}

// Serve serves HTTP on a listener like http.Server, over TLS if there is a certificate.
func (l *Listeners) Serve(server *http.Server, listener net.Listener) error {
	if l.http == nil {
		return server.Serve(listener)
	}
	server.TLSConfig = l.http.Config("h2", "http/1.1")
	return server.ServeTLS(listener, "", "")
}

// Protect passes requests of authenticated clients to next. Pages of the listed origins may read;
// requests that change something are refused from pages of any other origin.
func (l *Listeners) Protect(next http.Handler) http.Handler {
	return access.CORS(l.cfg.HTTP.CORSOrigins, access.SameOrigin(l.cfg.HTTP.CORSOrigins, l.Access.Handler(next)))
}

// Certificates returns why the certificate files are not usable, nil if they are. Until then the
// former certificates stay in use.
func (l *Listeners) Certificates() error {
	var errs []error
	for _, t := range []*access.TLS{l.http, l.grpc} {
		if t != nil {
			errs = append(errs, t.Err())
		}
	}
	return errors.Join(errs...)
}

// Identities returns why the files with the identities are not usable, nil if they are. Until then
// the former identities stay valid, including revoked tokens.
func (l *Listeners) Identities() error { return l.Access.Err() }

// Server makes an HTTP server that no client can block. The contexts of requests end with base.
func (l *Listeners) Server(base context.Context, handler http.Handler, logger *slog.Logger) *http.Server {
	switch {
	case l.http != nil: // the certificate protects the host names
	case access.IsLocal(l.cfg.HTTP.Listen):
		handler = access.Local(l.cfg.HTTP.Listen, l.cfg.HTTP.CORSOrigins, handler)
	case l.cfg.Access.IdentitiesFile == "" && l.cfg.Access.JWKSFile == "":
		handler = access.Named(l.own(), l.cfg.HTTP.CORSOrigins, handler)
	}
	return l.server(base, handler, logger)
}

// own returns the configured addresses of this node, and the name of its machine.
func (l *Listeners) own() []string {
	own := []string{l.cfg.HTTP.Listen, l.cfg.HTTP.ProbesListen, l.cfg.HTTP.Advertise}
	if name, err := os.Hostname(); err == nil {
		own = append(own, net.JoinHostPort(name, "0"))
	}
	return own
}

// ProbesServer is Server for probes and metrics, which have a separate listener and no pages of
// other origins.
func (l *Listeners) ProbesServer(base context.Context, handler http.Handler, logger *slog.Logger) *http.Server {
	if access.IsLocal(l.cfg.HTTP.ProbesListen) {
		handler = access.Local(l.cfg.HTTP.ProbesListen, nil, handler)
	} else {
		handler = access.Named(l.own(), nil, handler) // also with access control: probes and metrics need no authentication
	}
	return l.server(base, handler, logger)
}

func (l *Listeners) server(base context.Context, handler http.Handler, logger *slog.Logger) *http.Server {
	return &http.Server{
		Handler: limitRequests(l.cfg.HTTP.StallTimeout, handler), ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaders,
		HTTP2:       &http.HTTP2Config{MaxConcurrentStreams: maxStreams, SendPingTimeout: probeAfter, PingTimeout: probeTimeout, WriteByteTimeout: l.cfg.HTTP.StallTimeout},
		ErrorLog:    slog.NewLogLogger(cmp.Or(logger, slog.New(slog.DiscardHandler)).Handler(), slog.LevelDebug),
		BaseContext: func(net.Listener) context.Context { return base },
		ConnState:   shaken,
	}
}

// shaken ends the bound on the handshake of a connection with its first request.
func shaken(conn net.Conn, state http.ConnState) {
	if state != http.StateActive && state != http.StateIdle {
		return
	}
	if secured, ok := conn.(*tls.Conn); ok {
		conn = secured.NetConn()
	}
	if c, ok := conn.(*gated); ok {
		c.HandshakeDone()
	}
}
