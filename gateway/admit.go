package gateway

import (
	"context"
	"crypto/tls"
	"net/netip"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/proto"

	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway/access"
	"github.com/mongostream/streamer/gateway/streampb"
)

// maxOthers bounds the concurrent calls of other services, such as health watches and reflection,
// which need no token; maxOthersOfAddress those of one remote address.
const maxOthers, maxOthersOfAddress = 100, 25

// An others counts the calls of other services, by remote address, as listeners count connections.
type others struct {
	mu  sync.Mutex
	all int
	of  map[netip.Addr]int
}

// enter counts a call until exit, or returns why it may not begin.
func (o *others) enter(ctx context.Context, method string) (exit func(), err error) {
	from := access.NetworkOf(addressOf(ctx)) // addresses without a port count as one
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.all >= maxOthers:
		return nil, fault.Newf(fault.SessionTooMany, "%d calls of %s and similar methods are open", o.all, method)
	case o.of[from] >= maxOthersOfAddress:
		return nil, fault.Newf(fault.SessionTooMany, "%d calls of %s and similar methods are open from %s", o.of[from], method, from)
	}
	o.all++
	o.of[from]++
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.all--
		if o.of[from]--; o.of[from] == 0 {
			delete(o.of, from)
		}
	}, nil
}

// An admitted is a stream whose context carries the identity of the peer, and ends when the peer's
// credentials expire.
type admitted struct {
	grpc.ServerStream

	ctx context.Context //nolint:containedctx // gRPC passes the context in the stream
}

// Context implements grpc.ServerStream.
func (a admitted) Context() context.Context { return a.ctx }

// RecvMsg implements grpc.ServerStream. A message that is not accepted is a fault.
func (a admitted) RecvMsg(m any) error {
	message, ok := m.(proto.Message)
	if !ok {
		return a.ServerStream.RecvMsg(m)
	}
	r := &received{message: message}
	if err := a.ServerStream.RecvMsg(r); err != nil {
		return err
	}
	return r.err
}

// admitStream returns an interceptor that authenticates a stream before anything else.
func (s *Server) admitStream() grpc.StreamServerInterceptor {
	others := &others{of: make(map[netip.Addr]int)}
	return func(service any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
		ctx := stream.Context()
		if info.FullMethod != streampb.Gateway_Connect_FullMethodName {
			exit, err := others.enter(ctx, info.FullMethod)
			if err != nil {
				return refusal(err)
			}
			defer exit()
		}
		ctx, release, err := s.admit(ctx, info.FullMethod)
		if err != nil {
			return refusal(err)
		}
		defer release()
		return refusal(next(service, admitted{stream, ctx}))
	}
}

func (s *Server) admitCall(ctx context.Context, request any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	ctx, release, err := s.admit(ctx, info.FullMethod)
	if err != nil {
		return nil, refusal(err)
	}
	defer release()
	return next(ctx, request)
}

// admit authenticates the peer. Calls of the health service need no credentials.
func (s *Server) admit(ctx context.Context, method string) (context.Context, context.CancelFunc, error) {
	if strings.HasPrefix(method, "/"+grpc_health_v1.Health_ServiceDesc.ServiceName+"/") {
		return ctx, func() {}, nil
	}
	shown := access.Peer{Listener: access.GRPC, Authorization: metadata.ValueFromIncomingContext(ctx, "authorization")}
	if p, ok := peer.FromContext(ctx); ok {
		shown.Address = p.Addr.String()
		shown.TLS = stateOf(p)
	}
	return s.cfg.Access.Admit(ctx, shown)
}

// addressOf returns the remote address of a call, which no other open connection has.
func addressOf(ctx context.Context) string {
	if p, ok := peer.FromContext(ctx); ok {
		return p.Addr.String()
	}
	return ""
}

// stateOf returns the state of a peer's TLS connection, nil for plaintext.
func stateOf(p *peer.Peer) *tls.ConnectionState {
	if info, ok := p.AuthInfo.(credentials.TLSInfo); ok {
		return &info.State
	}
	return nil
}
