package gateway_test

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/change/changetest"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/checkpoint/checkpointtest"
	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/gap"
	"github.com/mongostream/streamer/gateway"
	"github.com/mongostream/streamer/gateway/streampb"
	"github.com/mongostream/streamer/internal/leaktest"
	"github.com/mongostream/streamer/oplog"
	"github.com/mongostream/streamer/oplog/oplogtest"
	"github.com/mongostream/streamer/streamer"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

const partitions = 4

// A world is a node over a log in memory, and what subscribers connect to: gRPC and server-sent
// events.
type world struct {
	testing.TB

	source  *oplogtest.Log
	store   *checkpointtest.Memory
	node    *streamer.Node
	server  *gateway.Server
	address string
	client  streampb.GatewayClient
	events  *gateway.Events
	web     *httptest.Server
	stop    func() // stops the node softly
}

// options are what a world is made with.
type options struct {
	hub    delivery.Config
	node   streamer.NodeConfig
	server gateway.Config
	events gateway.EventsConfig
	store  func(streamer.Checkpoints) streamer.Checkpoints // what is put before the store
	ask    func(context.Context) error                     // called before MongoDB is asked for the extent of its oplog
	unread error                                           // with which no checkpoint can be loaded
}

func newWorld(t testing.TB, o options) *world {
	t.Helper()
	w := &world{TB: t, source: &oplogtest.Log{ReplyEvents: 10}, store: checkpointtest.NewMemory(partitions)}
	w.source.Append(changetest.Event{ID: 1})
	_, last := w.source.Reach()
	origin, err := w.store.Create(t.Context(), checkpoint.Origin{Cluster: "c", Incarnation: 1, Partitions: partitions, Start: last.Next()})
	if err != nil {
		t.Fatal(err)
	}
	reach := func(ctx context.Context) (gap.Reach, error) {
		if o.ask != nil {
			if err := o.ask(ctx); err != nil {
				return gap.Reach{}, err
			}
		}
		first, last := w.source.Reach()
		return gap.Reach{First: first, Last: last}, nil
	}
	o.hub.Partitions = partitions
	if o.hub.Bookmark == 0 {
		o.hub.Bookmark = 50 * time.Millisecond
	}
	log := oplog.New(oplog.Config{Partitions: partitions, Reach: reach, Lost: func(l oplog.Loss) { w.node.Lost(l) }}, w.source)
	ask := oplog.NewRange(oplog.RangeConfig{Ask: reach, Heard: func(r gap.Reach, floor change.Timestamp) { w.node.Heard(r, floor) }})
	o.hub.Range = ask
	hub := delivery.New(o.hub, log)
	store := streamer.Checkpoints(unreadable{w.store, o.unread})
	if o.store != nil {
		store = o.store(store)
	}
	o.node.Origin, o.node.By, o.node.Range = origin, "n", ask
	w.node = streamer.NewNode(o.node, hub, log, store)
	// On a busy machine everything takes its time: a client has it, except where a test bounds it.
	for _, bound := range []*time.Duration{&o.server.HandshakeTimeout, &o.server.HeartbeatTimeout, &o.server.StallTimeout, &o.events.StallTimeout} {
		*bound = cmp.Or(*bound, 2*patience)
	}
	o.server.Cluster, o.server.Node, o.server.Partitions = "c", "n", partitions
	w.server = gateway.NewServer(o.server, w.node)
	o.events.Cluster = "c"
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w.address = listener.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	nodes, stopNode := context.WithCancel(ctx)
	var node, serving sync.WaitGroup
	node.Go(func() {
		if err := w.node.Run(nodes); err != nil {
			t.Error(err)
		}
	})
	serving.Go(func() {
		if err := w.server.Serve(ctx, listener, nil, time.Millisecond); err != nil {
			t.Error(err)
		}
	})
	w.stop = func() { stopNode(); node.Wait() }
	w.events = gateway.NewEvents(o.events, w.node)
	w.web = httptest.NewServer(w.events)
	t.Cleanup(func() {
		w.web.CloseClientConnections()
		w.web.Close()
		cancel()
		node.Wait()
		serving.Wait()
	})
	w.client = streampb.NewGatewayClient(w.conn())
	return w
}

// conn makes a connection of its own.
func (w *world) conn(options ...grpc.DialOption) *grpc.ClientConn {
	w.Helper()
	connection, err := grpc.NewClient(w.address, append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = connection.Close() })
	return connection
}

// sessions returns how many sessions there are, and how many bytes they hold.
func (w *world) sessions() (n, bytes int) {
	for _, s := range w.node.Hub().Sessions() {
		n, bytes = n+1, bytes+s.State().Bytes
	}
	return n, bytes
}

// until waits for what a look at the node tells.
func (w *world) until(what string, holds func() bool) {
	w.Helper()
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	for !holds() {
		select {
		case <-look.C:
		case <-timeout.C:
			w.Fatalf("in vain: %s; subscribers %+v", what, w.node.Subscribers())
		}
	}
}

// patience bounds waits that never last so long unless something is wrong.
const patience = 6 * time.Minute

// write appends inserts, and returns their positions on the wire.
func (w *world) write(n, pad int) {
	for range n {
		w.source.Append(changetest.Event{ID: 7, Pad: pad})
	}
}

