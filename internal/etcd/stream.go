package etcd

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"
)

// NewStream implements [grpc.ClientConnInterface]. It tries each endpoint once, and returns the
// error of the last.
func (e *endpoints) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	ctx = clientv3.WithRequireLeader(ctx)
	token := e.login.current(renewing)
	if e.login != nil && (token == "" || strings.HasPrefix(method, "/etcdserverpb.Watch/")) {
		// A watch that is refused because of its token looks like one that is refused permanently.
		if err := e.authenticate(ctx, token); err != nil {
			return nil, err
		}
		token = e.login.current(renewing)
	}
	var tried []*endpoint
	for last := error(nil); ; {
		at := e.choose(tried)
		if at == nil {
			return nil, last
		}
		tried = append(tried, at)
		s, err := e.open(withToken(ctx, token), at, desc, method, opts...)
		if err == nil {
			return s, nil
		}
		if ctx.Err() != nil {
			return nil, status.FromContextError(ctx.Err()).Err()
		}
		if last = err; !isRefusal(err) && !unknown(rpctypes.Error(err)) {
			return nil, err
		}
	}
}

// open opens a stream at an endpoint, and waits for a connection as long as an attempt may take:
// who opens streams again does so rarely.
func (e *endpoints) open(ctx context.Context, at *endpoint, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (*stream, error) {
	life, end := context.WithCancelCause(ctx)
	s := &stream{endpoints: e, at: at, life: life, end: end}
	stop := e.limit(at, renewing, end)
	opened, err := at.conn.NewStream(life, desc, method, append(slices.Clip(opts), grpc.WaitForReady(true))...)
	stop()
	switch late := context.Cause(life); {
	case ctx.Err() != nil:
	case late != nil:
		err = late
	case err != nil:
		e.failed(at, renewing, time.Time{}, err)
	}
	if err != nil {
		end(err)
		return nil, err
	}
	s.ClientStream = opened
	s.mu.stop = stop
	e.mu.Lock()
	defer e.mu.Unlock()
	at.streams[s] = struct{}{}
	context.AfterFunc(life, s.ended)
	return s, nil
}

// A stream ends when its endpoint does not answer messages of the stream, or does not answer other
// requests while another endpoint does.
type stream struct {
	grpc.ClientStream

	*endpoints
	at   *endpoint
	life context.Context //nolint:containedctx // the stream's
	end  context.CancelCauseFunc

	mu struct {
		sync.Mutex

		waiting int // for so many answers
		began   time.Time
		stop    func() bool // of the timeout of the next answer
	}
}

// ended removes the stream from its endpoint.
func (s *stream) ended() {
	s.endpoints.mu.Lock()
	delete(s.at.streams, s)
	s.endpoints.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.stop()
}

// wantsAnswer reports whether etcd answers a message that is sent on a stream.
func wantsAnswer(m any) bool {
	switch m := m.(type) {
	case *pb.LeaseKeepAliveRequest:
		return true
	case *pb.WatchRequest:
		return m.GetCreateRequest() != nil
	}
	return false
}

// isAnswer reports whether a message is the answer to one that wants an answer.
func isAnswer(m any) bool {
	switch m := m.(type) {
	case *pb.LeaseKeepAliveResponse:
		return true
	case *pb.WatchResponse:
		return m.GetCreated()
	}
	return false
}

// SendMsg implements [grpc.ClientStream].
func (s *stream) SendMsg(m any) error {
	if wantsAnswer(m) {
		s.mu.Lock()
		if s.mu.waiting++; s.mu.waiting == 1 && s.life.Err() == nil {
			s.mu.began = time.Now()
			s.mu.stop = s.limit(s.at, renewing, s.end)
		}
		s.mu.Unlock()
	}
	return s.ClientStream.SendMsg(m)
}

// received records that an answer has come.
func (s *stream) received() {
	s.mu.Lock()
	began := s.mu.began
	s.mu.stop()
	if s.mu.waiting = max(s.mu.waiting-1, 0); s.mu.waiting > 0 {
		s.mu.began = time.Now()
		s.mu.stop = s.limit(s.at, renewing, s.end)
	}
	s.mu.Unlock()
	s.answered(s.at, renewing, time.Since(began))
}

// RecvMsg implements [grpc.ClientStream]. A stream that is ended because of its endpoint fails like
// one whose connection broke: etcd's client opens another.
func (s *stream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if err == nil {
		if isAnswer(m) {
			s.received()
		}
		return nil
	}
	switch ended := context.Cause(s.life); {
	case status.Code(ended) == codes.Unavailable:
		err = ended
	case ended != nil, errors.Is(err, io.EOF):
	case s.login != nil && isDenial(err):
		s.login.forget(tokenOf(s.life))
		err = s.broken(err)
	case isRefusal(err), unknown(rpctypes.Error(err)), status.Code(err) == codes.Canceled && s.at.conn.GetState() != connectivity.Shutdown:
		s.failed(s.at, renewing, time.Time{}, err)
		err = s.broken(err)
	}
	s.end(err)
	return err
}

// broken is an error that makes etcd's client open another stream, whatever has ended this one.
func (s *stream) broken(err error) error {
	return status.Errorf(codes.Unavailable, "%s: %s", s.at.address, status.Convert(err).Message())
}
