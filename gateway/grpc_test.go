package gateway_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/change/changetest"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway"
	"github.com/mongostream/streamer/gateway/streampb"
	"github.com/mongostream/streamer/notice"
	"github.com/mongostream/streamer/snapshot"
	"github.com/mongostream/streamer/streamer"
)

// at is a position on the wire: before everything of a time.
func at(seconds uint32) []byte {
	return change.At(change.Timestamp{T: seconds, I: 1}).Ref().Append(nil)
}

func TestBadHelloIsRefusedWithACode(t *testing.T) {
	w := newWorld(t, options{server: gateway.Config{MaxSubscriptions: 10}})
	place := func(p uint32, position []byte) *streampb.PartitionPosition {
		return &streampb.PartitionPosition{Partition: p, Position: position}
	}
	known := func(h *streampb.Hello, position []byte, of ...*streampb.PartitionPosition) {
		h.Start, h.Cluster, h.PartitionCount, h.Position, h.Positions = streampb.Start_START_RESUME, "c", partitions, position, of
	}
	for name, c := range map[string]struct {
		change func(*streampb.Hello)
		code   codes.Code
		reason fault.Code
	}{
		"no start":            {func(h *streampb.Hello) { h.Start = 0 }, codes.InvalidArgument, fault.SessionBadRequest},
		"a start of no sense": {func(h *streampb.Hello) { h.Start = 77 }, codes.InvalidArgument, fault.SessionBadRequest},
		"no time":             {func(h *streampb.Hello) { h.Start = streampb.Start_START_TIME }, codes.InvalidArgument, fault.SessionBadRequest},
		"a snapshot of nobody": {
			func(h *streampb.Hello) { h.Start, h.Subscriber = streampb.Start_START_SNAPSHOT, "" }, codes.InvalidArgument, fault.SessionBadRequest,
		},
		"a snapshot of some partitions": {
			func(h *streampb.Hello) { h.Start = streampb.Start_START_SNAPSHOT; owned(h) }, codes.InvalidArgument, fault.SessionBadRequest,
		},
		"a snapshot that nobody acknowledges": {
			func(h *streampb.Hello) {
				h.Start, h.Ack = streampb.Start_START_SNAPSHOT, streampb.AckMode_ACK_MODE_AUTO
			}, codes.InvalidArgument, fault.SessionBadRequest,
		},
		"a time before all": {func(h *streampb.Hello) {
			h.Start, h.Time = streampb.Start_START_TIME, timestamppb.New(time.Unix(-5, 0))
		}, codes.InvalidArgument, fault.SessionBadRequest},
		"a long name":        {func(h *streampb.Hello) { h.Subscriber = strings.Repeat("x", 257) }, codes.InvalidArgument, fault.SessionBadRequest},
		"a long process":     {func(h *streampb.Hello) { h.ProcessId = strings.Repeat("x", 257) }, codes.InvalidArgument, fault.SessionBadRequest},
		"many subscriptions": {func(h *streampb.Hello) { h.Subscriptions = make([]*streampb.Subscription, 11) }, codes.ResourceExhausted, fault.SessionTooWide},
		"nothing to resume":  {func(h *streampb.Hello) { h.Start = streampb.Start_START_RESUME }, codes.NotFound, fault.SessionUnknown},
		"another cluster": {func(h *streampb.Hello) {
			known(h, at(1000))
			h.Cluster = "other"
		}, codes.InvalidArgument, fault.SessionBadPosition},
		"a malformed position": {func(h *streampb.Hello) { known(h, []byte("x")) }, codes.InvalidArgument, fault.SessionBadPosition},
		"a malformed position of a partition": {
			func(h *streampb.Hello) { known(h, at(1000), place(1, []byte("x"))) }, codes.InvalidArgument, fault.SessionBadPosition,
		},
		"a partition that there is not": {
			func(h *streampb.Hello) { known(h, at(1000), place(partitions, at(1000))) }, codes.InvalidArgument, fault.SessionBadPosition,
		},
		"a partition twice": {
			func(h *streampb.Hello) { known(h, at(1000), place(1, at(1000)), place(1, at(1000))) }, codes.InvalidArgument, fault.SessionBadPosition,
		},
		"a position that is ahead": {func(h *streampb.Hello) { known(h, at(1<<31)) }, codes.FailedPrecondition, fault.LogAhead},
		"a partition that is ahead": {
			func(h *streampb.Hello) { known(h, at(1000), place(1, at(1<<31))) }, codes.FailedPrecondition, fault.LogAhead,
		},
	} {
		code, reason, text := w.open(t.Context(), hello(c.change)).ends()
		if code != c.code || reason != string(c.reason) || !strings.HasPrefix(text, string(c.reason)+": ") || !strings.Contains(text, "\n") {
			t.Errorf("%s: %s %s %q", name, code, reason, text)
		}
	}
	stream, err := w.client.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s := &session{TB: t, Gateway_ConnectClient: stream}
	s.say(&streampb.ConnectRequest{Message: &streampb.ConnectRequest_Heartbeat{}})
	if code, reason, _ := s.ends(); code != codes.InvalidArgument || reason != string(fault.SessionBadRequest) {
		t.Errorf("no hello: %s %s", code, reason)
	}
}

