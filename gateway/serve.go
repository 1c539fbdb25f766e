package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/mongostream/streamer/gateway/streampb"
)

// Limits of a connection. Requests are small; idle and half-open connections are detected and
// closed.
const (
	maxRequest  = 4 << 20
	maxHeaders  = 16 << 10
	maxStreams  = 100 // per connection
	window      = 128 << 10
	readBuffer  = 4 << 10
	writeBuffer = 128 << 10       // while something is written
	leastProbe  = 5 * time.Second // minimum interval of a client's keepalive pings
)

// Serve serves the protocol, the standard health service and reflection until the context ends.
// Open streams then end within grace. A nil TLS configuration means plaintext.
func (s *Server) Serve(ctx context.Context, listener net.Listener, secure *tls.Config, grace time.Duration) error {
	options := []grpc.ServerOption{
		grpc.MaxRecvMsgSize(maxRequest), grpc.MaxHeaderListSize(maxHeaders), grpc.MaxConcurrentStreams(maxStreams), grpc.ConnectionTimeout(s.cfg.HandshakeTimeout),
		// Clients send little: fixed windows bound the unread data of one client.
		grpc.InitialWindowSize(window), grpc.InitialConnWindowSize(window),
		// And connections without traffic hold little.
		grpc.ReadBufferSize(readBuffer), grpc.WriteBufferSize(writeBuffer),
		grpc.InTapHandle(begins),
		grpc.ForceServerCodecV2(newCodec(s.input)), grpc.UnaryInterceptor(s.admitCall),
		grpc.StreamInterceptor(s.admitStream()), //nolint:contextcheck // a stream has a context of its own
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: s.cfg.ProbeAfter, Timeout: s.cfg.ProbeTimeout, MaxConnectionIdle: s.cfg.IdleTimeout}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: leastProbe, PermitWithoutStream: true}),
	}
	if secure != nil {
		options = append(options, grpc.Creds(handshakes{credentials.NewTLS(secure)}))
	}
	server := grpc.NewServer(options...)
	streampb.RegisterGatewayServer(server, s)
	grpc_health_v1.RegisterHealthServer(server, s.health)
	reflection.Register(server)
	if err := s.checkBounds(server.GetServiceInfo()); err != nil {
		return err
	}
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		s.health.Shutdown()
		timer := time.AfterFunc(grace, server.Stop)
		defer timer.Stop()
		server.GracefulStop()
	})
	if err := server.Serve(listener); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		stop()
		return fmt.Errorf("serve gRPC: %w", err)
	}
	if ctx.Err() != nil {
		<-stopped
	}
	return nil
}

// checkBounds returns an error if a client may send a text or a list that has no bound: every
// request would be refused that has it.
func (s *Server) checkBounds(services map[string]grpc.ServiceInfo) error {
	for name := range services {
		found, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(name))
		if err != nil {
			return fmt.Errorf("find service %s: %w", name, err)
		}
		service, ok := found.(protoreflect.ServiceDescriptor)
		if !ok {
			return fmt.Errorf("%s is no service", name)
		}
		for i := range service.Methods().Len() {
			if missing := s.input.Unbounded(service.Methods().Get(i).Input()); len(missing) > 0 {
				return fmt.Errorf("requests of %s have no bound for %v", name, missing)
			}
		}
	}
	return nil
}

// begins counts a stream that begins, before it costs anything, if the remote address has a method
// Begins. That closes a connection on which streams begin too fast: clients may reset them at once,
// so neither the limit of open streams nor a delay stops them.
func begins(ctx context.Context, _ *tap.Info) (context.Context, error) {
	if p, ok := peer.FromContext(ctx); ok {
		if conn, ok := p.Addr.(interface{ Begins() bool }); ok && !conn.Begins() {
			return ctx, status.Error(codes.ResourceExhausted, "streams begin too fast on this connection")
		}
	}
	return ctx, nil
}

// closeAfter is how long a client must have taken nothing when its session ends to lose its
// connection, and how long it may then take to receive why.
const closeAfter = time.Second

// hangUp closes the connection of a call after closeAfter, if its remote address is an io.Closer.
// Otherwise unread data of an ended call would stay in memory for as long as the client keeps the
// connection.
func hangUp(ctx context.Context) {
	if p, ok := peer.FromContext(ctx); ok {
		if conn, ok := p.Addr.(io.Closer); ok {
			time.AfterFunc(closeAfter, func() { _ = conn.Close() })
		}
	}
}

// handshakes are credentials that tell a connection with a method HandshakeDone that its handshake
// is complete.
type handshakes struct {
	credentials.TransportCredentials
}

// ServerHandshake implements credentials.TransportCredentials.
func (h handshakes) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := h.TransportCredentials.ServerHandshake(raw)
	if shaken, ok := raw.(interface{ HandshakeDone() }); ok && err == nil {
		shaken.HandshakeDone()
	}
	return conn, info, err
}

// Clone implements credentials.TransportCredentials.
func (h handshakes) Clone() credentials.TransportCredentials {
	return handshakes{h.TransportCredentials.Clone()}
}
