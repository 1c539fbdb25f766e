package client_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/mongostream/streamer/client"
	"github.com/mongostream/streamer/gateway/streampb"
	"github.com/mongostream/streamer/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// patience bounds waits that never last so long unless something is wrong.
const patience = 3 * time.Minute

// A node is a server whose every answer a test gives itself.
type node struct {
	streampb.UnimplementedGatewayServer

	address string
	visits  chan *visit
}

// A visit is one session at a node.
type visit struct {
	t        *testing.T
	hello    *streampb.Hello
	stream   streampb.Gateway_ConnectServer
	requests chan *streampb.ConnectRequest // closed when the client has said its last
	end      chan error
	ended    bool
	seq      uint64 // of the last batch
	ack      uint64 // that has come by
}

func newNode(t *testing.T) *node {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &node{address: listener.Addr().String(), visits: make(chan *visit)}
	server := grpc.NewServer()
	streampb.RegisterGatewayServer(server, n)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	t.Cleanup(func() { server.Stop(); serving.Wait() })
	return n
}

func (n *node) Connect(stream streampb.Gateway_ConnectServer) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	v := &visit{hello: first.GetHello(), stream: stream, requests: make(chan *streampb.ConnectRequest, 1000), end: make(chan error, 1)}
	if v.hello == nil {
		return status.Error(codes.InvalidArgument, "no hello")
	}
	gone := make(chan struct{})
	go func() { // ends with the call
		defer close(gone)
		defer close(v.requests)
		for {
			r, err := stream.Recv()
			if err != nil {
				return
			}
			v.requests <- r
		}
	}()
	select {
	case n.visits <- v:
	case <-stream.Context().Done():
		return stream.Context().Err()
	}
	select {
	case err := <-v.end:
		return err // the reading ends with the call
	case <-gone:
		return nil
	}
}

// accept waits for the next session.
func (n *node) accept(t *testing.T) *visit {
	t.Helper()
	select {
	case v := <-n.visits:
		v.t = t
		t.Cleanup(func() { v.close(nil) })
		return v
	case <-time.NewTimer(patience).C:
		t.Fatal("no client comes")
		return nil
	}
}

// welcomed accepts a session, welcomes it as a node does that has its positions, or begins as it
// asks for, and tells where it begins.
func (n *node) welcomed(t *testing.T, partitions uint32, begin string) *visit {
	t.Helper()
	v := n.accept(t)
	v.welcome(partitions)
	v.batch(begin)
	return v
}

func (v *visit) close(err error) {
	if !v.ended {
		v.ended = true
		v.end <- err
	}
}

func (v *visit) send(m *streampb.ConnectResponse) {
	v.t.Helper()
	if err := v.stream.Send(m); err != nil {
		v.t.Fatalf("send: %v", err)
	}
}

func (v *visit) welcome(partitions uint32) {
	v.t.Helper()
	begin := streampb.Begin_BEGIN_START
	if v.hello.GetPosition() != nil {
		begin = streampb.Begin_BEGIN_POSITIONS
	}
	v.welcomeAt(partitions, begin, v.hello.GetGeneration())
}

func (v *visit) welcomeAt(partitions uint32, begin streampb.Begin, generation uint64) {
	v.t.Helper()
	v.send(&streampb.ConnectResponse{Message: &streampb.ConnectResponse_Welcome{Welcome: &streampb.Welcome{
		Cluster: "c", Node: "n", PartitionCount: partitions, Begin: begin, Generation: generation,
		Limits: &streampb.Limits{HeartbeatIntervalMs: 60_000, HeartbeatTimeoutMs: 60_000},
	}}})
}

func (v *visit) sendBatch(b *streampb.Batch) uint64 {
	v.t.Helper()
	v.seq++
	b.Seq = v.seq
	v.send(&streampb.ConnectResponse{Message: &streampb.ConnectResponse_Batch{Batch: b}})
	return v.seq
}

// batch sends the next one, with events for the subscription s. It returns its number.
func (v *visit) batch(to string, events ...string) uint64 {
	v.t.Helper()
	return v.sendBatch(batch(to, events...))
}

