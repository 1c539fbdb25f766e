package devetcd

import (
	"context"

	"google.golang.org/grpc"
)

// An endingStream is a stream of a client, such as a watch, that ends with the server.
type endingStream struct {
	grpc.ServerStream

	ctx context.Context //nolint:containedctx // a stream carries its context
}

func (s endingStream) Context() context.Context { return s.ctx }

// endWith makes every stream end when the given context does. Stopping etcd would else wait five
// seconds for its clients to end them.
func endWith(ending context.Context) grpc.StreamServerInterceptor {
	return func(server any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
		ctx, cancel := context.WithCancel(stream.Context())
		defer cancel()
		stop := context.AfterFunc(ending, cancel)
		defer stop()
		return handle(server, endingStream{stream, ctx})
	}
}
