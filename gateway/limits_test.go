package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway"
	"github.com/mongostream/streamer/gateway/access"
	"github.com/mongostream/streamer/gateway/streampb"
	"github.com/mongostream/streamer/snapshot"
	"github.com/mongostream/streamer/streamer"
)

// A reserve holds one collection's pages back.
type reserve struct {
	shelf

	held    string
	release chan struct{}
}

func (r reserve) Read(ctx context.Context, q snapshot.Query) (snapshot.Page, error) {
	if q.Namespace.Coll == r.held {
		<-r.release
	}
	return r.shelf.Read(ctx, q)
}

// An identity is given one page of documents at a time, however many it asks for: the others have
// their share of what the node reads.
func TestManyPagesHoldUpNobodyElse(t *testing.T) {
	const most = 100
	docs := reserve{shelf(1), "much", make(chan struct{})}
	server := newList(t, "hostile name=hostile namespace=shop.much", "honest name=honest namespace=shop.orders").config(gateway.Config{})
	w := newWorld(t, options{server: server, hub: delivery.Config{Snapshots: docs, SnapshotRate: rate.NewLimiter(rate.Every(time.Hour), most/2)}})
	pages := server.Access.Handler(gateway.NewPages(gateway.EventsConfig{Cluster: "c", Accounts: access.NewAccounts(access.Defaults{})}, w.node))
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	ask := func(token, coll string) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/v1/snapshot?limit=1&db=shop&coll="+coll, nil)
		r.RemoteAddr = "127.0.0.1:1" // tokens need TLS or loopback
		r.Header.Set("Authorization", "Bearer "+token)
		answer := httptest.NewRecorder()
		pages.ServeHTTP(answer, r)
		return answer
	}
	refused := make(chan string, most+1)
	var asked sync.WaitGroup
	for range most + 1 {
		asked.Go(func() {
			if answer := ask("hostile", "much"); answer.Code != http.StatusOK {
				refused <- answer.Body.String()
			}
		})
	}
	if text := <-refused; !strings.Contains(text, string(fault.AccessLimit)) { // all others wait
		t.Error(text)
	}
	if answer := ask("honest", "orders"); answer.Code != http.StatusOK {
		t.Errorf("%d %s", answer.Code, answer.Body)
	}
	leave()
	close(docs.release)
	asked.Wait()
}

// A subscriber that takes nothing, or acknowledges nothing, holds its credit and no more, holds
// nobody else up, and misses nothing.
func TestSubscriberThatStopsCostsOnlyItself(t *testing.T) {
	const credit, size, n = 1 << 20, 10_000, 1000
	for name, reads := range map[string]bool{"it reads": true, "it does not read": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, options{hub: delivery.Config{CreditBytes: credit}})
			stuck := w.connect(hello(func(h *streampb.Hello) { h.Subscriber = "stuck" }))
			quick := w.connect(named("quick"))
			w.write(n, size)
			before := 0
			if reads { // as far as it gets: up to its credit
				for bytes := 0; bytes < credit; {
					for _, e := range stuck.events(1) {
						bytes, before = bytes+len(e.GetChange()), before+1
					}
				}
			}
			quick.events(n) // all of them
			w.until("the other has acknowledged", func() bool {
				_, bytes := w.sessions()
				return bytes <= credit+11*(size+1000) // and what one reply holds
			})
			if s := w.node.Hub().Sessions(); len(s) != 2 {
				t.Errorf("%d sessions", len(s))
			}
			// It takes and acknowledges at last, and has missed nothing.
			stuck.ack(stuck.seq)
			for total := before; total < n; {
				total += len(stuck.events(1))
				stuck.ack(stuck.seq)
			}
		})
	}
}

func TestThousandReconnectsAtOnce(t *testing.T) {
	const connections, each = 20, 50
	w := newWorld(t, options{server: gateway.Config{MaxSessions: connections*each + 1}})
	steady := w.connect(named("steady"))
	var welcomed atomic.Int64
	var all sync.WaitGroup
	for c := range connections {
		client := streampb.NewGatewayClient(w.conn())
		for i := range each {
			all.Go(func() {
				stream, err := client.Connect(t.Context())
				if err != nil {
					return
				}
				if stream.Send(&streampb.ConnectRequest{Message: &streampb.ConnectRequest_Hello{Hello: named(fmt.Sprint(c, "-", i))}}) != nil {
					return
				}
				if r, err := stream.Recv(); err == nil && r.GetWelcome() != nil {
					welcomed.Add(1)
				}
				_ = stream.CloseSend()
			})
		}
	}
	all.Wait()
	if n := welcomed.Load(); n != connections*each {
		t.Errorf("%d of %d were welcomed", n, connections*each)
	}
	w.write(1, 0)
	steady.events(1)
}