// A session that asks for what cannot be is ended, and told why.
func TestRequestsThatMakeNoSenseEndTheSession(t *testing.T) {
	w := newWorld(t, options{})
	attach := func(positions ...*streampb.PartitionPosition) *streampb.ConnectRequest {
		return &streampb.ConnectRequest{Message: &streampb.ConnectRequest_Attach{Attach: &streampb.Attach{Positions: positions}}}
	}
	here := &streampb.PartitionPosition{Partition: 1, Position: at(1000)}
	for name, c := range map[string]struct {
		says   *streampb.ConnectRequest
		owned  bool
		reason fault.Code
	}{
		"another hello": {&streampb.ConnectRequest{Message: &streampb.ConnectRequest_Hello{Hello: hello(nil)}}, false, fault.SessionBadRequest},
		"nothing":       {&streampb.ConnectRequest{}, false, fault.SessionBadRequest},
		"an acknowledgement of what was not sent": {
			&streampb.ConnectRequest{Message: &streampb.ConnectRequest_Ack{Ack: &streampb.Ack{Seq: 1 << 40}}}, false, fault.SessionBadAck,
		},
		"attach to a session that has all": {attach(here), false, fault.SessionBadRequest},
		"detach from a session that has all": {
			&streampb.ConnectRequest{Message: &streampb.ConnectRequest_Detach{Detach: &streampb.Detach{Partitions: []uint32{1}}}}, false, fault.SessionBadRequest,
		},
		"attach what there is not": {attach(&streampb.PartitionPosition{Partition: partitions, Position: at(1000)}), true, fault.SessionBadPosition},
		"attach twice in one":      {attach(here, here), true, fault.SessionBadPosition},
		"attach without position":  {attach(&streampb.PartitionPosition{Partition: 1}), true, fault.SessionBadPosition},
	} {
		s := w.connect(hello(func(h *streampb.Hello) {
			if h.Subscriber = name; c.owned {
				owned(h)
			}
		}))
		s.say(c.says)
		if code, reason, _ := s.ends(); code != codes.InvalidArgument || reason != string(c.reason) {
			t.Errorf("%s: %s %s", name, code, reason)
		}
	}
}

