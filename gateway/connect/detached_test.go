package connect_test

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/change/changetest"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway/access"
	"github.com/mongostream/streamer/gateway/connect"
	"github.com/mongostream/streamer/gateway/fanout"
	"github.com/mongostream/streamer/gateway/streampb"
	"github.com/mongostream/streamer/lane"
	"github.com/mongostream/streamer/lane/lanetest"
)

// A stalled is a transport whose client takes no heartbeat before it is released.
type stalled struct {
	grpc.ServerStream

	ctx      context.Context // as gRPC hands it on
	requests chan *streampb.ConnectRequest
	released chan struct{}
	events   atomic.Int64 // that were handed over
}

func (s *stalled) Context() context.Context { return s.ctx }

func (s *stalled) SetTrailer(metadata.MD) {}

func (s *stalled) Recv() (*streampb.ConnectRequest, error) {
	select {
	case r := <-s.requests:
		return r, nil
	case <-s.ctx.Done():
		return nil, io.EOF
	}
}

func (s *stalled) Send(m *streampb.ConnectResponse) error {
	if m.GetHeartbeat() != nil {
		<-s.released
	}
	s.events.Add(int64(len(m.GetBatch().GetEvents())))
	return nil
}

// A batch that waits for its turn while the client takes nothing is not handed to the transport once the node may serve nobody.
func TestBatchThatWaitsForItsTurnIsNotHandedOverWithoutTrust(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var detached atomic.Bool
		source := &lanetest.Log{}
		source.Append(changetest.Event{ID: 1})
		log := lane.NewLog(lane.Config{Partitions: partitions}, source)
		hub := fanout.New(fanout.Config{Partitions: partitions, Trusted: func() bool { return !detached.Load() }}, log)
		cfg := connect.Config{Cluster: "c", Node: "n", Partitions: partitions}
		cfg.Now = func(context.Context) (change.Timestamp, error) {
			_, last := source.Reach()
			return last, nil
		}
		cfg.First = func(context.Context) (change.Timestamp, bool, error) {
			first, _ := source.Reach()
			return first, true, nil
		}
		server := connect.NewServer(cfg, hub)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { _ = log.Run(ctx, change.Position{}) })
		running.Go(func() { _ = hub.Run(ctx) })
		admitted, release, err := access.Everybody().Admit(ctx, access.Peer{})
		if err != nil {
			t.Fatal(err)
		}
		stream := &stalled{ctx: admitted, requests: make(chan *streampb.ConnectRequest, 1), released: make(chan struct{})}
		stream.requests <- &streampb.ConnectRequest{Message: &streampb.ConnectRequest_Hello{Hello: hello(nil)}}
		ended := make(chan error, 1)
		go func() { ended <- server.Connect(stream) }()
		synctest.Wait()
		source.Append(changetest.Event{ID: 2})
		time.Sleep(11 * time.Second) // a heartbeat is being sent
		before := stream.events.Load()
		if before == 0 {
			t.Error("nothing came while the node was trusted")
		}
		source.Append(changetest.Event{ID: 3})
		synctest.Wait()
		detached.Store(true)
		close(stream.released)
		synctest.Wait()
		if n := stream.events.Load() - before; n > 0 {
			t.Errorf("%d events were handed over", n)
		}
		select {
		case err := <-ended:
			if !strings.Contains(fmt.Sprint(err), string(fault.NodeDetached)) {
				t.Errorf("the connection ended with %v", err)
			}
		default:
			t.Error("the connection goes on")
		}
		release()
		cancel()
		running.Wait()
	})
}
