package connect_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/change/changetest"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway/connect"
	"github.com/mongostream/streamer/gateway/fanout"
	"github.com/mongostream/streamer/gateway/streampb"
	"github.com/mongostream/streamer/lane"
	"github.com/mongostream/streamer/lane/lanetest"
)

func TestMain(m *testing.M) {
	if os.Getenv(besieged) != "" {
		besiege()
		return
	}
	goleak.VerifyTestMain(m)
}

const partitions = 4

// A world is a log, a server over it, and a connection to the server.
type world struct {
	*testing.T

	source  *lanetest.Log
	log     *lane.Log
	address string
	reg     *prometheus.Registry
	client  streampb.GatewayClient
	rows    rows
}

// rows keeps rows in memory. A store may insist until the context ends, so each writing must have a deadline.
type rows struct {
	mu        sync.Mutex
	kept      map[string]checkpoint.Row
	unbounded int // writings without a deadline
}

func (r *rows) SaveRow(ctx context.Context, row checkpoint.Row) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, bounded := ctx.Deadline(); !bounded {
		r.unbounded++
	}
	r.kept[row.Gateway] = row
	return nil
}

func (r *rows) Row(_ context.Context, gateway string) (checkpoint.Row, bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	row, ok := r.kept[gateway]
	return row, ok, nil
}

func newWorld(t *testing.T, cfg connect.Config) *world {
	t.Helper()
	w := &world{T: t, reg: prometheus.NewRegistry()}
	w.rows.kept = map[string]checkpoint.Row{}
	cfg.Rows = &w.rows
	n, err := newNode(t.Context(), cfg, w.reg)
	if err != nil {
		t.Fatal(err)
	}
	w.source, w.log, w.address = n.source, n.log, n.listener.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- n.run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		w.rows.mu.Lock()
		defer w.rows.mu.Unlock()
		if w.rows.unbounded > 0 {
			t.Errorf("%d writings of rows had no deadline", w.rows.unbounded)
		}
	})
	w.client = w.dial()
	return w
}

// A node is a log and a server over it.
type node struct {
	source   *lanetest.Log
	log      *lane.Log
	hub      *fanout.Hub
	server   *connect.Server
	listener net.Listener
}

func newNode(ctx context.Context, cfg connect.Config, reg prometheus.Registerer) (*node, error) {
	n := &node{source: &lanetest.Log{ReplyEvents: 10}}
	n.source.Append(changetest.Event{ID: 1})
	n.log = lane.NewLog(lane.Config{Partitions: partitions}, n.source)
	n.hub = fanout.New(fanout.Config{
		Partitions: partitions, CreditEvents: cfg.CreditEvents, CreditBytes: cfg.CreditBytes, Registerer: reg,
		JSON: func(b, doc []byte) ([]byte, error) { return append(b, fmt.Sprint(len(doc))...), nil },
	}, n.log)
	cfg.Cluster, cfg.Node, cfg.Partitions = "c", "n", partitions
	cfg.Now = func(context.Context) (change.Timestamp, error) {
		_, last := n.source.Reach()
		return last, nil
	}
	cfg.First = func(context.Context) (change.Timestamp, bool, error) {
		first, _ := n.source.Reach()
		return first, true, nil
	}
	n.server = connect.NewServer(cfg, n.hub)
	var err error
	n.listener, err = (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	return n, err
}

// run serves until the context ends.
func (n *node) run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { _ = n.log.Run(ctx, change.Position{}) })
	running.Go(func() { _ = n.hub.Run(ctx) })
	return n.server.Serve(ctx, n.listener, nil, time.Second)
}

// dial makes a connection of its own.
func (w *world) dial() streampb.GatewayClient {
	w.Helper()
	return streampb.NewGatewayClient(w.conn())
}

func (w *world) conn(options ...grpc.DialOption) *grpc.ClientConn {
	w.Helper()
	connection, err := grpc.NewClient(w.address, append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = connection.Close() })
	return connection
}

// sessions returns how many sessions there are.
func (w *world) sessions() int {
	w.Helper()
	return int(w.gauge("streamer_gateway_sessions"))
}

// until waits for what a look at the server tells.
func (w *world) until(what string, holds func() bool) {
	w.Helper()
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	timeout := time.NewTimer(30 * time.Second)
	defer timeout.Stop()
	for !holds() {
		select {
		case <-look.C:
		case <-timeout.C:
			w.Fatalf("in vain: %s", what)
		}
	}
}

func hello(change func(*streampb.Hello)) *streampb.Hello {
	h := &streampb.Hello{
		GatewayId: "g", ProcessId: "p", StartedAt: timestamppb.New(time.Unix(1000, 0)), Start: streampb.Start_START_NOW,
		Subscriptions: []*streampb.Subscription{{Id: "all"}},
	}
	if change != nil {
		change(h)
	}
	return h
}