// Acknowledgements say up to where: late ones and repeated ones change nothing, and what is not
// acknowledged comes again.
func TestWhatIsNotAcknowledgedComesAgain(t *testing.T) {
	w := newWorld(t, options{})
	s := w.connect(hello(nil))
	w.write(10, 0)
	s.events(10)
	for _, seq := range []uint64{s.seq, 0, 1, s.seq} {
		s.ack(seq)
	}
	w.until("all is acknowledged", func() bool { return w.node.Hub().Sessions()[0].State().Events == 0 })
	w.write(5, 0)
	s.events(5)
	if err := s.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if code, _, text := s.ends(); code != codes.OK {
		t.Errorf("%s %s", code, text)
	}
	again := w.open(t.Context(), hello(func(h *streampb.Hello) { h.Start, h.ProcessId = streampb.Start_START_RESUME, "p2" }))
	if welcome := next(again, (*streampb.ConnectResponse).GetWelcome); welcome.GetBegin() != streampb.Begin_BEGIN_CHECKPOINT {
		t.Errorf("%v", welcome)
	}
	w.write(1, 0)
	if n := len(again.events(6)); n != 6 {
		t.Errorf("%d events came", n)
	}
}

func TestSubscriptionsAreCompiledOrRefusedEach(t *testing.T) {
	w := newWorld(t, options{server: gateway.Config{HeartbeatTimeout: 30 * time.Second}})
	s := w.open(t.Context(), hello(func(h *streampb.Hello) {
		h.Subscriptions = []*streampb.Subscription{
			{Id: "a", Filter: `key._id == 7`}, {Id: "b", Filter: `key. ==`}, {Id: "c", Ops: []string{"upsert"}}, {Id: "a"}, {Id: "d", Fields: []string{"x.y"}}, {},
			{Id: "e", Format: streampb.Format_FORMAT_JSON}, {Id: strings.Repeat("x", 257)}, {Id: "f", Fields: make([]string, 101)},
		}
	}))
	if m := next(s, (*streampb.ConnectResponse).GetWelcome); m.GetCluster() != "c" || m.GetNode() != "n" || m.GetPartitionCount() != partitions ||
		m.GetBegin() != streampb.Begin_BEGIN_START || m.GetLimits().GetHeartbeatTimeoutMs() != 30_000 || m.GetLimits().GetHeartbeatIntervalMs() != 10_000 {
		t.Errorf("%v", m)
	}
	ids, refused := s.answers(9)
	const bad = string(fault.SessionBadRequest)
	if want := []string{"", string(fault.FilterInvalid), bad, bad, bad, bad, "", bad, bad}; !slices.Equal(refused, want) || ids[0] != "a" || ids[6] != "e" {
		t.Errorf("%q: %q", ids, refused)
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

func TestSubscriptionsComeAndGo(t *testing.T) {
	w := newWorld(t, options{})
	s := w.connect(hello(func(h *streampb.Hello) { h.Subscriptions = nil; h.Ack = streampb.AckMode_ACK_MODE_AUTO }))
	w.source.Append(changetest.Event{ID: 5})
	s.subscribe(&streampb.Subscription{Id: "late"}, &streampb.Subscription{Id: "never", Filter: "("})
	from := next(s, (*streampb.ConnectResponse).GetSubscribed).GetFrom()
	if rejected := next(s, (*streampb.ConnectResponse).GetRejected); rejected.GetId() != "never" || len(from) != 34 {
		t.Errorf("%v, from %x", rejected, from)
	}
	w.source.Append(changetest.Event{ID: 6, Coll: "seen"}, changetest.Event{ID: 7, Coll: "last"})
	for _, e := range s.events(2) {
		if bytes.Compare(e.GetPosition(), from) <= 0 {
			t.Errorf("%v is not after %x", e, from)
		}
	}
	s.unsubscribe("late", "never", "late")
	s.subscribe(&streampb.Subscription{Id: "other", Coll: "seen"})
	next(s, (*streampb.ConnectResponse).GetSubscribed)
	w.source.Append(changetest.Event{ID: 8}, changetest.Event{ID: 9, Coll: "seen"})
	if e := s.events(1); !slices.Equal(e[0].GetSubscriptions(), []string{"other"}) {
		t.Errorf("%v", e)
	}
}

// A client begins where it says that it is, whatever its checkpoint says, and its earlier
// connection ends.
func TestSessionBeginsWhereTheClientIs(t *testing.T) {
	w := newWorld(t, options{})
	s := w.connect(hello(nil))
	w.write(50, 0)
	s.events(50)
	w.write(2, 0)
	again := w.open(t.Context(), hello(func(h *streampb.Hello) {
		h.Start, h.Cluster, h.PartitionCount, h.Position = streampb.Start_START_RESUME, "c", partitions, s.to
	}))
	if welcome := next(again, (*streampb.ConnectResponse).GetWelcome); welcome.GetBegin() != streampb.Begin_BEGIN_POSITIONS {
		t.Errorf("%v", welcome)
	}
	if n := len(again.events(2)); n != 2 {
		t.Errorf("%d events, 2 are new", n)
	}
	if code, reason, _ := s.ends(); code != codes.AlreadyExists || reason != string(fault.SessionReplaced) {
		t.Errorf("the earlier connection ends with %s %s", code, reason)
	}
}

// A client that does not say when it started, such as a tool on the command line, has just started:
// it gets the name.
func TestProcessWithoutATimeHasJustStarted(t *testing.T) {
	w := newWorld(t, options{})
	first := w.connect(hello(func(h *streampb.Hello) { h.StartedAt = timestamppb.Now() }))
	w.connect(hello(func(h *streampb.Hello) { h.ProcessId, h.StartedAt = "", nil }))
	if code, reason, _ := first.ends(); code != codes.AlreadyExists || reason != string(fault.SessionReplaced) {
		t.Errorf("%s %s", code, reason)
	}
}

func TestOlderProcessIsRefused(t *testing.T) {
	w := newWorld(t, options{})
	newer := w.connect(hello(func(h *streampb.Hello) { h.ProcessId, h.StartedAt = "new", timestamppb.New(time.Unix(2000, 0)) }))
	if code, reason, _ := w.open(t.Context(), hello(nil)).ends(); code != codes.AlreadyExists || reason != string(fault.SessionReplaced) {
		t.Errorf("%s %s", code, reason)
	}
	w.write(1, 0)
	newer.events(1)
}

// What has been lost, and where an operator has moved the subscriber, comes in its place among the
// batches.
func TestLossesAreBatches(t *testing.T) {
	w := newWorld(t, options{})
	w.source.Append(changetest.Event{ID: 1}, changetest.Event{ID: 2}, changetest.Event{ID: 3})
	w.source.Truncate(1)
	s := w.connect(hello(func(h *streampb.Hello) {
		h.Start, h.Cluster, h.PartitionCount, h.Position = streampb.Start_START_RESUME, "c", partitions, at(900)
	}))
	lost := func(kind streampb.Loss_Kind) *streampb.Batch {
		return next(s, func(r *streampb.ConnectResponse) *streampb.Batch {
			if r.GetBatch().GetLoss().GetKind() == kind {
				return r.GetBatch()
			}
			return nil
		})
	}
	b := lost(streampb.Loss_KIND_RESYNC)
	if l := b.GetLoss(); len(b.GetEvents()) > 0 || l.GetFrom().GetSeconds() != 900 || l.GetTo().GetSeconds() != 1001 || // it ends within the second before
		l.GetReason() != "history_lost" || l.GetAdvice() == "" {
		t.Errorf("%v", b)
	}
	s.events(1)
	if _, err := w.store.Rewind(t.Context(), checkpoint.Key{Subscriber: "s"}, change.At(change.Timestamp{T: 800, I: 1}), "operator", "a test"); err != nil {
		t.Fatal(err)
	}
	w.node.Rewound("s")
	b = lost(streampb.Loss_KIND_REWOUND)
	if l := b.GetLoss(); l.GetGeneration() != 1 || l.GetReason() != "operator" || !bytes.Equal(b.GetTo(), at(800)) {
		t.Errorf("%v", b)
	}
}

// A gRPC client whose own position, from a copy of its database, is before that of a rewind, gets
// what follows its own.
func TestRewindIsNotForwardForItsOwnPosition(t *testing.T) {
	w := newWorld(t, options{})
	ctx, leave := context.WithCancel(t.Context())
	s := w.open(ctx, hello(nil))
	next(s, (*streampb.ConnectResponse).GetBatch)
	w.write(4, 0)
	had := s.events(4)
	s.ack(s.seq)
	w.until("all is acknowledged", func() bool { return w.node.Subscribers()[0].Unacknowledged == 0 })
	leave()
	w.until("it has left", func() bool { return len(w.node.Subscribers()) == 0 })
	_, end := w.source.Reach()
	if _, err := w.store.Rewind(t.Context(), checkpoint.Key{Subscriber: "s"}, change.At(end), "operator", "a test"); err != nil {
		t.Fatal(err)
	}
	w.write(1, 0)
	again := w.open(t.Context(), hello(func(h *streampb.Hello) {
		h.Cluster, h.PartitionCount, h.Position = "c", partitions, had[0].GetPosition()
	}))
	if begin := next(again, (*streampb.ConnectResponse).GetWelcome).GetBegin(); begin != streampb.Begin_BEGIN_CHECKPOINT {
		t.Errorf("it begins at %v", begin)
	}
	if got := again.events(4); !bytes.Equal(got[0].GetPosition(), had[1].GetPosition()) {
		t.Errorf("goes on at %x after %x", got[0].GetPosition(), had[0].GetPosition())
	}
}

// A client may resume after a loss of which it has acknowledged nothing: when it hears of the loss,
// what compensates for that is in its checkpoint.
func TestSnapshotOfALossIsKeptBeforeTheLossIsTold(t *testing.T) {
	w := newWorld(t, options{node: streamer.NodeConfig{Policy: checkpoint.Policy{Interval: time.Hour}}})
	s := w.connect(hello(func(h *streampb.Hello) { h.Subscriptions[0].OnLoss = streampb.OnLoss_ON_LOSS_SNAPSHOT }))
	w.source.Append(changetest.Event{ID: 2}, changetest.Event{Op: "rename", Coll: "draft", To: "orders", Keyless: true})
	next(s, (*streampb.ConnectResponse).GetBatch)
	for next(s, (*streampb.ConnectResponse).GetBatch).GetLoss() == nil {
	}
	stored, err := w.store.Load(t.Context(), "s")
	if err != nil || len(stored) != 1 || len(stored[0].Snapshots) != 1 || stored[0].Snapshots[0].Done || stored[0].Snapshots[0].Reason != snapshot.Loss {
		t.Errorf("%+v, %v", stored, err)
	}
}

func TestSilentClientIsLetGo(t *testing.T) {
	w := newWorld(t, options{server: gateway.Config{HeartbeatTimeout: 200 * time.Millisecond}})
	if code, reason, _ := w.open(t.Context(), hello(nil)).ends(); code != codes.DeadlineExceeded || reason != string(fault.SessionSilent) {
		t.Errorf("%s %s", code, reason)
	}
}

// A client that acknowledges nothing by itself may say its hello and then only listen, as tools for
// the command line do.
func TestListenerIsServedAfterItsHello(t *testing.T) {
	w := newWorld(t, options{server: gateway.Config{HeartbeatTimeout: 100 * time.Millisecond}})
	s := w.open(t.Context(), named("s"))
	if err := s.CloseSend(); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		next(s, (*streampb.ConnectResponse).GetHeartbeat)
	}
	w.write(1, 0)
	s.events(1)
}

// topologies is a Topologist that is told what to tell.
type topologies chan gateway.Topology

func (c topologies) Follow(ctx context.Context, version uint64) (gateway.Topology, error) {
	for {
		select {
		case t, more := <-c:
			if !more {
				return t, errors.New("no more")
			}
			if t.Version > version {
				return t, nil
			}
		case <-ctx.Done():
			return gateway.Topology{}, context.Cause(ctx)
		}
	}
}

func TestTopologyIsToldWheneverItChanges(t *testing.T) {
	told := make(topologies)
	w := newWorld(t, options{server: gateway.Config{Topology: told}})
	s := w.connect(hello(nil))
	for version := range uint64(3) {
		told <- gateway.Topology{Version: 7 + version, Nodes: []gateway.NodeAddress{{Name: "a", Address: "a:1"}, {Name: "b"}}, Owners: []int{0, 1, -1, int(version)}}
		got := next(s, (*streampb.ConnectResponse).GetTopology)
		if n := got.GetNodes(); got.GetVersion() != 7+version || len(n) != 2 || n[0].GetName() != "a" || n[0].GetAddress() != "a:1" || n[1].GetName() != "b" ||
			!slices.Equal(got.GetOwners(), []int32{0, 1, -1, int32(version)}) {
			t.Errorf("%v", got)
		}
	}
	close(told) // the session goes on
	w.write(1, 0)
	s.events(1)
}

// A session gets what is attached to it, from where the client says that it is, and nothing else.
func TestSessionGetsThePartitionsThatAreAttached(t *testing.T) {
	w := newWorld(t, options{})
	s := w.connect(hello(owned))
	begin := s.to
	for id := range int64(40) {
		w.source.Append(changetest.Event{ID: id})
	}
	all := w.open(t.Context(), hello(func(h *streampb.Hello) {
		h.Subscriber, h.Start, h.Cluster, h.PartitionCount, h.Position = "", streampb.Start_START_RESUME, "c", partitions, begin
	}))
	var of [partitions][]*streampb.Event
	for _, e := range all.events(40) {
		of[e.GetPartition()] = append(of[e.GetPartition()], e)
	}
	if len(of[1]) < 2 || len(of[2]) < 2 {
		t.Fatalf("too few: %v", of)
	}
	want, got := map[uint32][]*streampb.Event{1: of[1][1:], 2: of[2]}, map[uint32]int{}
	s.say(&streampb.ConnectRequest{Message: &streampb.ConnectRequest_Attach{Attach: &streampb.Attach{Positions: []*streampb.PartitionPosition{
		{Partition: 1, Position: of[1][0].GetPosition()}, {Partition: 2, Position: begin},
	}}}})
	for _, e := range s.events(len(want[1]) + len(want[2])) {
		p := e.GetPartition()
		if n := got[p]; n >= len(want[p]) || !bytes.Equal(want[p][n].GetPosition(), e.GetPosition()) {
			t.Fatalf("event %d of partition %d: %v", n, p, e)
		}
		got[p]++
	}
	s.say(&streampb.ConnectRequest{Message: &streampb.ConnectRequest_Detach{Detach: &streampb.Detach{Partitions: []uint32{1, 3}}}})
	s.subscribe(&streampb.Subscription{Id: "a sign"}) // that the session has come so far
	next(s, (*streampb.ConnectResponse).GetSubscribed)
	for id := range int64(40) {
		w.source.Append(changetest.Event{ID: id})
	}
	for _, e := range s.events(len(of[2])) {
		if e.GetPartition() != 2 {
			t.Errorf("%v", e)
		}
	}
}

// A node that is about to stop says so first: to those who look at its health, and to new sessions.
// Open ones go on meanwhile.
func TestNodeThatLeavesTakesNoNewSessions(t *testing.T) {
	w := newWorld(t, options{})
	s := w.connect(hello(nil))
	watch, err := grpc_health_v1.NewHealthClient(w.conn()).Watch(t.Context(), &grpc_health_v1.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	says := func(want grpc_health_v1.HealthCheckResponse_ServingStatus) {
		t.Helper()
		if answer, err := watch.Recv(); err != nil || answer.GetStatus() != want {
			t.Fatalf("%v, %v; want %v", answer, err, want)
		}
	}
	says(grpc_health_v1.HealthCheckResponse_SERVING)
	w.server.Serving(false) // as /readyz says
	says(grpc_health_v1.HealthCheckResponse_NOT_SERVING)
	w.server.Serving(true)
	says(grpc_health_v1.HealthCheckResponse_SERVING)
	w.server.Leave()
	says(grpc_health_v1.HealthCheckResponse_NOT_SERVING)
	w.server.Serving(true) // it was ready a moment ago
	for _, service := range []string{"", "streamer.v1.Gateway"} {
		answer, err := grpc_health_v1.NewHealthClient(w.conn()).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: service})
		if err != nil || answer.GetStatus() != grpc_health_v1.HealthCheckResponse_NOT_SERVING {
			t.Errorf("%q of a node that leaves: %v, %v", service, answer, err)
		}
	}
	if n := next(s, (*streampb.ConnectResponse).GetNotice); n.GetKind() != "shutting_down" || n.GetCode() != string(fault.NodeStopping) {
		t.Errorf("%v", n)
	}
	if code, reason, _ := w.open(t.Context(), hello(nil)).ends(); code != codes.Unavailable || reason != string(fault.NodeStopping) {
		t.Errorf("a new session: %s %s", code, reason)
	}
	s.subscribe(&streampb.Subscription{Id: "all"})
	next(s, (*streampb.ConnectResponse).GetSubscribed)
	w.source.Append(changetest.Event{ID: 1})
	s.events(1)
}