// loss sends a batch that has one.
func (v *visit) loss(kind streampb.Loss_Kind, to string, generation uint64) uint64 {
	v.t.Helper()
	return v.sendBatch(&streampb.Batch{To: at(to), Loss: &streampb.Loss{
		Kind: kind, Reason: "history_lost", Namespaces: []string{"shop.orders"}, To: timestamppb.New(time.Unix(7, 0)), Generation: generation,
	}})
}

func (v *visit) next() *streampb.ConnectRequest {
	v.t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case r, ok := <-v.requests:
		if !ok {
			v.t.Fatal("the client has said its last")
		}
		return r
	case <-timer.C:
		v.t.Fatal("the client says nothing")
		return nil
	}
}

// acked waits until the batches up to one have been acknowledged.
func (v *visit) acked(seq uint64) {
	v.t.Helper()
	for v.ack < seq {
		v.ack = max(v.ack, v.next().GetAck().GetSeq())
	}
}

// left waits until the client has said its last, and returns up to which batch it has acknowledged.
func (v *visit) left() uint64 {
	v.t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		select {
		case r, ok := <-v.requests:
			if !ok {
				return v.ack
			}
			v.ack = max(v.ack, r.GetAck().GetSeq())
		case <-timer.C:
			v.t.Fatal("the client stays")
		}
	}
}

// says is where the client says that it is: in all partitions, and in those where it is elsewhere.
func (v *visit) says() string {
	if v.hello.GetPosition() == nil {
		return ""
	}
	return strings.TrimSpace(name(v.hello.GetPosition()) + " " + places(v.hello.GetPositions()))
}

func places(positions []*streampb.PartitionPosition) string {
	words := make([]string, 0, len(positions))
	for _, p := range positions {
		words = append(words, fmt.Sprintf("%d:%s", p.GetPartition(), name(p.GetPosition())))
	}
	return strings.Join(words, " ")
}

// at is a position whose head is one letter and whose hash is one digit: "c1"; without a digit it
// is between changes.
func at(place string) []byte {
	b := make([]byte, 34)
	b[0] = place[0]
	copy(b[18:], place[1:])
	return b
}

func name(position []byte) string {
	return strings.TrimRight(string(position[:1])+string(position[18:]), "\x00")
}

// batch has events for subscription s: "0:b1" is one of partition 0, whose data is its place, and
// "*:c1" one of all partitions.
func batch(to string, events ...string) *streampb.Batch {
	b := &streampb.Batch{To: at(to)}
	for _, event := range events {
		partition, place, _ := strings.Cut(event, ":")
		e := &streampb.Event{Position: at(place), Change: []byte(place), Subscriptions: []string{"s"}, AllPartitions: partition == "*"}
		if !e.GetAllPartitions() {
			p, err := strconv.ParseUint(partition, 10, 32)
			if err != nil {
				panic(err)
			}
			e.Partition = uint32(p)
		}
		b.Events = append(b.Events, e)
	}
	return b
}

// A journal writes down what a program is given.
type journal struct {
	mu      sync.Mutex
	lines   []string
	notices []client.Notice
	written chan struct{}
}

func newJournal() *journal { return &journal{written: make(chan struct{}, 1)} }

func (j *journal) write(line string) {
	j.mu.Lock()
	j.lines = append(j.lines, line)
	j.mu.Unlock()
	j.signal()
}

func (j *journal) signal() {
	select {
	case j.written <- struct{}{}:
	default:
	}
}

// handle is a handler that deals with everything.
func (j *journal) handle(_ context.Context, c client.Change) error {
	if c.AllPartitions {
		j.write("*:" + string(c.Data))
	} else {
		j.write(fmt.Sprintf("%d:%s", c.Partition, c.Data))
	}
	return nil
}

// notice takes every notice. Losses are written among the changes.
func (j *journal) notice(_ context.Context, n client.Notice) error {
	switch n := n.(type) {
	case client.Resync:
		j.write("resync " + n.Reason)
	case client.Rewound:
		j.write("rewound")
	default:
		j.mu.Lock()
		j.notices = append(j.notices, n)
		j.mu.Unlock()
		j.signal()
	}
	return nil
}