func hello(change func(*streampb.Hello)) *streampb.Hello {
	h := &streampb.Hello{
		Subscriber: "s", ProcessId: "p", StartedAt: timestamppb.New(time.Unix(1000, 0)), Start: streampb.Start_START_NOW,
		Subscriptions: []*streampb.Subscription{{Id: "all"}},
	}
	if change != nil {
		change(h)
	}
	return h
}

// named is a hello of a subscriber, whose batches count as acknowledged when they have been sent.
func named(subscriber string) *streampb.Hello {
	return hello(func(h *streampb.Hello) { h.Subscriber, h.Ack = subscriber, streampb.AckMode_ACK_MODE_AUTO })
}

// owned is a hello of a session that delivers what is attached to it.
func owned(h *streampb.Hello) { h.Partitions = streampb.Partitions_PARTITIONS_OWNED }

// A session is one connection of a client.
type session struct {
	testing.TB

	streampb.Gateway_ConnectClient
	seq uint64 // of the last batch, which ends at to
	to  []byte
}

// connect opens a session, and waits until it has begun; refuse opens one that is not to begin.
func (w *world) connect(h *streampb.Hello) *session {
	w.Helper()
	s := w.open(w.Context(), h)
	next(s, (*streampb.ConnectResponse).GetBatch)
	return s
}

func (w *world) open(ctx context.Context, h *streampb.Hello) *session {
	w.Helper()
	ctx, cancel := context.WithTimeout(ctx, patience)
	w.Cleanup(cancel)
	stream, err := w.client.Connect(ctx)
	if err != nil {
		w.Fatal(err)
	}
	s := &session{TB: w.TB, Gateway_ConnectClient: stream}
	s.say(&streampb.ConnectRequest{Message: &streampb.ConnectRequest_Hello{Hello: h}})
	return s
}

// say sends something. Where the session is over Recv says why.
func (s *session) say(m *streampb.ConnectRequest) {
	s.Helper()
	if err := s.Send(m); err != nil && !errors.Is(err, io.EOF) {
		s.Fatal(err)
	}
}

// take returns the next message, and notes where batches end.
func (s *session) take() (*streampb.ConnectResponse, error) {
	s.Helper()
	r, err := s.Recv()
	if b := r.GetBatch(); b != nil {
		if b.GetSeq() != s.seq+1 {
			s.Fatalf("batch %d after %d", b.GetSeq(), s.seq)
		}
		s.seq, s.to = b.GetSeq(), b.GetTo()
	}
	return r, err
}

// next returns the next message of the kind that pick picks.
func next[M any](s *session, pick func(*streampb.ConnectResponse) *M) *M {
	s.Helper()
	for {
		r, err := s.take()
		if err != nil {
			s.Fatal(err)
		}
		if m := pick(r); m != nil {
			return m
		}
	}
}

// events takes batches until there are n events.
func (s *session) events(n int) (events []*streampb.Event) {
	s.Helper()
	for len(events) < n {
		events = append(events, next(s, (*streampb.ConnectResponse).GetBatch).GetEvents()...)
	}
	return events
}

// ends returns the error with which the stream ends.
func (s *session) ends() (codes.Code, string, string) {
	s.Helper()
	for {
		if _, err := s.take(); err != nil {
			return explained(err)
		}
	}
}

// explained returns the code, the reason and the text of the error with which a call ends.
func explained(err error) (codes.Code, string, string) {
	if errors.Is(err, io.EOF) {
		return codes.OK, "", ""
	}
	st := status.Convert(err)
	for _, d := range st.Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok {
			return st.Code(), info.GetReason(), st.Message()
		}
	}
	return st.Code(), "", st.Message()
}

func (s *session) ack(seq uint64) {
	s.Helper()
	s.say(&streampb.ConnectRequest{Message: &streampb.ConnectRequest_Ack{Ack: &streampb.Ack{Seq: seq}}})
}

func (s *session) subscribe(subscriptions ...*streampb.Subscription) {
	s.Helper()
	s.say(&streampb.ConnectRequest{Message: &streampb.ConnectRequest_Subscribe{Subscribe: &streampb.Subscribe{Subscriptions: subscriptions}}})
}

func (s *session) unsubscribe(ids ...string) {
	s.Helper()
	s.say(&streampb.ConnectRequest{Message: &streampb.ConnectRequest_Unsubscribe{Unsubscribe: &streampb.Unsubscribe{Ids: ids}}})
}

// answers returns the codes with which subscriptions are rejected, in their order; those that are
// taken have none.
func (s *session) answers(n int) (ids, codes []string) {
	s.Helper()
	for len(ids) < n {
		r, err := s.take()
		if err != nil {
			s.Fatal(err)
		}
		if a := r.GetSubscribed(); a != nil {
			ids, codes = append(ids, a.GetId()), append(codes, "")
		}
		if a := r.GetRejected(); a != nil {
			if a.GetRemedy() == "" || a.GetMessage() == "" {
				s.Errorf("%v", a)
			}
			ids, codes = append(ids, a.GetId()), append(codes, a.GetCode())
		}
	}
	return ids, codes
}
