package client_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/mongostream/streamer/gateway/client"
	"github.com/mongostream/streamer/gateway/client/notice"
	"github.com/mongostream/streamer/gateway/streampb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds waits that never last so long unless something is wrong.
const patience = 10 * time.Second

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
	acks     map[string]bool // that acked has come by
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
	v := &visit{hello: first.GetHello(), stream: stream, requests: make(chan *streampb.ConnectRequest, 1000), end: make(chan error, 1), acks: make(map[string]bool)}
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

// welcomed accepts a session and welcomes it.
func (n *node) welcomed(t *testing.T, partitions uint32) *visit {
	t.Helper()
	v := n.accept(t)
	v.welcome(partitions)
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
	v.send(&streampb.ConnectResponse{Message: &streampb.ConnectResponse_Welcome{Welcome: &streampb.Welcome{
		Cluster: "c", Node: "n", PartitionCount: partitions, Recovered: true, Limits: &streampb.Limits{HeartbeatIntervalMs: 60_000, HeartbeatTimeoutMs: 60_000},
	}}})
}

func (v *visit) batch(b *streampb.Batch) {
	v.t.Helper()
	v.send(&streampb.ConnectResponse{Message: &streampb.ConnectResponse_Batch{Batch: b}})
}

// bookmarks tells where every partition begins.
func (v *visit) bookmarks(partitions uint32, at *streampb.Position) {
	v.t.Helper()
	for p := range partitions {
		v.batch(batch(p, at, at))
	}
}

func (v *visit) next() *streampb.ConnectRequest {
	v.t.Helper()
	select {
	case r, ok := <-v.requests:
		if !ok {
			v.t.Fatal("the client has said its last")
		}
		return r
	case <-time.NewTimer(patience).C:
		v.t.Fatal("the client says nothing")
		return nil
	}
}

// acked waits until a partition has been acknowledged up to a position.
func (v *visit) acked(partition uint32, to *streampb.Position) {
	v.t.Helper()
	for !v.acks[fmt.Sprintf("%d:%s", partition, name(to))] {
		for _, p := range v.next().GetAck().GetPositions() {
			v.acks[fmt.Sprintf("%d:%s", p.GetPartition(), name(p.GetPosition()))] = true
		}
	}
}

// left waits until the client has said its last, and returns the acknowledgements until then.
func (v *visit) left() (acked []string) {
	v.t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		select {
		case r, ok := <-v.requests:
			if !ok {
				return acked
			}
			for _, p := range r.GetAck().GetPositions() {
				acked = append(acked, fmt.Sprintf("%d:%s", p.GetPartition(), name(p.GetPosition())))
			}
		case <-timer.C:
			v.t.Fatal("the client stays")
		}
	}
}

// stands are the positions of the hello.
func (v *visit) stands() (stands []string) {
	for _, p := range v.hello.GetPositions() {
		stands = append(stands, fmt.Sprintf("%d:%s", p.GetPartition(), name(p.GetPosition())))
	}
	return stands
}

// at is a position whose head is one letter and whose hashes are one digit each: "c12".
func at(place string) *streampb.Position {
	p := &streampb.Position{Head: []byte(place[:1])}
	for _, hash := range place[1:] {
		p.Hashes = append(p.Hashes, []byte(string(hash)))
	}
	return p
}

func name(p *streampb.Position) string {
	hashes := make([]string, 0, 4)
	for _, h := range p.GetHashes() {
		hashes = append(hashes, string(h))
	}
	slices.Sort(hashes)
	return string(p.GetHead()) + strings.Join(hashes, "")
}

// batch is one with a change at each of the places, for subscription s.
func batch(partition uint32, from, to *streampb.Position, places ...string) *streampb.Batch {
	b := &streampb.Batch{Partition: partition, From: from, To: to}
	for _, place := range places {
		b.Events = append(b.Events, &streampb.Event{Position: at(place), Change: []byte(place), Subscriptions: []string{"s"}})
	}
	return b
}

func loss(partition uint32, kind streampb.Loss_Kind, from, to string) *streampb.Batch {
	return &streampb.Batch{Partition: partition, From: at(from), To: at(to), Loss: &streampb.Loss{Kind: kind, Reason: "history_lost", Namespaces: []string{"shop.orders"}}}
}

// A journal writes down what a program is given.
type journal struct {
	mu      sync.Mutex
	lines   []string
	notices []notice.Notice
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
	j.write(fmt.Sprintf("%d:%s", c.Partition, c.Data))
	return nil
}

// notice takes every notice. Losses are written among the changes.
func (j *journal) notice(_ context.Context, n notice.Notice) error {
	switch n := n.(type) {
	case notice.Resync:
		j.write(fmt.Sprintf("%d:resync %s %s", n.Partition, n.To.Head, n.Reason))
	case notice.Rewound:
		j.write(fmt.Sprintf("%d:rewound %s", n.Partition, n.To.Head))
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
			t.Fatalf("waited for %s; there are %q and %+v", what, j.lines, j.notices)
		}
	}
}

// expect waits for as many lines as are wanted, and compares.
func (j *journal) expect(t *testing.T, want ...string) {
	t.Helper()
	j.wait(t, fmt.Sprintf("%q", want), func() bool { return len(j.lines) >= len(want) })
	j.mu.Lock()
	defer j.mu.Unlock()
	if !slices.Equal(j.lines, want) {
		t.Fatalf("handled %q, want %q", j.lines, want)
	}
}

// told waits for a notice for which is is true.
func told[N notice.Notice](t *testing.T, j *journal, is func(N) bool) {
	t.Helper()
	var wanted N
	j.wait(t, fmt.Sprintf("%T", wanted), func() bool {
		return slices.ContainsFunc(j.notices, func(n notice.Notice) bool {
			n2, ok := n.(N)
			return ok && is(n2)
		})
	})
}

// anyOf accepts every notice.
func anyOf[N notice.Notice](N) bool { return true }

// config is one that tries again at once.
func config(j *journal, addresses ...string) client.Config {
	return client.Config{
		Addresses: addresses, GatewayID: "g", Start: client.StartNow, OnNotice: j.notice,
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
	select {
	case err := <-p.ended:
		p.over = true
		return err
	case <-time.NewTimer(patience).C:
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

var errBroken = status.Error(codes.Unavailable, "STRM-NODE-STOPPING: the node stops\nConnect to another node.")

// authorization is the header that a client sent.
func authorization(ctx context.Context) string {
	md, _ := metadata.FromIncomingContext(ctx)
	return strings.Join(md.Get("authorization"), ",")
}
