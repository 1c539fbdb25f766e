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

// spareConnections are connections beyond twice those that are served: for probes, and for those
// that are told that there is no room.
const spareConnections = 200

// A Listeners is what a node's servers have in common towards the network.
type Listeners struct {
	// Access says who may come in, Accounts are what the connections of each identity use together.
	Access   *access.Authenticator
	Accounts *access.Accounts

	cfg        config.Config
	http, grpc *access.TLS // nil: no TLS
	refused    refused
}

// New reads the files that the configuration names. It starts nothing; the logger may be nil.
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
	// One list of identities serves both: certificates' subjects may stand in it where one of the
	// servers asks for certificates. Where both do, of different authorities, a subject counts at
	// one of them.
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

// defaults returns what an identity may have that names no limits: its share of what the node has.
func defaults(cfg config.Config) access.Defaults {
	share := func(of int) int { return max(1, of*cfg.Access.Share/100) }
	return access.Defaults{
		Sessions: share(cfg.Gateway.MaxSessions), Events: share(cfg.HTTP.MaxClients), Notices: share(MaxNotices),
		Connections:     share(connections(cfg.Gateway.MaxSessions) + connections(cfg.HTTP.MaxClients)),
		StartsPerSecond: cfg.Access.StartsPerSecond,
	}
}

// connections returns how many connections it takes to serve so many clients.
func connections(clients int) int { return 2*clients + spareConnections }

// Apart reports whether the servers ask for certificates of different authorities.
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

// ListenProbes binds the address of the server of probes and metrics, which speaks plaintext; it
// returns nil and no error where there is to be none.
func (l *Listeners) ListenProbes(ctx context.Context) (net.Listener, error) {
	c := l.cfg.HTTP
	if c.ProbesListen == "" {
		return nil, nil //nolint:nilnil // as documented
	}
	return l.listen(ctx, port{access.HTTP, "http.probes_listen", c.ProbesListen, false, c.Insecure, spareConnections, c.StallTimeout})
}

// ListenGRPC binds the address of the gRPC server; it returns nil and no error where there is to be
// none.
func (l *Listeners) ListenGRPC(ctx context.Context) (net.Listener, error) {
	c := l.cfg.GRPC
	if c.Listen == "" {
		return nil, nil //nolint:nilnil // as documented
	}
	return l.listen(ctx, port{access.GRPC, "grpc.listen", c.Listen, l.grpc != nil, c.Insecure, connections(l.cfg.Gateway.MaxSessions), c.StallTimeout})
}

// A port is where a server listens, by a key of the configuration.
type port struct {
	name             string // of the server, as access.Peer names it
	key, address     string
	secure, insecure bool // speaks TLS; may speak plaintext to other machines
	connections      int
	stall            time.Duration // how long a client may take nothing
}

// listen listens on a port. The listener accepts no more connections than the port has, and than
// the limit of open files leaves; those above wait. Half of them may be of one address.
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

// GRPC returns the configuration of the gRPC server's TLS, nil where it speaks plaintext.
func (l *Listeners) GRPC() *tls.Config {
	if l.grpc == nil {
		return nil
	}
	return l.grpc.Config("h2")
}

// Serve serves HTTP on a listener as http.Server does, over TLS where there is a certificate.
func (l *Listeners) Serve(server *http.Server, listener net.Listener) error {
	if l.http == nil {
		return server.Serve(listener)
	}
	server.TLSConfig = l.http.Config("h2", "http/1.1")
	return server.ServeTLS(listener, "", "")
}

// Protect lets requests through to next whose clients show who they are. Pages of the origins that
// are listed may read; what changes something is refused to pages of every other origin.
func (l *Listeners) Protect(next http.Handler) (http.Handler, error) {
	return access.CORS(l.cfg.HTTP.CORSOrigins, access.SameOrigin(l.cfg.HTTP.CORSOrigins, l.Access.Handler(next)))
}

// Certificates returns why the servers' certificates cannot be used as their files are, nil where
// they can; those from before stay in force.
func (l *Listeners) Certificates() error {
	var errs []error
	for _, t := range []*access.TLS{l.http, l.grpc} {
		if t != nil {
			errs = append(errs, t.Err())
		}
	}
	return errors.Join(errs...)
}

// Identities returns why the files of who may connect cannot be used as they are, nil where they
// can; those from before stay in force, revoked tokens too.
func (l *Listeners) Identities() error { return l.Access.Err() }

// Server makes an HTTP server over handlers that none of its clients can hold up. Requests'
// contexts end with base.
func (l *Listeners) Server(base context.Context, handler http.Handler, logger *slog.Logger) *http.Server {
	switch {
	case l.http != nil: // its certificate is for its own names
	case access.IsLocal(l.cfg.HTTP.Listen):
		handler = access.Local(l.cfg.HTTP.Listen, l.cfg.HTTP.CORSOrigins, handler)
	case l.cfg.Access.IdentitiesFile == "" && l.cfg.Access.JWKSFile == "":
		handler = access.Named(l.own(), l.cfg.HTTP.CORSOrigins, handler)
	}
	return l.server(base, handler, logger)
}

// own returns the addresses of this node that are the operator's to choose, with the name of its
// machine.
func (l *Listeners) own() []string {
	own := []string{l.cfg.HTTP.Listen, l.cfg.HTTP.ProbesListen, l.cfg.HTTP.Advertise}
	if name, err := os.Hostname(); err == nil {
		own = append(own, net.JoinHostPort(name, "0"))
	}
	return own
}

// ProbesServer is Server for probes and metrics, which have a listener of their own and no pages of
// other origins.
func (l *Listeners) ProbesServer(base context.Context, handler http.Handler, logger *slog.Logger) *http.Server {
	if access.IsLocal(l.cfg.HTTP.ProbesListen) {
		handler = access.Local(l.cfg.HTTP.ProbesListen, nil, handler)
	} else {
		handler = access.Named(l.own(), nil, handler) // also with access: probes and metrics ask for nothing
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
