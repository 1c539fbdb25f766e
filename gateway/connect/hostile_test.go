package connect_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/mongostream/streamer/change/changetest"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway/connect"
	"github.com/mongostream/streamer/gateway/streampb"
)

// gauge returns the value of a gauge of the server, summed over its labels, or of one of them.
func (w *world) gauge(name string, label ...string) float64 {
	w.Helper()
	families, err := w.reg.Gather()
	if err != nil {
		w.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			sum := 0.0
			for _, m := range f.GetMetric() {
				if len(label) == 0 || m.GetLabel()[0].GetValue() == label[0] {
					sum += m.GetGauge().GetValue()
				}
			}
			return sum
		}
	}
	w.Fatalf("no metric %s", name)
	return 0
}

// A gateway that never acknowledges holds its credit and no more, and nobody else up.
func TestGatewayThatNeverAcknowledgesIsBounded(t *testing.T) {
	const credit, size, n = 1 << 20, 10_000, 2000
	w := newWorld(t, connect.Config{CreditBytes: credit})
	stuck := w.connect(hello(func(h *streampb.Hello) { h.GatewayId = "stuck" }))
	next(stuck, (*streampb.ConnectResponse).GetSubscribed)
	quick := w.connect(hello(func(h *streampb.Hello) { h.GatewayId, h.Ack = "quick", streampb.AckMode_ACK_MODE_AUTO }))
	next(quick, (*streampb.ConnectResponse).GetSubscribed)
	got := make(chan int)
	go func() {
		total := 0
		for total < n {
			r, err := quick.Recv()
			if err != nil {
				break
			}
			total += len(r.GetBatch().GetEvents())
		}
		got <- total
	}()
	var most float64
	for i := range n {
		w.source.Append(changetest.Event{ID: int64(i), Pad: size})
		if i%50 == 0 {
			most = max(most, w.gauge("streamer_gateway_unacknowledged_bytes"))
		}
	}
	if total := <-got; total != n {
		t.Errorf("the other gateway got %d events of %d", total, n)
	}
	most = max(most, w.gauge("streamer_gateway_unacknowledged_bytes"))
	if limit := float64(2 * (credit + 10*(size+1000))); most > limit {
		t.Errorf("%.0f bytes were held for two gateways, at most %.0f may be", most, limit)
	}
	// It takes and acknowledges at last, and has missed nothing.
	for total := 0; total < n; {
		r, err := stuck.Recv()
		if err != nil {
			t.Fatalf("%v after %d events", err, total)
		}
		if b := r.GetBatch(); b != nil {
			total += len(b.GetEvents())
			stuck.have[b.GetPartition()] = b.GetTo()
			stuck.acknowledge()
		}
	}
}

func TestThousandsOfReconnectsAtOnce(t *testing.T) {
	const connections, each = 50, 100
	// On a busy machine all of this takes its time; what is bounded by time is not what is tested here.
	w := newWorld(t, connect.Config{MaxSessions: connections*each + 1, HandshakeTimeout: 5 * time.Minute, HeartbeatTimeout: 5 * time.Minute})
	steady := w.connectFor(t.Context(), hello(func(h *streampb.Hello) { h.GatewayId = "steady" }))
	next(steady, (*streampb.ConnectResponse).GetSubscribed)
	var welcomed atomic.Int64
	var all sync.WaitGroup
	for c := range connections {
		client := w.dial()
		for i := range each {
			all.Go(func() {
				stream, err := client.Connect(t.Context())
				if err != nil {
					return
				}
				h := hello(func(h *streampb.Hello) { h.GatewayId = fmt.Sprint(c, "-", i) })
				if stream.Send(&streampb.ConnectRequest{Message: &streampb.ConnectRequest_Hello{Hello: h}}) != nil {
					return
				}
				if r, err := stream.Recv(); err == nil && r.GetWelcome() != nil {
					welcomed.Add(1)
				}
				_ = stream.CloseSend()
				for err == nil {
					_, err = stream.Recv()
				}
			})
		}
	}
	all.Wait()
	if n := welcomed.Load(); n != connections*each {
		t.Errorf("%d of %d were welcomed", n, connections*each)
	}
	w.source.Append(changetest.Event{ID: 9})
	steady.events(1)
}

func TestConnectionThatSaysNothingIsClosed(t *testing.T) {
	w := newWorld(t, connect.Config{HandshakeTimeout: 200 * time.Millisecond})
	for name, said := range map[string]string{"nothing": "", "half a preface": "PRI * HTT", "another protocol": "GET / HTTP/1.1\r\n\r\n"} {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", w.address)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write([]byte(said)); err != nil {
			t.Fatal(err)
		}
		if err := conn.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
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
	if code, reason, _ := (&session{T: t, Gateway_ConnectClient: stream}).refused(); code != codes.DeadlineExceeded || reason != string(fault.SessionSilent) {
		t.Errorf("no hello: %s %s", code, reason)
	}
}

