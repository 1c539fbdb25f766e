package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway"
	"github.com/mongostream/streamer/gateway/access"
	"github.com/mongostream/streamer/gateway/streampb"
	"github.com/mongostream/streamer/streamer"
)

// endings returns how many sessions have ended over a transport for a reason.
func endings(t testing.TB, reg *prometheus.Registry, transport, reason string) (n float64) {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "streamer_sessions_ended_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if labels["transport"] == transport && labels["reason"] == reason {
				n += m.GetCounter().GetValue()
			}
		}
	}
	return n
}

// untilEnded waits until a session has ended over a transport for a reason, and no session is left.
func (w *world) untilEnded(reg *prometheus.Registry, transport, reason string) {
	w.Helper()
	began := time.Now()
	w.until(fmt.Sprintf("a session over %s has ended: %s", transport, reason), func() bool {
		n, _ := w.sessions()
		return n == 0 && endings(w.TB, reg, transport, reason) > 0
	})
	w.Logf("%s %s: after %s", transport, reason, time.Since(began))
}

// departures are the ways in which a client goes, given its connection and what cancels its call.
func departures() map[string]func(conn *net.TCPConn, cancel func()) {
	return map[string]func(*net.TCPConn, func()){
		"it cancels its call":     func(_ *net.TCPConn, cancel func()) { cancel() },
		"its process is killed":   func(conn *net.TCPConn, _ func()) { _ = conn.Close() },
		"its connection is reset": func(conn *net.TCPConn, _ func()) { _ = conn.SetLinger(0); _ = conn.Close() },
	}
}

// depart opens a session of a client, waits, and lets it go.
func (w *world) depart(ctx context.Context, h *streampb.Hello, wait func(), goes func(conn *net.TCPConn, cancel func())) {
	w.Helper()
	conns := make(chan *net.TCPConn, 1)
	conn := w.conn(grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		if tcp, ok := conn.(*net.TCPConn); ok {
			select {
			case conns <- tcp:
			default:
			}
		}
		return conn, err
	}))
	ctx, cancel := context.WithCancel(ctx)
	w.Cleanup(cancel)
	stream, err := streampb.NewGatewayClient(conn).Connect(ctx)
	if err != nil {
		w.Fatal(err)
	}
	if err := stream.Send(&streampb.ConnectRequest{Message: &streampb.ConnectRequest_Hello{Hello: h}}); err != nil {
		w.Fatal(err)
	}
	wait()
	goes(<-conns, cancel)
}

// A watchedStore counts its loads. While blocked they wait for their context's end.
type watchedStore struct {
	streamer.Checkpoints

	blocked bool
	loads   atomic.Int64
}