// A node that stops says so, and ends its sessions such that clients connect elsewhere.
func TestNodeThatStopsTellsItsSessions(t *testing.T) {
	w := newWorld(t, options{})
	s := w.connect(hello(nil))
	w.stop()
	if n := next(s, (*streampb.ConnectResponse).GetNotice); n.GetKind() != "shutting_down" || n.GetCode() != string(fault.NodeStopping) {
		t.Errorf("%v", n)
	}
	for _, s := range []*session{s, w.open(t.Context(), hello(nil))} {
		if code, reason, _ := s.ends(); code != codes.Unavailable || reason != string(fault.NodeStopping) {
			t.Errorf("%s %s", code, reason)
		}
	}
}

// What is about the service is told to every session, and what happened lately to one that begins
// without positions of its own.
func TestSessionsAreToldOfTheService(t *testing.T) {
	recent := delivery.Notice{Kind: "stale", Text: "text", Partitions: []change.Partition{1, 3}}
	w := newWorld(t, options{server: gateway.Config{Recent: func() []delivery.Notice { return []delivery.Notice{recent} }}})
	s := w.open(t.Context(), hello(nil))
	if n := next(s, (*streampb.ConnectResponse).GetNotice); n.GetKind() != "stale" || n.GetText() != "text" || !slices.Equal(n.GetPartitions(), []uint32{1, 3}) {
		t.Errorf("%v", n)
	}
	next(s, (*streampb.ConnectResponse).GetBatch)
	again := w.open(t.Context(), hello(func(h *streampb.Hello) {
		h.Subscriber, h.Start, h.Cluster, h.PartitionCount, h.Position = "other", streampb.Start_START_RESUME, "c", partitions, s.to
	}))
	next(again, (*streampb.ConnectResponse).GetSubscribed)
	w.server.Announce(delivery.Notice{Kind: "degraded"})
	for _, s := range []*session{s, again} {
		if n := next(s, (*streampb.ConnectResponse).GetNotice); n.GetKind() != "degraded" {
			t.Errorf("%v", n)
		}
	}
	restarted := w.open(t.Context(), hello(func(h *streampb.Hello) {
		h.ProcessId, h.Start, h.Cluster, h.PartitionCount, h.Position = "q", streampb.Start_START_RESUME, "c", partitions, s.to
	}))
	for _, kind := range []string{notice.KindSubscriberReplaced, "stale"} { // the process before is still connected
		if n := next(restarted, (*streampb.ConnectResponse).GetNotice); n.GetKind() != kind {
			t.Errorf("a process that has restarted with a position of its own is told %v", n)
		}
	}
}

