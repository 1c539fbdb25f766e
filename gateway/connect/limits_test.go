package connect_test

import (
	"context"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"

	"github.com/mongostream/streamer/gateway/connect"
	"github.com/mongostream/streamer/gateway/streampb"
)

// A frozen connection is one whose client has gone without a word once ice is closed: it is open, and nobody reads from it.
type frozen struct {
	net.Conn

	ice, closed chan struct{}
	once        sync.Once
}

func (f *frozen) Read(b []byte) (int, error) {
	n, err := f.Conn.Read(b)
	select {
	case <-f.ice:
		<-f.closed
		return 0, net.ErrClosed
	default:
		return n, err
	}
}

func (f *frozen) Close() error {
	f.once.Do(func() { close(f.closed) })
	return f.Conn.Close()
}

// A client that only listens need not say anything, so that nothing but probes finds out that it is gone.
func TestHalfOpenConnectionIsFoundOut(t *testing.T) {
	w := newWorld(t, connect.Config{ProbeAfter: time.Second, ProbeTimeout: 200 * time.Millisecond})
	ice := make(chan struct{})
	client := streampb.NewGatewayClient(w.conn(grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		return &frozen{Conn: conn, ice: ice, closed: make(chan struct{})}, err
	})))
	stream, err := client.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	h := hello(func(h *streampb.Hello) { h.Ack = streampb.AckMode_ACK_MODE_AUTO })
	if err := stream.Send(&streampb.ConnectRequest{Message: &streampb.ConnectRequest_Hello{Hello: h}}); err != nil {
		t.Fatal(err)
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	next(&session{t, stream, map[uint32]*streampb.Position{}}, (*streampb.ConnectResponse).GetSubscribed)
	close(ice)
	w.until("its session is over", func() bool { return w.sessions() == 0 })
}

func TestIdleConnectionIsClosed(t *testing.T) {
	w := newWorld(t, connect.Config{IdleTimeout: 200 * time.Millisecond})
	s := w.connect(hello(func(h *streampb.Hello) { h.Ack = streampb.AckMode_ACK_MODE_AUTO }))
	next(s, (*streampb.ConnectResponse).GetSubscribed)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	conn := w.conn()
	for range 3 {
		if _, err := grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{}); err != nil {
			t.Fatal(err)
		}
		for state := connectivity.Ready; state != connectivity.Idle; state = conn.GetState() {
			if !conn.WaitForStateChange(ctx, state) {
				t.Fatalf("the connection is %s", state)
			}
		}
	}
	if w.sessions() != 1 {
		t.Error("a connection with a session, on which nothing is said either, is closed")
	}
}

func TestCallsOfAConnectionAreBounded(t *testing.T) {
	const most = 100
	w := newWorld(t, connect.Config{})
	client := w.dial()
	for range most {
		if _, err := client.Connect(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := client.Connect(ctx); err == nil {
		t.Error("one more was opened")
	}
	if _, err := w.dial().Connect(t.Context()); err != nil {
		t.Errorf("another connection: %v", err)
	}
}

// Calls that wait for a change of health, and ask nobody for a token, are bounded over all connections.
func TestOtherCallsAreBounded(t *testing.T) {
	w := newWorld(t, connect.Config{})
	refused := 0
	for range 2 {
		client := grpc_health_v1.NewHealthClient(w.conn())
		for range 75 {
			stream, err := client.Watch(t.Context(), &grpc_health_v1.HealthCheckRequest{})
			if err == nil {
				_, err = stream.Recv()
			}
			if err != nil {
				refused++
			}
		}
	}
	if refused != 50 {
		t.Errorf("%d of 150 calls were refused", refused)
	}
	next(w.connect(hello(nil)), (*streampb.ConnectResponse).GetSubscribed)
}

func TestHeadersAreBounded(t *testing.T) {
	w := newWorld(t, connect.Config{})
	ctx := metadata.AppendToOutgoingContext(t.Context(), "x-large", strings.Repeat("x", 32<<10))
	stream, err := w.client.Connect(ctx)
	if err == nil {
		_, err = stream.Recv()
	}
	if err == nil {
		t.Error("32 KiB of headers were taken")
	}
	next(w.connect(hello(nil)), (*streampb.ConnectResponse).GetSubscribed)
}
