package connect_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/redpanda-data/benthos/v4/public/service"
	"google.golang.org/grpc"

	_ "github.com/redpanda-data/benthos/v4/public/components/pure"

	"github.com/mongostream/streamer/gateway/streampb"
)

// patience bounds every wait of a test.
const patience = 30 * time.Second

// A node is a server that says what a test wants.
type node struct {
	streampb.UnimplementedGatewayServer

	t       *testing.T
	address string
	visits  chan *visit
}

// A visit is a session with it.
type visit struct {
	t        *testing.T
	stream   streampb.Gateway_ConnectServer
	hello    *streampb.Hello
	requests chan *streampb.ConnectRequest
	end      chan error
	seq      uint64
}

func newNode(t *testing.T) *node {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &node{t: t, address: l.Addr().String(), visits: make(chan *visit, 10)}
	s := grpc.NewServer()
	streampb.RegisterGatewayServer(s, n)
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
	return n
}

// Connect implements streampb.GatewayServer.
func (n *node) Connect(stream streampb.Gateway_ConnectServer) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	v := &visit{t: n.t, stream: stream, hello: first.GetHello(), requests: make(chan *streampb.ConnectRequest, 1000), end: make(chan error, 1)}
	n.visits <- v
	go func() {
		defer close(v.requests)
		for {
			r, err := stream.Recv()
			if err != nil {
				v.close(nil) // the client has said its last
				return
			}
			if r.GetAck() != nil {
				v.requests <- r
			}
		}
	}()
	select {
	case err := <-v.end:
		return err
	case <-stream.Context().Done():
		return nil
	}
}

// welcomed waits for a session, which begins at a place.
func (n *node) welcomed(begin string) *visit {
	n.t.Helper()
	select {
	case v := <-n.visits:
		answer := streampb.Begin_BEGIN_START
		if v.hello.GetPosition() != nil {
			answer = streampb.Begin_BEGIN_POSITIONS
		}
		v.send(&streampb.ConnectResponse{Message: &streampb.ConnectResponse_Welcome{Welcome: &streampb.Welcome{Cluster: "c", Node: "n", PartitionCount: 1, Begin: answer}}})
		v.send(&streampb.ConnectResponse{Message: &streampb.ConnectResponse_Subscribed{Subscribed: &streampb.Subscribed{Id: "connect"}}})
		v.batch(begin)
		return v
	case <-expired(n.t):
		n.t.Fatal("nobody connects")
		return nil
	}
}

func (v *visit) send(m *streampb.ConnectResponse) {
	v.t.Helper()
	if err := v.stream.Send(m); err != nil {
		v.t.Fatal(err)
	}
}

// at is a position: a letter, which orders it, and a digit.
func at(place string) []byte {
	b := make([]byte, 34)
	b[0] = place[0]
	copy(b[18:], place[1:])
	return b
}

// batch sends changes, whose documents are their places, up to a place.
func (v *visit) batch(to string, places ...string) uint64 {
	v.t.Helper()
	b := &streampb.Batch{To: at(to)}
	for _, place := range places {
		b.Events = append(b.Events, &streampb.Event{Position: at(place), Subscriptions: []string{"connect"}, Format: streampb.Format_FORMAT_JSON, Change: change(place)})
	}
	return v.sendBatch(b)
}

func change(place string) []byte {
	return fmt.Appendf(nil, `{"id":"i","partition":0,"key":"%[1]s","operationType":"insert","clusterTime":{"$timestamp":{"t":1795407361,"i":6}},`+
		`"ns":{"db":"shop","coll":"orders"},"documentKey":{"_id":"%[1]s"},"fullDocument":{"_id":"%[1]s"}}`, place)
}

func (v *visit) sendBatch(b *streampb.Batch) uint64 {
	v.t.Helper()
	v.seq++
	b.Seq = v.seq
	v.send(&streampb.ConnectResponse{Message: &streampb.ConnectResponse_Batch{Batch: b}})
	return v.seq
}