// A filter that fails is told with its subscription, and holds nothing up.
func TestSessionIsToldThatAFilterFails(t *testing.T) {
	w := newWorld(t, options{})
	s := w.connect(hello(func(h *streampb.Hello) {
		h.Subscriptions = append(h.Subscriptions, &streampb.Subscription{Id: "bad", Filter: `key._id + "x" == "y"`})
	}))
	w.write(1, 0)
	told, got := false, 0
	for !told || got == 0 {
		r, err := s.take()
		if err != nil {
			t.Fatal(err)
		}
		got += len(r.GetBatch().GetEvents())
		if n := r.GetNotice(); n != nil {
			if told = true; n.GetKind() != "filter_failed" || n.GetSubscription() != "bad" || n.GetCode() != string(fault.FilterEvaluation) {
				t.Errorf("%v", n)
			}
		}
	}
}

func TestSessionsAreBounded(t *testing.T) {
	w := newWorld(t, options{server: gateway.Config{MaxSessions: 2}})
	for i := range 2 {
		w.connect(named(fmt.Sprint(i)))
	}
	if code, reason, _ := w.open(t.Context(), named("more")).ends(); code != codes.ResourceExhausted || reason != string(fault.SessionTooMany) {
		t.Errorf("%s %s", code, reason)
	}
}