func (s *watchedStore) Load(ctx context.Context, subscriber string) ([]checkpoint.Checkpoint, error) {
	s.loads.Add(1)
	if s.blocked {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	return s.Checkpoints.Load(ctx, subscriber)
}

// Nothing more is done for a client that has gone while its filters are compiled: its checkpoint is
// not read.
func TestFiltersOfAClientThatHasGoneAreNotCompiled(t *testing.T) {
	const n = 10_000
	for name, goes := range departures() {
		t.Run(name, func(t *testing.T) {
			reg, accounts, store := prometheus.NewRegistry(), access.NewAccounts(access.Defaults{}), &watchedStore{}
			cfg := newList(t, fmt.Sprint("t name=a namespace=* max_subscriptions=", n)).config(gateway.Config{Registerer: reg, Accounts: accounts})
			w := newWorld(t, options{server: cfg, store: func(s streamer.Checkpoints) streamer.Checkpoints { store.Checkpoints = s; return store }})
			who, err := cfg.Access.Authenticate(access.Peer{Address: "127.0.0.1:1", Authorization: []string{"Bearer t"}})
			if err != nil {
				t.Fatal(err)
			}
			probe, err := accounts.Open(who, access.Request, "")
			if err != nil {
				t.Fatal(err)
			}
			defer probe.Close()
			none := func() bool {
				err := probe.Subscribe(n)
				if err == nil {
					probe.Unsubscribe(n)
				}
				return err == nil
			}
			h := hello(func(h *streampb.Hello) {
				h.Subscriptions = nil
				for i := range n {
					h.Subscriptions = append(h.Subscriptions, &streampb.Subscription{Id: fmt.Sprint(i), Filter: fmt.Sprintf(`key._id == %d && op == "insert"`, i)})
				}
			})
			w.depart(bearing(t.Context(), "t"), h, func() { w.until("one is compiled", func() bool { return !none() }) }, goes)
			w.untilEnded(reg, "grpc", "left")
			if n := store.loads.Load(); n > 0 {
				t.Errorf("the checkpoint was read %d times", n)
			}
			w.until("all subscriptions are given back", none)
		})
	}
}

// A client that goes while its session waits for something ends the session and the wait, not only
// when the wait is over.
func TestClientThatGoesIsNotWaitedFor(t *testing.T) {
	for name, goes := range departures() {
		t.Run("for its checkpoint: "+name, func(t *testing.T) {
			reg, store := prometheus.NewRegistry(), &watchedStore{blocked: true}
			w := newWorld(t, options{
				server: gateway.Config{Registerer: reg}, store: func(s streamer.Checkpoints) streamer.Checkpoints { store.Checkpoints = s; return store },
			})
			w.depart(t.Context(), hello(nil), func() { w.until("it is read", func() bool { return store.loads.Load() > 0 }) }, goes)
			w.untilEnded(reg, "grpc", "left")
		})
		t.Run("for the extent of the oplog: "+name, func(t *testing.T) {
			reg, store := prometheus.NewRegistry(), &watchedStore{}
			w := newWorld(t, options{
				server: gateway.Config{Registerer: reg}, store: func(s streamer.Checkpoints) streamer.Checkpoints { store.Checkpoints = s; return store },
				ask: func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) }, // others wait for it too
			})
			w.depart(t.Context(), hello(nil), func() { w.until("its checkpoint is read", func() bool { return store.loads.Load() > 0 }) }, goes)
			w.untilEnded(reg, "grpc", "left")
		})
		t.Run("for its turn by its rate: "+name, func(t *testing.T) {
			reg := prometheus.NewRegistry()
			w := newWorld(t, options{server: newList(t, "t name=a namespace=* events_per_second=1").config(gateway.Config{Registerer: reg})})
			w.depart(bearing(t.Context(), "t"), hello(nil), func() {
				w.until("it has its session", func() bool { n, _ := w.sessions(); return n == 1 })
				w.write(1000, 0)
				w.until("its changes are queued", func() bool { _, bytes := w.sessions(); return bytes > 0 })
			}, goes)
			w.untilEnded(reg, "grpc", "left")
		})
		t.Run("to take what is sent: "+name, func(t *testing.T) {
			reg := prometheus.NewRegistry()
			w := newWorld(t, options{server: gateway.Config{Registerer: reg}, hub: delivery.Config{CreditBytes: 64 << 20}})
			w.depart(t.Context(), hello(nil), func() {
				w.until("it has its session", func() bool { n, _ := w.sessions(); return n == 1 })
				w.write(200, 10_000)
				w.untilStuck()
			}, goes)
			w.untilEnded(reg, "grpc", "left")
		})
	}
}

// untilStuck waits until what is queued or sent has not changed for a while.
func (w *world) untilStuck() {
	w.Helper()
	last, same := 0, 0
	w.until("it takes nothing more", func() bool {
		_, bytes := w.sessions()
		if same++; bytes != last || bytes == 0 {
			last, same = bytes, 0
		}
		return same > 20
	})
}