func isTimeout(err error) bool {
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout()
}

func TestOversizedRequestHarmsNobodyElse(t *testing.T) {
	w := newWorld(t, connect.Config{})
	steady := w.connect(hello(func(h *streampb.Hello) { h.GatewayId = "steady" }))
	next(steady, (*streampb.ConnectResponse).GetSubscribed)
	big := w.connect(hello(func(h *streampb.Hello) { h.ProcessId = strings.Repeat("x", 5<<20) }))
	if code, reason, text := big.refused(); code != codes.ResourceExhausted || reason != string(fault.SessionTooLarge) || !strings.Contains(text, "\nSend fewer") {
		t.Errorf("%s %s %s", code, reason, text)
	}
	later := w.connect(hello(func(h *streampb.Hello) { h.GatewayId = "later" }))
	next(later, (*streampb.ConnectResponse).GetSubscribed)
	later.subscribe(&streampb.Subscription{Id: "x", Filter: strings.Repeat("x", 5<<20)})
	if code, reason, _ := later.refused(); code != codes.ResourceExhausted || reason != string(fault.SessionTooLarge) {
		t.Errorf("%s %s", code, reason)
	}
	w.source.Append(changetest.Event{ID: 9})
	steady.events(1)
}

// A gateway that subscribes without end is let go at its limit; what it asks for is dealt with at a bounded pace.
func TestSubscribesAreBounded(t *testing.T) {
	w := newWorld(t, connect.Config{MaxSubscriptions: 500})
	steady := w.connect(hello(func(h *streampb.Hello) { h.GatewayId = "steady" }))
	next(steady, (*streampb.ConnectResponse).GetSubscribed)
	wild := w.connect(hello(func(h *streampb.Hello) { h.StartedAt = timestamppb.Now() }))
	go func() {
		for i := range 10_000 {
			m := &streampb.Subscribe{Subscriptions: []*streampb.Subscription{{Id: fmt.Sprint(i), Filter: fmt.Sprintf("key._id == %d", i)}}}
			if wild.Send(&streampb.ConnectRequest{Message: &streampb.ConnectRequest_Subscribe{Subscribe: m}}) != nil {
				return
			}
		}
	}()
	if code, reason, text := wild.refused(); code != codes.ResourceExhausted || reason != string(fault.SessionTooWide) || !strings.Contains(text, "gateway.max_subscriptions") {
		t.Errorf("%s %s %s", code, reason, text)
	}
	w.source.Append(changetest.Event{ID: 9})
	steady.events(1)
}

// A client whose changes are dealt with slowly, because they are too many, is not taken for silent.
func TestClientThatIsSlowedDownIsNotSilent(t *testing.T) {
	w := newWorld(t, connect.Config{HeartbeatTimeout: 300 * time.Millisecond})
	s := w.connect(hello(nil))
	ids := make([]string, 10_000)
	s.unsubscribe(ids...)
	s.unsubscribe(ids[:200]...) // which takes a second
	s.subscribe(&streampb.Subscription{Id: "later"})
	for next(s, (*streampb.ConnectResponse).GetSubscribed).GetId() != "later" {
	}
}

// Who takes nothing of what it is sent is let go when it is silent too, although what is being sent to it cannot be called back.
func TestClientThatNeitherListensNorSpeaksIsLetGo(t *testing.T) {
	w := newWorld(t, connect.Config{HeartbeatTimeout: 300 * time.Millisecond, CreditBytes: 64 << 20})
	deaf := w.connect(hello(nil))
	next(deaf, (*streampb.ConnectResponse).GetSubscribed)
	for i := range 200 {
		w.source.Append(changetest.Event{ID: int64(i), Pad: 10_000})
	}
	w.until("its session is over", func() bool { return w.sessions() == 0 })
	// Nor does it help to ask for answers without end and to take none.
	asking := w.connect(hello(func(h *streampb.Hello) { h.GatewayId = "asking" }))
	next(asking, (*streampb.ConnectResponse).GetSubscribed)
	go func() {
		for err := error(nil); err == nil; {
			err = asking.Send(&streampb.ConnectRequest{Message: &streampb.ConnectRequest_Subscribe{Subscribe: &streampb.Subscribe{
				Subscriptions: []*streampb.Subscription{{Id: strings.Repeat("x", 1<<16)}},
			}}})
		}
	}()
	w.until("its session is over too", func() bool { return w.sessions() == 0 })
}