// What clients may send is bounded for every service that a node has; it does not serve one that is
// not. What is not accepted is told in our words.
func TestEveryServiceIsBounded(t *testing.T) {
	w := newWorld(t, options{})
	stream, err := reflectionpb.NewServerReflectionClient(w.conn()).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}}); err != nil {
		t.Fatal(err)
	}
	answer, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	if services := answer.GetListServicesResponse().GetService(); len(services) < 4 {
		t.Errorf("%v", services)
	}
	// What is too long is refused by every service.
	long := strings.Repeat("x", 1000)
	if _, err := grpc_health_v1.NewHealthClient(w.conn()).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: long}); status.Code(err) == codes.NotFound || !strings.Contains(err.Error(), string(fault.SessionBadRequest)) {
		t.Errorf("health: %v", err)
	}
	watch, err := grpc_health_v1.NewHealthClient(w.conn()).Watch(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: long})
	if err == nil {
		_, err = watch.Recv()
	}
	if code, reason, _ := explained(err); code != codes.InvalidArgument || reason != string(fault.SessionBadRequest) {
		t.Errorf("watch of health: %v", err)
	}
	if err := stream.Send(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_FileByFilename{FileByFilename: long}}); err != nil {
		t.Fatal(err)
	}
	_, err = stream.Recv()
	if code, reason, _ := explained(err); code != codes.InvalidArgument || reason != string(fault.SessionBadRequest) {
		t.Errorf("reflection: %v", err)
	}
	// And what is not UTF-8 is told so in our words.
	for _, wire := range []string{"\x0a\x03\x0a\x01\xff", "\x0a\x05\x0a\x03a\nb", "\x2a\x05\x0a\x03\x0a\x01\xff", "\xff"} {
		s, err := w.conn(grpc.WithDefaultCallOptions(grpc.ForceCodec(rawCodec{}))).NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, streampb.Gateway_Connect_FullMethodName)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.SendMsg(wire); err != nil {
			t.Fatal(err)
		}
		var answer string
		err = s.RecvMsg(&answer)
		if code, reason, _ := explained(err); code != codes.InvalidArgument || reason != string(fault.SessionBadRequest) {
			t.Errorf("%q: %v", wire, err)
		}
	}
}

// rawCodec sends messages that are encoded already.
type rawCodec struct{}

func (rawCodec) Name() string { return "proto" }

func (rawCodec) Marshal(v any) ([]byte, error) { return []byte(v.(string)), nil }

func (rawCodec) Unmarshal(data []byte, v any) error {
	*v.(*string) = string(data)
	return nil
}
