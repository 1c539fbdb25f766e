package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	"github.com/mongostream/streamer/gateway/streampb"
)

// Limits of a connection. Requests are small; idle and half-open connections are detected and closed.
const (
	maxRequest = 4 << 20
	maxHeaders = 16 << 10
	maxStreams = 100 // per connection
	window     = 128 << 10
	leastProbe = 5 * time.Second // minimum interval of a client's keepalive pings
)

// Serve serves the protocol, the standard health service and reflection until the context ends. Open streams then end within grace. A nil
// TLS configuration means plaintext.
func (s *Server) Serve(ctx context.Context, listener net.Listener, secure *tls.Config, grace time.Duration) error {
	options := []grpc.ServerOption{
		grpc.MaxRecvMsgSize(maxRequest), grpc.MaxHeaderListSize(maxHeaders), grpc.MaxConcurrentStreams(maxStreams), grpc.ConnectionTimeout(s.cfg.HandshakeTimeout),
		// Clients send little: fixed windows bound the unread data of one client.
		grpc.InitialWindowSize(window), grpc.InitialConnWindowSize(window),
		grpc.ForceServerCodecV2(newCodec()), grpc.StreamInterceptor(s.admitStream()), grpc.UnaryInterceptor(s.admitCall),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: s.cfg.ProbeAfter, Timeout: s.cfg.ProbeTimeout, MaxConnectionIdle: s.cfg.IdleTimeout}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: leastProbe, PermitWithoutStream: true}),
	}
	if secure != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(secure)))
	}
	server := grpc.NewServer(options...)
	streampb.RegisterGatewayServer(server, s)
	status := health.NewServer()
	grpc_health_v1.RegisterHealthServer(server, status)
	reflection.Register(server)
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		status.Shutdown()
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