// A session is one connection of a client.
type session struct {
	*testing.T

	streampb.Gateway_ConnectClient
	have map[uint32]*streampb.Position
}

// connect opens a session that must not take longer than what tests do with one.
func (w *world) connect(h *streampb.Hello) *session {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), 30*time.Second)
	w.Cleanup(cancel)
	return w.connectFor(ctx, h)
}

// connectFor opens a session for the length of a context.
func (w *world) connectFor(ctx context.Context, h *streampb.Hello) *session {
	w.Helper()
	stream, err := w.client.Connect(ctx)
	if err != nil {
		w.Fatal(err)
	}
	if err := stream.Send(&streampb.ConnectRequest{Message: &streampb.ConnectRequest_Hello{Hello: h}}); err != nil && !errors.Is(err, io.EOF) {
		w.Fatal(err) // where it has been refused already, Recv says why
	}
	return &session{w.T, stream, map[uint32]*streampb.Position{}}
}

// next returns the next message of the kind that pick picks.
func next[M any](s *session, pick func(*streampb.ConnectResponse) *M) *M {
	s.Helper()
	for {
		r, err := s.Recv()
		if err != nil {
			s.Fatal(err)
		}
		if b := r.GetBatch(); b != nil {
			s.have[b.GetPartition()] = b.GetTo()
		}
		if m := pick(r); m != nil {
			return m
		}
	}
}

// events takes batches until there are n events, and returns the documents' positions in the order in which they came.
func (s *session) events(n int) (events []*streampb.Event) {
	s.Helper()
	for len(events) < n {
		b := next(s, (*streampb.ConnectResponse).GetBatch)
		events = append(events, b.GetEvents()...)
	}
	return events
}

// refused returns the error with which the stream ends.
func (s *session) refused() (codes.Code, string, string) {
	s.Helper()
	for {
		if _, err := s.Recv(); err != nil {
			return explained(err)
		}
	}
}

// explained returns the code, the reason and the text of the error with which a call ends.
func explained(err error) (codes.Code, string, string) {
	st := status.Convert(err)
	for _, d := range st.Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok {
			return st.Code(), info.GetReason(), st.Message()
		}
	}
	return st.Code(), "", st.Message()
}

func (s *session) acknowledge() {
	s.Helper()
	ack := &streampb.Ack{}
	for p, at := range s.have {
		ack.Positions = append(ack.Positions, &streampb.PartitionPosition{Partition: p, Position: at})
	}
	if err := s.Send(&streampb.ConnectRequest{Message: &streampb.ConnectRequest_Ack{Ack: ack}}); err != nil {
		s.Fatal(err)
	}
}

func TestBadHelloIsRefusedWithACode(t *testing.T) {
	w := newWorld(t, connect.Config{MaxSubscriptions: 10})
	ahead := change.At(change.Timestamp{T: 1 << 31})
	head := ahead.Head().Append(nil)
	for name, c := range map[string]struct {
		change func(*streampb.Hello)
		code   codes.Code
		reason fault.Code
	}{
		"no gateway":         {func(h *streampb.Hello) { h.GatewayId = "" }, codes.InvalidArgument, fault.SessionBadRequest},
		"no start":           {func(h *streampb.Hello) { h.Start = 0 }, codes.InvalidArgument, fault.SessionBadRequest},
		"no time":            {func(h *streampb.Hello) { h.Start = streampb.Start_START_TIME }, codes.InvalidArgument, fault.SessionBadRequest},
		"many subscriptions": {func(h *streampb.Hello) { h.Subscriptions = make([]*streampb.Subscription, 11) }, codes.ResourceExhausted, fault.SessionTooWide},
		"positions with now": {func(h *streampb.Hello) { h.Positions = []*streampb.PartitionPosition{{}} }, codes.InvalidArgument, fault.SessionBadRequest},
		"another cluster": {func(h *streampb.Hello) {
			h.Start, h.Cluster, h.PartitionCount, h.Positions = streampb.Start_START_RESUME, "other", partitions, []*streampb.PartitionPosition{{}}
		}, codes.InvalidArgument, fault.SessionBadPosition},
		"malformed position": {func(h *streampb.Hello) {
			h.Start, h.Cluster, h.PartitionCount = streampb.Start_START_RESUME, "c", partitions
			h.Positions = []*streampb.PartitionPosition{{Position: &streampb.Position{Head: []byte("x")}}}
		}, codes.InvalidArgument, fault.SessionBadPosition},
		"position ahead": {func(h *streampb.Hello) {
			h.Start, h.Cluster, h.PartitionCount = streampb.Start_START_RESUME, "c", partitions
			h.Positions = []*streampb.PartitionPosition{{Position: &streampb.Position{Head: head}}}
		}, codes.FailedPrecondition, fault.LogAhead},
	} {
		code, reason, text := w.connect(hello(c.change)).refused()
		if code != c.code || reason != string(c.reason) || !strings.HasPrefix(text, string(c.reason)) {
			t.Errorf("%s: %s %s %q", name, code, reason, text)
		}
	}
	stream, err := w.client.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&streampb.ConnectRequest{Message: &streampb.ConnectRequest_Heartbeat{}}); err != nil {
		t.Fatal(err)
	}
	if code, reason, _ := (&session{T: t, Gateway_ConnectClient: stream}).refused(); code != codes.InvalidArgument || reason != string(fault.SessionBadRequest) {
		t.Errorf("no hello: %s %s", code, reason)
	}
}