// An event stream ends with its client, also while it is being written to and the client takes
// nothing.
func TestEventStreamEndsWithItsClient(t *testing.T) {
	for name, goes := range departures() {
		if name == "it cancels its call" {
			continue // over HTTP/1.1 it closes its connection
		}
		for stuck, write := range map[string]func(*world){
			"quiet":         func(*world) {},
			"takes nothing": func(w *world) { w.write(500, 100_000); w.untilStuck() },
		} {
			t.Run(stuck+": "+name, func(t *testing.T) {
				reg := prometheus.NewRegistry()
				w := newWorld(t, options{
					events: gateway.EventsConfig{Registerer: reg, StallTimeout: time.Hour, Heartbeat: time.Hour},
					hub:    delivery.Config{CreditBytes: 64 << 20, Bookmark: time.Hour},
				})
				conn := w.listen()
				write(w)
				goes(conn, func() {})
				w.untilEnded(reg, "sse", "left")
			})
		}
	}
	t.Run("takes nothing: it says nothing more", func(t *testing.T) { // its machine has not told that nobody reads
		reg := prometheus.NewRegistry()
		w := newWorld(t, options{events: gateway.EventsConfig{Registerer: reg, StallTimeout: time.Hour}, hub: delivery.Config{CreditBytes: 64 << 20}})
		conn := w.listen()
		w.write(500, 100_000)
		w.untilStuck()
		if err := conn.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		w.untilEnded(reg, "sse", "left")
	})
}

// listen begins an event stream over a connection of its own with a small buffer, and reads the
// beginning of it.
func (w *world) listen() *net.TCPConn {
	w.Helper()
	conn, err := (&net.Dialer{}).DialContext(w.Context(), "tcp", w.web.Listener.Addr().String())
	if err != nil {
		w.Fatal(err)
	}
	tcp, _ := conn.(*net.TCPConn)
	w.Cleanup(func() { _ = tcp.Close() })
	if err := tcp.SetReadBuffer(4096); err != nil {
		w.Fatal(err)
	}
	if _, err := io.WriteString(tcp, "GET /v1/events HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		w.Fatal(err)
	}
	if _, err := io.ReadFull(tcp, make([]byte, 100)); err != nil {
		w.Fatal(err)
	}
	w.until("it has its session", func() bool { n, _ := w.sessions(); return n == 1 })
	return tcp
}

// A client that takes nothing of what it is sent is disconnected, whatever it says itself, and told
// why.
func TestClientThatTakesNothingIsDisconnectedAlthoughItSpeaks(t *testing.T) {
	reg := prometheus.NewRegistry()
	w := newWorld(t, options{
		server: gateway.Config{Registerer: reg, StallTimeout: 300 * time.Millisecond, HeartbeatTimeout: time.Minute}, hub: delivery.Config{CreditBytes: 64 << 20},
	})
	s := w.connect(hello(nil))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		beat := time.NewTicker(20 * time.Millisecond)
		defer beat.Stop()
		for range beat.C {
			if s.Send(&streampb.ConnectRequest{Message: &streampb.ConnectRequest_Heartbeat{Heartbeat: &streampb.Heartbeat{}}}) != nil || endings(t, reg, "grpc", "stalled") > 0 {
				return
			}
		}
	}()
	w.write(200, 10_000)
	w.untilEnded(reg, "grpc", "stalled")
	<-ended
	if code, reason, _ := s.ends(); code != codes.DeadlineExceeded || reason != string(fault.SessionStalled) {
		t.Errorf("%s %s", code, reason)
	}
}

// A MongoDB that answers nobody costs a client that connects a while, not for ever: it is told to
// come again.
func TestMongoDBThatDoesNotAnswerIsNotWaitedForForEver(t *testing.T) {
	var deaf atomic.Bool
	w := newWorld(t, options{
		node: streamer.NodeConfig{AnswerTimeout: 50 * time.Millisecond},
		ask: func(context.Context) error {
			if deaf.Load() {
				return errors.New("find fails")
			}
			return nil
		},
	})
	w.until("it has begun", func() bool { return w.node.Hub().Load().Ready })
	deaf.Store(true)
	code, reason, _ := w.open(t.Context(), hello(nil)).ends()
	if code != codes.Unavailable || reason != string(fault.MongoUnreachable) {
		t.Errorf("%s, %s", code, reason)
	}
	resp := w.do("?db=shop&coll=orders", "")
	if resp.StatusCode != http.StatusServiceUnavailable {
		t.Error(resp.Status)
	}
}
