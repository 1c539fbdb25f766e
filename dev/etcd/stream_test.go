package devetcd

import (
	"context"
	"errors"
	"testing"

	"google.golang.org/grpc"
)

type openStream struct {
	grpc.ServerStream

	ctx context.Context
}

func (s openStream) Context() context.Context { return s.ctx }

func TestStreamsEndWithTheServerOrTheClient(t *testing.T) {
	for name, end := range map[string]func(server, client context.CancelFunc){
		"server": func(server, _ context.CancelFunc) { server() },
		"client": func(_, client context.CancelFunc) { client() },
	} {
		ending, endServer := context.WithCancel(t.Context())
		defer endServer()
		ctx, endClient := context.WithCancel(t.Context())
		defer endClient()
		err := endWith(ending)(nil, openStream{ctx: ctx}, nil, func(_ any, stream grpc.ServerStream) error {
			end(endServer, endClient)
			<-stream.Context().Done()
			return stream.Context().Err()
		})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