func TestSubscriptionsAreCompiledOrRefusedEach(t *testing.T) {
	w := newWorld(t, connect.Config{})
	s := w.connect(hello(func(h *streampb.Hello) {
		h.Subscriptions = []*streampb.Subscription{
			{Id: "a", Filter: `key._id == 7`}, {Id: "b", Filter: `key. ==`}, {Id: "c", Ops: []string{"upsert"}}, {Id: "a"}, {Id: "d", Fields: []string{"x.y"}}, {},
			{Id: "e", Format: streampb.Format_FORMAT_JSON},
		}
	}))
	if welcome := next(s, (*streampb.ConnectResponse).GetWelcome); welcome.GetCluster() != "c" || welcome.GetPartitionCount() != partitions || !welcome.GetRecovered() {
		t.Errorf("%v", welcome)
	}
	var subscribed, rejected []string
	for range 7 {
		next(s, func(r *streampb.ConnectResponse) *streampb.ConnectResponse {
			switch {
			case r.GetSubscribed() != nil:
				subscribed = append(subscribed, r.GetSubscribed().GetId())
			case r.GetRejected() != nil:
				rejected = append(rejected, r.GetRejected().GetId())
				if !strings.HasPrefix(r.GetRejected().GetCode(), "STRM-") || r.GetRejected().GetRemedy() == "" {
					t.Errorf("%v", r.GetRejected())
				}
			default:
				return nil
			}
			return r
		})
	}
	if !slices.Equal(subscribed, []string{"a", "e"}) || !slices.Equal(rejected, []string{"b", "c", "a", "d", ""}) {
		t.Errorf("subscribed %q, rejected %q", subscribed, rejected)
	}
	w.source.Append(changetest.Event{ID: 6}, changetest.Event{ID: 7})
	got := map[string]int{}
	for _, e := range s.events(3) {
		for _, id := range e.GetSubscriptions() {
			got[id+e.GetFormat().String()]++
		}
	}
	if got["aFORMAT_BSON"] != 1 || got["eFORMAT_JSON"] != 2 {
		t.Errorf("%v", got)
	}
}