func TestConnectionThatSaysNothingIsClosed(t *testing.T) {
	w := newWorld(t, options{server: gateway.Config{HandshakeTimeout: 200 * time.Millisecond}})
	for name, said := range map[string]string{"nothing": "", "half a preface": "PRI * HTT", "another protocol": "GET / HTTP/1.1\r\n\r\n"} {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", w.address)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write([]byte(said)); err != nil {
			t.Fatal(err)
		}
		if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, conn); isTimeout(err) {
			t.Errorf("%s: still open: %v", name, err)
		}
		_ = conn.Close()
	}
	stream, err := w.client.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if code, reason, _ := (&session{TB: t, Gateway_ConnectClient: stream}).ends(); code != codes.DeadlineExceeded || reason != string(fault.SessionSilent) {
		t.Errorf("no hello: %s %s", code, reason)
	}
}

func isTimeout(err error) bool {
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout()
}

func TestOversizedRequestHarmsNobodyElse(t *testing.T) {
	w := newWorld(t, options{})
	steady := w.connect(named("steady"))
	big := w.open(t.Context(), hello(func(h *streampb.Hello) { h.ProcessId = strings.Repeat("x", 5<<20) }))
	if code, reason, text := big.ends(); code != codes.ResourceExhausted || reason != string(fault.SessionTooLarge) || !strings.Contains(text, "\nSend fewer") {
		t.Errorf("%s %s %s", code, reason, text)
	}
	later := w.connect(named("later"))
	later.subscribe(&streampb.Subscription{Id: "x", Filter: strings.Repeat("x", 5<<20)})
	if code, reason, _ := later.ends(); code != codes.ResourceExhausted || reason != string(fault.SessionTooLarge) {
		t.Errorf("%s %s", code, reason)
	}
	w.write(1, 0)
	steady.events(1)
}

// A client that subscribes without end is let go at its limit; what it asks for is dealt with at a
// bounded pace.
func TestSubscribesAreBounded(t *testing.T) {
	w := newWorld(t, options{server: gateway.Config{MaxSubscriptions: 500}})
	steady := w.connect(named("steady"))
	wild := w.connect(hello(func(h *streampb.Hello) { h.StartedAt = timestamppb.Now() }))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for i := range 10_000 {
			m := &streampb.Subscribe{Subscriptions: []*streampb.Subscription{{Id: fmt.Sprint(i), Filter: fmt.Sprintf("key._id == %d", i)}}}
			if wild.Send(&streampb.ConnectRequest{Message: &streampb.ConnectRequest_Subscribe{Subscribe: m}}) != nil {
				return
			}
		}
	}()
	if code, reason, text := wild.ends(); code != codes.ResourceExhausted || reason != string(fault.SessionTooWide) || !strings.Contains(text, "max_subscriptions") {
		t.Errorf("%s %s %s", code, reason, text)
	}
	<-ended
	w.write(1, 0)
	steady.events(1)
}

// A client whose changes are dealt with slowly, because they are too many, is not taken for silent.
func TestClientThatIsSlowedDownIsNotSilent(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{server: gateway.Config{HeartbeatTimeout: 2 * time.Second}})
	s := w.open(t.Context(), hello(nil))
	ids := make([]string, 10_000)
	s.unsubscribe(ids...)
	s.unsubscribe(ids[:800]...) // which takes four seconds
	s.subscribe(&streampb.Subscription{Id: "later"})
	for next(s, (*streampb.ConnectResponse).GetSubscribed).GetId() != "later" {
	}
}

// Nor is one that waits until its session begins.
func TestClientThatWaitsForItsWelcomeIsNotSilent(t *testing.T) {
	store := &heldStore{asked: make(chan struct{}), held: make(chan struct{})}
	w := newWorld(t, options{
		server: gateway.Config{HeartbeatTimeout: 200 * time.Millisecond},
		store:  func(s streamer.Checkpoints) streamer.Checkpoints { store.Checkpoints = s; return store },
	})
	patient := w.open(t.Context(), named("patient"))
	<-store.asked
	for range 2 { // which takes longer than it may be silent
		if _, reason, _ := w.open(t.Context(), hello(nil)).ends(); reason != string(fault.SessionSilent) {
			t.Errorf("one that is silent: %s", reason)
		}
	}
	close(store.held)
	next(patient, (*streampb.ConnectResponse).GetWelcome)
}