// wait waits until something is so.
func (j *journal) wait(t *testing.T, what string, is func() bool) {
	t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		j.mu.Lock()
		done := is()
		j.mu.Unlock()
		if done {
			return
		}
		select {
		case <-j.written:
		case <-timer.C:
			j.mu.Lock()
			defer j.mu.Unlock()
			t.Fatalf("waited for %s; there are %q and %+v", what, j.lines, j.notices)
		}
	}
}

// expect waits for as many lines as are wanted, and compares what each partition got, and what came
// between.
func (j *journal) expect(t *testing.T, want ...string) {
	t.Helper()
	j.wait(t, fmt.Sprintf("%q", want), func() bool { return len(j.lines) >= len(want) })
	j.mu.Lock()
	defer j.mu.Unlock()
	if !slices.Equal(inOrder(j.lines), inOrder(want)) {
		t.Fatalf("handled %q, want %q", j.lines, want)
	}
}

// inOrder sorts the lines of different partitions between those that concern all, because they come
// at the same time.
func inOrder(lines []string) (sorted []string) {
	var between []string
	flush := func() {
		slices.SortStableFunc(between, func(a, b string) int { return strings.Compare(a[:2], b[:2]) })
		sorted, between = append(sorted, between...), nil
	}
	for _, line := range lines {
		if line[1] != ':' || line[0] == '*' {
			flush()
			sorted = append(sorted, line)
		} else {
			between = append(between, line)
		}
	}
	flush()
	return sorted
}

// told waits for a notice for which is is true.
func told[N client.Notice](t *testing.T, j *journal, is func(N) bool) {
	t.Helper()
	var wanted N
	j.wait(t, fmt.Sprintf("%T", wanted), func() bool {
		return slices.ContainsFunc(j.notices, func(n client.Notice) bool {
			n2, ok := n.(N)
			return ok && is(n2)
		})
	})
}

// anyOf accepts every notice.
func anyOf[N client.Notice](N) bool { return true }

// config is one that tries again at once.
func config(j *journal, addresses ...string) client.Config {
	return client.Config{
		Addresses: addresses, Subscriber: "g", Start: client.StartNow, OnNotice: j.notice, Logger: slog.New(slog.DiscardHandler),
		ReconnectWait: time.Microsecond, MaxReconnectWait: time.Microsecond, RetryWait: time.Microsecond, MaxRetryWait: time.Microsecond,
	}
}

// A program runs a client.
type program struct {
	*client.Client

	t     *testing.T
	stop  context.CancelFunc
	ended chan error
	over  bool
}

// start runs a client with a subscription s.
func start(t *testing.T, cfg client.Config, handler client.Handler) *program {
	t.Helper()
	c, err := client.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Subscribe(client.Subscription{ID: "s"}, handler); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	p := &program{Client: c, t: t, stop: stop, ended: make(chan error, 1)}
	go func() { p.ended <- c.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if !p.over {
			<-p.ended
		}
	})
	return p
}

// wait waits until Run has returned.
func (p *program) wait() error {
	p.t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case err := <-p.ended:
		p.over = true
		return err
	case <-timer.C:
		p.t.Fatal("Run does not return")
		return nil
	}
}

// end stops the client, which is no error.
func (p *program) end() {
	p.t.Helper()
	p.stop()
	if err := p.wait(); err != nil {
		p.t.Errorf("Run returned %v", err)
	}
}

// next is where a client says that it is that begins with the position of the program.
func (p *program) next(n *node) string {
	p.t.Helper()
	cfg := config(newJournal(), n.address)
	cfg.Position = p.Position()
	after := start(p.t, cfg, func(context.Context, client.Change) error { return nil })
	says := n.accept(p.t).says()
	after.end()
	return says
}

var errBroken = status.Error(codes.Unavailable, "STRM-NODE-STOPPING: the node stops\nConnect to another node.")

// errAway is what a handler may fail with.
var errAway = errors.New("the database is away")

// authorization is the header that a client sent.
func authorization(ctx context.Context) string {
	md, _ := metadata.FromIncomingContext(ctx)
	return strings.Join(md.Get("authorization"), ",")
}