func TestGatewayGoesOnWhereItStood(t *testing.T) {
	w := newWorld(t, connect.Config{})
	s := w.connect(hello(nil))
	next(s, (*streampb.ConnectResponse).GetSubscribed)
	for i := range int64(50) {
		w.source.Append(changetest.Event{ID: i})
	}
	s.events(50)
	resume := hello(func(h *streampb.Hello) {
		h.Start, h.Cluster, h.PartitionCount = streampb.Start_START_RESUME, "c", partitions
		for p, at := range s.have {
			h.Positions = append(h.Positions, &streampb.PartitionPosition{Partition: p, Position: at})
		}
	})
	w.source.Append(changetest.Event{ID: 100}, changetest.Event{ID: 101})
	again := w.connect(resume)
	if !next(again, (*streampb.ConnectResponse).GetWelcome).GetRecovered() {
		t.Error("not recovered")
	}
	if _, err := s.Recv(); err == nil {
		for err == nil { // what was on its way
			_, err = s.Recv()
		}
		if status.Code(err) != codes.AlreadyExists {
			t.Errorf("the earlier connection of the process ends with %v", err)
		}
	}
	if events := again.events(2); len(events) != 2 {
		t.Errorf("%d events after the resumption, 2 are new", len(events))
	}
	again.acknowledge()
	if err := again.CloseSend(); err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := again.Recv(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	// It comes back without positions of its own, and is served from its row.
	w.source.Append(changetest.Event{ID: 102})
	third := w.connect(hello(func(h *streampb.Hello) { h.Start, h.ProcessId = streampb.Start_START_RESUME, "p2" }))
	if !next(third, (*streampb.ConnectResponse).GetWelcome).GetRecovered() {
		t.Error("not recovered from its row")
	}
	if events := third.events(1); len(events) != 1 {
		t.Errorf("%d events behind the row", len(events))
	}
}

func TestUnknownGatewayThatResumesIsToldOfItsLoss(t *testing.T) {
	w := newWorld(t, connect.Config{})
	for range 2 { // it breaks before it has acknowledged, and is told again
		s := w.connect(hello(func(h *streampb.Hello) { h.GatewayId, h.Start = "new", streampb.Start_START_RESUME }))
		if next(s, (*streampb.ConnectResponse).GetWelcome).GetRecovered() {
			t.Error("recovered from nothing")
		}
		told := map[uint32]bool{}
		for len(told) < partitions {
			b := next(s, (*streampb.ConnectResponse).GetBatch)
			if b.GetLoss().GetKind() == streampb.Loss_KIND_RESYNC {
				told[b.GetPartition()] = true
			}
		}
		if err := s.CloseSend(); err != nil {
			t.Fatal(err)
		}
		for {
			if _, err := s.Recv(); err != nil {
				break
			}
		}
	}
}

func TestOlderProcessIsRefused(t *testing.T) {
	w := newWorld(t, connect.Config{})
	newer := w.connect(hello(func(h *streampb.Hello) { h.ProcessId, h.StartedAt = "new", timestamppb.New(time.Unix(2000, 0)) }))
	next(newer, (*streampb.ConnectResponse).GetSubscribed)
	if code, reason, _ := w.connect(hello(nil)).refused(); code != codes.AlreadyExists || reason != string(fault.SessionReplaced) {
		t.Errorf("%s %s", code, reason)
	}
	w.source.Append(changetest.Event{ID: 5})
	newer.events(1)
}

func TestSilentClientIsLetGo(t *testing.T) {
	w := newWorld(t, connect.Config{HeartbeatTimeout: 200 * time.Millisecond})
	s := w.connect(hello(nil))
	next(s, (*streampb.ConnectResponse).GetHeartbeat)
	if code, reason, _ := s.refused(); code != codes.DeadlineExceeded || reason != string(fault.SessionSilent) {
		t.Errorf("%s %s", code, reason)
	}
}

func TestAcknowledgementOfWhatWasNeverSentEndsTheSession(t *testing.T) {
	w := newWorld(t, connect.Config{})
	s := w.connect(hello(nil))
	next(s, (*streampb.ConnectResponse).GetBatch)
	s.have = map[uint32]*streampb.Position{0: {Head: change.At(change.Timestamp{T: 1 << 31}).Head().Append(nil)}}
	s.acknowledge()
	if code, reason, _ := s.refused(); code != codes.InvalidArgument || reason != string(fault.SessionBadAck) {
		t.Errorf("%s %s", code, reason)
	}
}

func TestSubscriptionsComeAndGo(t *testing.T) {
	w := newWorld(t, connect.Config{})
	s := w.connect(hello(func(h *streampb.Hello) { h.Subscriptions = nil; h.Ack = streampb.AckMode_ACK_MODE_AUTO }))
	next(s, (*streampb.ConnectResponse).GetBatch)
	w.source.Append(changetest.Event{ID: 5})
	for _, m := range []*streampb.ConnectRequest{
		{Message: &streampb.ConnectRequest_Subscribe{Subscribe: &streampb.Subscribe{Subscriptions: []*streampb.Subscription{{Id: "late"}}}}},
		{Message: &streampb.ConnectRequest_Heartbeat{Heartbeat: &streampb.Heartbeat{}}},
	} {
		if err := s.Send(m); err != nil {
			t.Fatal(err)
		}
	}
	if subscribed := next(s, (*streampb.ConnectResponse).GetSubscribed); len(subscribed.GetFrom()) != partitions {
		t.Errorf("%v", subscribed)
	}
	w.source.Append(changetest.Event{ID: 6})
	s.events(1)
	if err := s.Send(&streampb.ConnectRequest{Message: &streampb.ConnectRequest_Unsubscribe{Unsubscribe: &streampb.Unsubscribe{Ids: []string{"late", "never"}}}}); err != nil {
		t.Fatal(err)
	}
}

// A client that acknowledges nothing by itself may say its hello and then only listen, as tools for the command line do.
func TestListenerIsServedAfterItsHello(t *testing.T) {
	w := newWorld(t, connect.Config{HeartbeatTimeout: 100 * time.Millisecond})
	s := w.connect(hello(func(h *streampb.Hello) { h.Ack = streampb.AckMode_ACK_MODE_AUTO }))
	if err := s.CloseSend(); err != nil {
		t.Fatal(err)
	}
	next(s, (*streampb.ConnectResponse).GetSubscribed)
	for range 5 {
		next(s, (*streampb.ConnectResponse).GetHeartbeat)
	}
	w.source.Append(changetest.Event{ID: 5})
	s.events(1)
}