// acked waits until a batch is acknowledged.
func (v *visit) acked(seq uint64) {
	v.t.Helper()
	for {
		select {
		case r, ok := <-v.requests:
			if !ok {
				v.t.Fatalf("the session ended before batch %d was acknowledged", seq)
			}
			if r.GetAck().GetSeq() >= seq {
				return
			}
		case <-expired(v.t):
			v.t.Fatalf("batch %d is not acknowledged", seq)
		}
	}
}

// left waits until the session has ended, and returns the last acknowledgement.
func (v *visit) left() (seq uint64) {
	v.t.Helper()
	for {
		select {
		case r, ok := <-v.requests:
			if !ok {
				return seq
			}
			seq = max(seq, r.GetAck().GetSeq())
		case <-expired(v.t):
			v.t.Fatal("the session stays")
		}
	}
}

// A taken is a batch that the engine has been given.
type taken struct {
	places string
	batch  service.MessageBatch
	answer chan error
}

// A pipeline runs the engine with the input.
type pipeline struct {
	t          *testing.T
	batches    chan taken
	stop       func()
	stopWithin func(time.Duration)
	ended      chan error
	lines      *lines
}

// lines keeps what the engine logs.
type lines struct {
	mu   sync.Mutex
	text []byte
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, b...)
	return len(b), nil
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.text)
}

// start runs the input with more keys.
func start(t *testing.T, n *node, keys string) *pipeline {
	t.Helper()
	return startWith(t, n, keys, service.NewStreamBuilder())
}

// startWith does so with components of a test.
func startWith(t *testing.T, n *node, keys string, b *service.StreamBuilder) *pipeline {
	t.Helper()
	p := &pipeline{t: t, batches: make(chan taken, 100), ended: make(chan error, 1), lines: &lines{}}
	err := errors.Join(
		b.AddInputYAML(fmt.Sprintf("streamer:\n  addresses: [%q]\n  subscriber: s\n%s", n.address, keys)),
		b.AddBatchConsumerFunc(func(ctx context.Context, batch service.MessageBatch) error {
			took := taken{batch: batch, answer: make(chan error, 1)}
			for _, m := range batch {
				key, _ := m.MetaGet("key")
				took.places += key
			}
			p.batches <- took
			select {
			case err := <-took.answer:
				return err
			case <-ctx.Done():
				return ctx.Err()
			}
		}),
		b.SetLoggerYAML("level: INFO\nformat: logfmt"))
	if err != nil {
		t.Fatal(err)
	}
	b.SetPrintLogger(printer{p.lines})
	s, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() { p.ended <- s.Run(ctx) }()
	var once sync.Once
	p.stopWithin = func(grace time.Duration) {
		once.Do(func() {
			defer cancel()
			within, done := context.WithTimeout(ctx, grace)
			defer done()
			if err := s.Stop(within); err != nil && grace == patience {
				t.Errorf("stop: %v", err)
			}
		})
	}
	p.stop = func() { p.stopWithin(patience) }
	t.Cleanup(p.stop)
	return p
}

// A printer is the engine's logger.
type printer struct{ to io.Writer }

func (p printer) Printf(format string, v ...any) { fmt.Fprintf(p.to, format, v...) }
func (p printer) Println(v ...any)               { fmt.Fprintln(p.to, v...) }

// next waits for a batch.
func (p *pipeline) next(places string) taken {
	p.t.Helper()
	select {
	case b := <-p.batches:
		if b.places != places {
			p.t.Fatalf("got %q, want %q", b.places, places)
		}
		return b
	case <-expired(p.t):
		p.t.Fatalf("%q does not come; log:\n%s", places, p.lines)
		return taken{}
	}
}

// close ends the session.
func (v *visit) close(err error) {
	select {
	case v.end <- err:
	default:
	}
}

// expired is closed after the patience of a test.
func expired(t *testing.T) <-chan struct{} {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx.Done()
}