// A heldStore does not load the patient subscriber until it may.
type heldStore struct {
	streamer.Checkpoints

	asked, held chan struct{}
}

func (s *heldStore) Load(ctx context.Context, subscriber string) ([]checkpoint.Checkpoint, error) {
	if strings.Contains(subscriber, "patient") {
		s.asked <- struct{}{}
		<-s.held
	}
	return s.Checkpoints.Load(ctx, subscriber)
}

// Who takes nothing of what it is sent is let go when it is silent too, although what is being sent
// to it cannot be called back.
func TestClientThatNeitherListensNorSpeaksIsLetGo(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{server: gateway.Config{HeartbeatTimeout: 3 * time.Second}, hub: delivery.Config{CreditBytes: 64 << 20}})
	gone := func() bool {
		n, _ := w.sessions()
		return n == 0
	}
	w.connect(hello(nil))
	w.write(200, 10_000)
	w.until("its session is over", gone)
	// Nor does it help to ask for answers without end and to take none.
	ctx, cancel := context.WithCancel(t.Context())
	asking := w.open(ctx, hello(func(h *streampb.Hello) { h.Subscriber = "asking" }))
	next(asking, (*streampb.ConnectResponse).GetBatch)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for err := error(nil); err == nil; {
			err = asking.Send(&streampb.ConnectRequest{Message: &streampb.ConnectRequest_Subscribe{Subscribe: &streampb.Subscribe{
				Subscriptions: []*streampb.Subscription{{Id: strings.Repeat("x", 1<<16)}},
			}}})
		}
	}()
	w.until("its session is over too", gone)
	cancel() // a client that receives nothing does not notice
	<-ended
}

// A frozen connection is one whose client has gone without a word once ice is closed: it is open,
// and nobody reads from it.
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

// A client that only listens need not say anything, so that nothing but probes finds out that it is
// gone.
func TestHalfOpenConnectionIsFoundOut(t *testing.T) {
	w := newWorld(t, options{server: gateway.Config{ProbeAfter: time.Second, ProbeTimeout: 200 * time.Millisecond}})
	ice := make(chan struct{})
	w.client = streampb.NewGatewayClient(w.conn(grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		return &frozen{Conn: conn, ice: ice, closed: make(chan struct{})}, err
	})))
	s := w.connect(named("s"))
	if err := s.CloseSend(); err != nil {
		t.Fatal(err)
	}
	close(ice)
	w.until("its session is over", func() bool {
		n, _ := w.sessions()
		return n == 0
	})
}

func TestIdleConnectionIsClosed(t *testing.T) {
	w := newWorld(t, options{server: gateway.Config{IdleTimeout: 200 * time.Millisecond}})
	w.connect(named("s"))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
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
	if n, _ := w.sessions(); n != 1 {
		t.Error("a connection with a session, on which nothing is said either, is closed")
	}
}

func TestCallsOfAConnectionAreBounded(t *testing.T) {
	const most = 100
	w := newWorld(t, options{})
	for range most {
		if _, err := w.client.Connect(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := w.client.Connect(ctx); err == nil {
		t.Error("one more was opened")
	}
	if _, err := streampb.NewGatewayClient(w.conn()).Connect(t.Context()); err != nil {
		t.Errorf("another connection: %v", err)
	}
}

// Calls that wait for a change of health, and ask nobody for a token, are bounded over all
// connections, and of one host.
func TestOtherCallsAreBounded(t *testing.T) {
	w := newWorld(t, options{})
	var got []int
	for i := range 5 {
		served := 0
		dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 2, byte(i+1))}}
		from := grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return dialer.DialContext(ctx, "tcp", address)
		})
		for range 2 {
			client := grpc_health_v1.NewHealthClient(w.conn(from))
			for range 15 {
				stream, err := client.Watch(t.Context(), &grpc_health_v1.HealthCheckRequest{})
				if err == nil {
					_, err = stream.Recv()
				}
				if err == nil {
					served++
				}
			}
		}
		got = append(got, served)
	}
	if want := []int{25, 25, 25, 25, 0}; !slices.Equal(got, want) {
		t.Errorf("of 30 calls of each host %d were served, want %d", got, want)
	}
	w.connect(hello(nil))
}

func TestHeadersAreBounded(t *testing.T) {
	w := newWorld(t, options{})
	ctx := metadata.AppendToOutgoingContext(t.Context(), "x-large", strings.Repeat("x", 32<<10))
	stream, err := w.client.Connect(ctx)
	if err == nil {
		_, err = stream.Recv()
	}
	if err == nil {
		t.Error("32 KiB of headers were taken")
	}
	w.connect(hello(nil))
}
