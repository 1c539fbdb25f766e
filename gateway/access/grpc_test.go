package access_test

import (
	"context"
	"crypto/tls"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/mongostream/streamer/gateway/access"
)

// TestServesGRPC wires the package as a gRPC server does: TLS through credentials, an interceptor
// for identities.
func TestServesGRPC(t *testing.T) {
	ca := newAuthority(t)
	cfg := access.Config{TLS: tlsFiles(t, ca, ca)}
	cfg.TLS.ClientOptional = true
	cfg.Identities = write(t, t.TempDir()+"/i", tokenLine("good", "name=by-token namespace=*")+"subject CN=gw-1 name=by-certificate namespace=*\n")
	files, err := access.NewTLS(cfg)
	if err != nil {
		t.Fatal(err)
	}
	a := newAuthenticator(t, cfg)
	seen := make(chan string, 1)
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(files.Config("h2"))),
		grpc.UnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			p, _ := peer.FromContext(ctx)
			info, _ := p.AuthInfo.(credentials.TLSInfo)
			i, err := a.Authenticate(access.Peer{Address: p.Addr.String(), TLS: &info.State, Authorization: metadata.ValueFromIncomingContext(ctx, "authorization")})
			if err != nil {
				return nil, status.Error(codes.Unauthenticated, err.Error())
			}
			seen <- i.Name
			return next(ctx, req)
		}))
	grpc_health_v1.RegisterHealthServer(server, health.NewServer())
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() { defer close(served); _ = server.Serve(l) }()
	t.Cleanup(func() { server.Stop(); <-served })

	call := func(client *tls.Config, authorization ...string) error {
		conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(credentials.NewTLS(client)))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		ctx := metadata.NewOutgoingContext(t.Context(), metadata.MD{"authorization": authorization})
		_, err = grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{})
		return err
	}
	for _, tt := range []struct{ cert, token, want string }{
		{"", "Bearer good", "by-token"}, {"gw-1", "", "by-certificate"}, {"gw-2", "Bearer good", "by-token"},
		{"", "", ""}, {"gw-2", "", ""}, {"gw-1", "Bearer wrong", ""},
	} {
		var tokens []string
		if tt.token != "" {
			tokens = []string{tt.token}
		}
		err := call(ca.client(t, tt.cert), tokens...)
		switch {
		case tt.want == "":
			if status.Code(err) != codes.Unauthenticated {
				t.Errorf("%+v: %v", tt, err)
			}
		case err != nil:
			t.Errorf("%+v: %v", tt, err)
		default:
			if got := <-seen; got != tt.want {
				t.Errorf("%+v: %s", tt, got)
			}
		}
	}
	cert, key := ca.good(t, "server-2")
	write(t, cfg.TLS.Certificate, cert)
	write(t, cfg.TLS.Key, key)
	if err := call(ca.client(t, ""), "Bearer good"); err != nil || <-seen != "by-token" {
		t.Errorf("after the certificate was replaced: %v", err)
	}
}
