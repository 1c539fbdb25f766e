package link

import (
	"context"
	"crypto/tls"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/mongostream/streamer/gateway/streampb"
)

// A Stream is a connection to a node. Send and Recv may be called at the same time, each from one goroutine.
type Stream interface {
	Send(*streampb.ConnectRequest) error
	Recv() (*streampb.ConnectResponse, error)
	CloseSend() error
	// Close frees the connection.
	Close() error
}

// Options say how to connect.
type Options struct {
	TLS        *tls.Config                           // nil is plaintext
	Token      func(context.Context) (string, error) // nil sends none
	MaxMessage int
}

// A call has a connection of its own, so that gRPC's own reconnecting does not come between.
type call struct {
	streampb.Gateway_ConnectClient

	conn *grpc.ClientConn
}

var _ Stream = (*call)(nil)

// Close implements Stream.
func (c *call) Close() error { return c.conn.Close() }

// Dial connects to a node. The stream ends with the context.
func Dial(ctx context.Context, address string, o Options) (Stream, error) {
	transport := insecure.NewCredentials()
	if o.TLS != nil {
		transport = credentials.NewTLS(o.TLS)
	}
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(transport), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(o.MaxMessage)),
		grpc.WithDisableRetry(), grpc.WithDisableServiceConfig(),
	}
	if o.Token != nil {
		options = append(options, grpc.WithPerRPCCredentials(bearer(o.Token)))
	}
	conn, err := grpc.NewClient(address, options...)
	if err != nil {
		return nil, err
	}
	connect, err := streampb.NewGatewayClient(conn).Connect(ctx)
	if err != nil {
		_ = conn.Close() // it is of no use either way
		return nil, err
	}
	return &call{connect, conn}, nil
}

// IsHere reports whether a host is this machine. Names are not looked up.
func IsHere(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// A bearer sends a token with each call. Whether it may go over plaintext the client has decided.
type bearer func(context.Context) (string, error)

var _ credentials.PerRPCCredentials = bearer(nil)

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (b bearer) GetRequestMetadata(ctx context.Context, _ ...string) (map[string]string, error) {
	token, err := b(ctx)
	if err != nil {
		return nil, err
	}
	return map[string]string{"authorization": "Bearer " + token}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials.
func (b bearer) RequireTransportSecurity() bool { return false }
