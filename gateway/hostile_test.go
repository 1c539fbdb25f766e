package gateway_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/change/changetest"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway"
	"github.com/mongostream/streamer/gateway/access"
	"github.com/mongostream/streamer/gateway/streampb"
	"github.com/mongostream/streamer/match"
	"github.com/mongostream/streamer/notice"
	"github.com/mongostream/streamer/streamer"
)

// closed returns an authenticator of identities, each with its name as token.
func closed(t *testing.T, identities ...string) *access.Authenticator {
	t.Helper()
	var text strings.Builder
	for _, name := range identities {
		fmt.Fprintf(&text, "token %s \"name=%s\" namespace=*\n", access.Hash(name), name)
	}
	path := filepath.Join(t.TempDir(), "identities")
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	a, err := access.New(access.Config{Identities: path})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// as returns a context of calls of an identity.
func (w *world) as(identity string) context.Context {
	return metadata.AppendToOutgoingContext(w.Context(), "authorization", "Bearer "+identity)
}

// connectAs opens a session of an identity, and waits until it has begun.
func (w *world) connectAs(identity string, h *streampb.Hello) *session {
	w.Helper()
	s := w.open(w.as(identity), h)
	next(s, (*streampb.ConnectResponse).GetBatch)
	return s
}

// rows returns the names of the subscribers with checkpoints.
func (w *world) rows() (names []string) {
	w.Helper()
	all, err := w.store.List(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	for _, c := range all {
		names = append(names, c.Subscriber)
	}
	return names
}

// fill appends inserts of documents with different ids.
func (w *world) fill(n, pad int) {
	for i := range n {
		w.source.Append(changetest.Event{ID: int64(i), Pad: pad})
	}
}

func attachment(partition ...uint32) *streampb.ConnectRequest {
	a := &streampb.Attach{}
	for _, p := range partition {
		a.Positions = append(a.Positions, &streampb.PartitionPosition{Partition: p, Position: at(1000)})
	}
	return &streampb.ConnectRequest{Message: &streampb.ConnectRequest_Attach{Attach: a}}
}

func detachment(partition ...uint32) *streampb.ConnectRequest {
	return &streampb.ConnectRequest{Message: &streampb.ConnectRequest_Detach{Detach: &streampb.Detach{Partitions: partition}}}
}

// Whatever a session says that it must not, or that means nothing in its mode, a session of
// somebody else with attached partitions misses nothing.
func TestMessagesOfOthersCostNobodyAnything(t *testing.T) {
	w := newWorld(t, options{})
	victim := w.connect(hello(func(h *streampb.Hello) { h.Subscriber, h.Ack = "victim", streampb.AckMode_ACK_MODE_AUTO; owned(h) }))
	victim.say(attachment(0, 1, 2, 3))
	for len(next(victim, (*streampb.ConnectResponse).GetBatch).GetAttached()) == 0 {
	}
	ack := func(seq uint64) *streampb.ConnectRequest {
		return &streampb.ConnectRequest{Message: &streampb.ConnectRequest_Ack{Ack: &streampb.Ack{Seq: seq}}}
	}
	const bad, position, ahead = fault.SessionBadRequest, fault.SessionBadPosition, fault.SessionBadAck
	for name, says := range map[string]struct {
		messages []*streampb.ConnectRequest
		// What becomes of the session in each mode: all and explicit, all and auto, owned and
		// explicit, owned and auto; "" where it goes on.
		ends [4]fault.Code
	}{
		"detach":                   {[]*streampb.ConnectRequest{detachment(0)}, [4]fault.Code{bad, bad, "", ""}},
		"detach of all":            {[]*streampb.ConnectRequest{detachment(0, 1, 2, 3)}, [4]fault.Code{bad, bad, "", ""}},
		"detach many times":        {[]*streampb.ConnectRequest{detachment(0, 0), detachment(0), detachment(0)}, [4]fault.Code{bad, bad, "", ""}},
		"detach of what there not": {[]*streampb.ConnectRequest{detachment(partitions)}, [4]fault.Code{bad, bad, bad, bad}},
		"detach of nothing":        {[]*streampb.ConnectRequest{detachment()}, [4]fault.Code{bad, bad, "", ""}},
		"attach":                   {[]*streampb.ConnectRequest{attachment(0)}, [4]fault.Code{bad, bad, "", ""}},
		"attach of nothing":        {[]*streampb.ConnectRequest{attachment()}, [4]fault.Code{bad, bad, "", ""}},
		"attach twice":             {[]*streampb.ConnectRequest{attachment(0), attachment(0)}, [4]fault.Code{bad, bad, "", ""}},
		"attach twice in one":      {[]*streampb.ConnectRequest{attachment(1, 1)}, [4]fault.Code{position, position, position, position}},
		"attach of what there not": {[]*streampb.ConnectRequest{attachment(partitions)}, [4]fault.Code{position, position, position, position}},
		"attach, detach twice":     {[]*streampb.ConnectRequest{attachment(2), detachment(2), detachment(2)}, [4]fault.Code{bad, bad, "", ""}},
		"acknowledge":              {[]*streampb.ConnectRequest{ack(0)}, [4]fault.Code{"", bad, "", bad}},
		"acknowledge what was not": {[]*streampb.ConnectRequest{ack(1 << 50)}, [4]fault.Code{ahead, bad, ahead, bad}},
		"hello again":              {[]*streampb.ConnectRequest{{Message: &streampb.ConnectRequest_Hello{Hello: hello(nil)}}}, [4]fault.Code{bad, bad, bad, bad}},
		"nothing":                  {[]*streampb.ConnectRequest{{}}, [4]fault.Code{bad, bad, bad, bad}},
		"unsubscribe the unknown": {
			[]*streampb.ConnectRequest{{Message: &streampb.ConnectRequest_Unsubscribe{Unsubscribe: &streampb.Unsubscribe{Ids: []string{"x", "all", "all"}}}}},
			[4]fault.Code{},
		},
	} {
		for mode, reason := range says.ends {
			hostile := w.connect(hello(func(h *streampb.Hello) {
				h.Subscriber = fmt.Sprint(name, mode)
				if mode%2 == 1 {
					h.Ack = streampb.AckMode_ACK_MODE_AUTO
				}
				if mode >= 2 {
					owned(h)
				}
			}))
			for _, m := range says.messages {
				hostile.say(m)
			}
			if reason == "" { // all of it was handled when this is answered
				hostile.subscribe(&streampb.Subscription{Id: "last"})
				if _, refused := hostile.answers(1); refused[0] != "" {
					t.Errorf("%s, mode %d: %v", name, mode, refused)
				}
			} else if _, got, text := hostile.ends(); got != string(reason) {
				t.Errorf("%s, mode %d: %s %s, not %s", name, mode, got, text, reason)
			}
			w.fill(20, 0)
			of := make(map[uint32]int)
			for _, e := range victim.events(20) {
				of[e.GetPartition()]++
			}
			if of[0] == 0 || of[1] == 0 || of[2] == 0 || of[3] == 0 {
				t.Errorf("%s, mode %d: the victim got %v", name, mode, of)
			}
			_ = hostile.CloseSend()
		}
	}
}

// A name belongs to its identity: nobody else takes it over, locks its owner out, or gets what it
// had, whatever the time that a process tells.
func TestNameBelongsToItsIdentity(t *testing.T) {
	w := newWorld(t, options{server: gateway.Config{Access: closed(t, "victim", "tenant", "a/b", "a")}})
	orders := func(process string, started time.Time) *streampb.Hello {
		return hello(func(h *streampb.Hello) {
			h.Subscriber, h.ProcessId, h.StartedAt = "orders", process, timestamppb.New(started)
		})
	}
	victim := w.connectAs("victim", orders("v", time.Now()))
	for i, name := range []string{"orders", "victim/orders", "../victim/orders", "%2E"} {
		h := orders(fmt.Sprint("t", i), time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC))
		h.Subscriber = name
		w.connectAs("tenant", h)
	}
	h := orders("v", time.Now()) // also with its process's id
	w.connectAs("tenant", h)
	w.write(5, 0)
	if n := len(victim.events(5)); n != 5 {
		t.Errorf("%d events", n)
	}
	victim.ack(victim.seq)
	_ = victim.CloseSend()
	if code, reason, text := victim.ends(); code != codes.OK {
		t.Errorf("the owner is ended: %s %s", reason, text)
	}
	// Names that look alike are different ones.
	h = orders("x", time.Now())
	h.Subscriber = "b/orders"
	w.connectAs("a", h)
	h = orders("y", time.Now())
	w.connectAs("a/b", h)
	rows := w.rows()
	want := []string{"a%2Fb/orders", "a/b/orders", "tenant/%2E", "tenant/../victim/orders", "tenant/orders", "tenant/victim/orders", "victim/orders"}
	if !slices.Equal(rows, want) {
		t.Errorf("%q", rows)
	}
	// It goes on where it was.
	w.write(2, 0)
	again := w.open(w.as("victim"), orders("v2", time.Now()))
	if welcome := next(again, (*streampb.ConnectResponse).GetWelcome); welcome.GetBegin() != streampb.Begin_BEGIN_CHECKPOINT {
		t.Errorf("%v", welcome)
	}
	if n := len(again.events(2)); n != 2 {
		t.Errorf("%d events", n)
	}
	for _, s := range w.node.Subscribers() {
		if owner, _, _ := strings.Cut(s.Name, "/"); owner != s.By {
			t.Errorf("%s is of %s", s.Name, s.By)
		}
	}
	if peers, _ := w.server.Peers(); len(peers) == 0 || peers[0].Name != "a%2Fb/orders" || peers[len(peers)-1].Started.After(time.Now()) {
		t.Errorf("%+v", peers)
	}
}

// The clock of a client locks nobody out, and both processes are told who the other one is, and
// operators of both.
func TestClocksOfClients(t *testing.T) {
	board := notice.NewBoard(notice.Config{Node: "n"})
	w := newWorld(t, options{server: gateway.Config{Access: closed(t, "owner")}, node: streamer.NodeConfig{Board: board}})
	process := func(name string, started time.Time) *streampb.Hello {
		return hello(func(h *streampb.Hello) { h.ProcessId, h.StartedAt = name, timestamppb.New(started) })
	}
	last := w.connectAs("owner", process("first", time.Now()))
	for i, started := range []time.Time{
		time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC), time.Now().Add(5 * time.Minute), time.Now().Add(time.Second), {}, // now, that is
		time.Unix(1<<60, 0), time.Now().Add(time.Hour),
	} {
		name := fmt.Sprint("process-", i)
		if started.IsZero() {
			started = time.Now()
		}
		s := w.open(w.as("owner"), process(name, started))
		told := next(s, (*streampb.ConnectResponse).GetNotice)
		if told.GetKind() != notice.KindSubscriberReplaced || !strings.Contains(told.GetText(), `of "owner" at node n, started 20`) {
			t.Errorf("%s: %v", name, told)
		}
		code, reason, text := last.ends()
		if code != codes.AlreadyExists || reason != string(fault.SessionReplaced) || !strings.Contains(text, fmt.Sprintf(`process %q of "owner" at node n, started 20`, name)) {
			t.Errorf("%s: %s %s %s", name, code, reason, text)
		}
		posted, _ := board.Since(0)
		n := posted[len(posted)-1]
		if err := notice.Check(n); err != nil || n.Kind != notice.KindSubscriberReplaced || n.Fields["process"] != name || n.Fields["identity"] != "owner" {
			t.Errorf("%s: operators are told %+v, %v", name, n, err)
		}
		last = s
	}
	for name, started := range map[string]time.Time{"old": time.Unix(1, 0), "very old": time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC), "strange": time.Unix(-1<<50, 0)} {
		if code, reason, text := w.open(w.as("owner"), process(name, started)).ends(); code != codes.AlreadyExists || !strings.Contains(text, `"process-5" of "owner" at node n`) {
			t.Errorf("%s: %s %s %s", name, code, reason, text)
		}
	}
	w.write(1, 0)
	last.events(1)
}

// Which of two processes started later is judged by how long each has run, if they say so:
// whatever their clocks show, nobody is locked out, and the earlier one does not come back.
func TestWrongClocksOfClientsDoNotMatter(t *testing.T) {
	w := newWorld(t, options{server: gateway.Config{Access: closed(t, "owner")}})
	process := func(name string, ahead, running time.Duration) *streampb.Hello {
		return hello(func(h *streampb.Hello) {
			h.ProcessId, h.StartedAt, h.RunningFor = name, timestamppb.New(time.Now().Add(ahead-running)), durationpb.New(running)
		})
	}
	const year = 365 * 24 * time.Hour
	last := w.connectAs("owner", process("first", 0, time.Hour))
	for _, later := range []*streampb.Hello{
		process("behind", -year, 50*time.Minute), process("behind by more", -50*year, 40*time.Minute), process("ahead", year, 30*time.Minute),
		process("right", 0, 20*time.Minute), process("backwards", 0, -year), // now, that is
	} {
		s := w.connectAs("owner", later)
		if code, reason, text := last.ends(); code != codes.AlreadyExists || !strings.Contains(text, fmt.Sprintf("process %q", later.GetProcessId())) {
			t.Errorf("the one before %s: %s %s %s", later.GetProcessId(), code, reason, text)
		}
		last = s
	}
	for _, earlier := range []*streampb.Hello{
		process("first", 0, time.Hour), process("ahead", year, 30*time.Minute), process("for ever", year, math.MaxInt64),
	} {
		if code, reason, text := w.open(w.as("owner"), earlier).ends(); code != codes.AlreadyExists || reason != string(fault.SessionReplaced) {
			t.Errorf("%s: %s %s %s", earlier.GetProcessId(), code, reason, text)
		}
	}
	w.write(1, 0)
	last.events(1)
}

// An identity has so many names, and more cost nobody else a checkpoint.
func TestNamesOfAnIdentityAreBounded(t *testing.T) {
	w := newWorld(t, options{server: gateway.Config{Access: closed(t, "victim", "tenant")}})
	w.connectAs("victim", named("orders"))
	first := checkpoint.Checkpoint{Partitions: partitions, Position: change.At(change.Timestamp{T: 1000, I: 1}), At: time.Now(), Reason: checkpoint.ReasonBegin}
	for n := range checkpoint.MaxNames - 1 {
		first.Key.Subscriber = fmt.Sprint("tenant/", n)
		if _, err := w.store.ClaimName(t.Context(), checkpoint.Claim{Process: "p", Started: time.Now(), By: "tenant"}, first); err != nil {
			t.Fatal(err)
		}
	}
	w.connectAs("tenant", named("last"))
	for n := range 10 {
		if code, reason, _ := w.open(w.as("tenant"), named(fmt.Sprint("more ", n))).ends(); code != codes.ResourceExhausted || reason != string(fault.AccessLimit) {
			t.Errorf("%s %s", code, reason)
		}
	}
	known := hello(func(h *streampb.Hello) { h.Subscriber, h.Cluster, h.Position = "more", "c", at(1000) })
	if code, reason, _ := w.open(w.as("tenant"), known).ends(); reason != string(fault.AccessLimit) {
		t.Errorf("with a position: %s %s", code, reason)
	}
	w.connectAs("victim", named("more"))
	if rows := w.rows(); len(rows) != checkpoint.MaxNames+2 || !slices.Contains(rows, "victim/orders") || !slices.Contains(rows, "tenant/0") {
		t.Errorf("%d rows", len(rows))
	}
	w.connectAs("tenant", hello(func(h *streampb.Hello) { h.Subscriber, h.StartedAt = "0", timestamppb.Now() })) // one that it has
	if err := w.store.Delete(t.Context(), "tenant/1"); err != nil {
		t.Fatal(err)
	}
	w.connectAs("tenant", named("more"))
}

// What was made under a name while the node was open is not taken for the checkpoint of an identity
// whose name looks like that.
func TestCheckpointsOfAnOpenNodeAreNobodys(t *testing.T) {
	w := newWorld(t, options{server: gateway.Config{Access: closed(t, "victim")}})
	planted := checkpoint.Checkpoint{
		Key: checkpoint.Key{Subscriber: "victim/orders"}, Partitions: partitions, Position: change.At(change.Timestamp{T: 1000, I: 1}), At: time.Now(), Reason: checkpoint.ReasonBegin,
	}
	if _, err := w.store.ClaimName(t.Context(), checkpoint.Claim{Process: "p", Started: time.Now(), By: access.Anonymous().Name}, planted); err != nil {
		t.Fatal(err)
	}
	orders := hello(func(h *streampb.Hello) { h.Subscriber, h.StartedAt = "orders", timestamppb.Now() })
	if code, reason, text := w.open(w.as("victim"), orders).ends(); code != codes.PermissionDenied || reason != string(fault.AccessForbidden) ||
		!strings.Contains(text, `of "anonymous"`) {
		t.Errorf("%s %s %s", code, reason, text)
	}
	// An operator who knows better imports it.
	if err := w.store.Delete(t.Context(), "victim/orders"); err != nil {
		t.Fatal(err)
	}
	if err := w.store.Put(t.Context(), planted); err != nil {
		t.Fatal(err)
	}
	s := w.open(w.as("victim"), orders)
	if welcome := next(s, (*streampb.ConnectResponse).GetWelcome); welcome.GetBegin() != streampb.Begin_BEGIN_CHECKPOINT {
		t.Errorf("%v", welcome)
	}
}

// A subscriber that acknowledges nothing holds up nobody else's checkpoint, is told of, and is
// disconnected at last; one that has nothing to acknowledge, or need not, is not.
func TestSubscriberThatAcknowledgesNothingIsDisconnected(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{
		hub:  delivery.Config{Bookmark: 20 * time.Millisecond},
		node: streamer.NodeConfig{AckTimeout: 20 * time.Second, Policy: checkpoint.Policy{Interval: 50 * time.Millisecond, MinInterval: 10 * time.Millisecond}},
	})
	program, err := match.Compile(match.Filter{})
	if err != nil {
		t.Fatal(err)
	}
	shared, err := w.node.Share(t.Context(), "stdout", []delivery.Subscription{{ID: "all", Program: program}})
	if err != nil {
		t.Fatal(err)
	}
	var terms []change.Term
	for p := range change.Partition(partitions) {
		terms = append(terms, change.Term{Context: t.Context(), Partition: p, Epoch: change.Epoch{Incarnation: 1, Revision: 1}})
	}
	if err := w.node.Serve(t.Context(), terms); err != nil {
		t.Fatal(err)
	}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			batches, err := shared.Receive(t.Context())
			if err != nil {
				return
			}
			for _, b := range batches {
				if shared.Ack(b.Seq) != nil {
					return
				}
			}
		}
	}()
	defer func() { w.stop(); <-stopped }()
	stuck := w.connect(hello(func(h *streampb.Hello) { h.Subscriber = "stuck" }))
	quiet := w.connect(hello(func(h *streampb.Hello) {
		h.Subscriber, h.Subscriptions = "quiet", []*streampb.Subscription{{Id: "none", Db: "other"}}
	}))
	auto := w.connect(named("auto"))
	prompt := w.connect(hello(func(h *streampb.Hello) { h.Subscriber = "prompt" }))
	w.fill(20, 0)
	stuck.events(20)
	auto.events(20)
	prompt.events(20)
	prompt.ack(prompt.seq)
	w.until("it is told of", func() bool {
		return slices.ContainsFunc(w.node.Subscribers(), func(s streamer.SubscriberStatus) bool { return s.Name == "stuck" && s.Overdue })
	})
	passed := func(name string) bool {
		saved, err := w.store.Load(t.Context(), name)
		return err == nil && len(saved) > 0 && !slices.ContainsFunc(saved, func(c checkpoint.Checkpoint) bool {
			return c.Earliest().Time.Compare(func() change.Timestamp { _, last := w.source.Reach(); return last }()) < 0
		})
	}
	w.until("the checkpoints of the others have moved on", func() bool { return passed("prompt") && passed("auto") && passed("stdout") })
	if passed("stuck") {
		t.Error("the checkpoint of what acknowledges nothing has moved on")
	}
	if code, reason, text := stuck.ends(); code != codes.DeadlineExceeded || reason != string(fault.SessionUnacknowledged) {
		t.Errorf("%s %s %s", code, reason, text)
	}
	for _, s := range w.node.Subscribers() {
		if s.Overdue || s.Name == "stuck" {
			t.Errorf("%+v", s)
		}
	}
	w.source.Append(changetest.Event{ID: 1, DB: "other"})
	for _, s := range []*session{quiet, auto, prompt} {
		s.events(1)
	}
	// What it had is redelivered.
	again := w.connect(hello(func(h *streampb.Hello) { h.Subscriber = "stuck" }))
	again.events(21)
}

// Partitions that are attached again and again and never acknowledged are bounded.
func TestAttachmentsWithoutAcknowledgementAreBounded(t *testing.T) {
	w := newWorld(t, options{server: gateway.Config{SubscribeRate: 100_000}})
	s := w.connect(hello(owned))
	for range 1000 {
		s.say(attachment(0, 1, 2, 3))
	}
	if code, reason, _ := s.ends(); code != codes.DeadlineExceeded || reason != string(fault.SessionUnacknowledged) {
		t.Errorf("%s %s", code, reason)
	}
	again := w.connect(hello(owned))
	for range 1000 { // one that acknowledges may do so
		again.say(attachment(0, 1, 2, 3))
		for len(next(again, (*streampb.ConnectResponse).GetBatch).GetAttached()) == 0 {
		}
		again.ack(again.seq)
	}
}

// What many sessions of one identity do not acknowledge stays within the budget, whether they take
// it or not, and a session of another identity does not notice.
func TestSumOfAllQueuesIsBounded(t *testing.T) {
	const budget, size, n, hostile = 32 << 20, 20_000, 1500, 50
	w := newWorld(t, options{
		hub:    delivery.Config{QueueBytes: budget},
		server: gateway.Config{Access: closed(t, "honest", "tenant"), HeartbeatTimeout: time.Hour, StallTimeout: time.Hour}, // the hostile ones say nothing
	})
	honest := w.connectAs("honest", hello(func(h *streampb.Hello) { h.Subscriber = "honest" }))
	honest.ack(honest.seq)
	for i := range hostile {
		s := w.connectAs("tenant", hello(func(h *streampb.Hello) { h.Subscriber = fmt.Sprint(i) }))
		if i%2 == 0 {
			go func() {
				for {
					if _, err := s.Recv(); err != nil {
						return
					}
				}
			}()
		}
	}
	live := func() bool {
		return slices.ContainsFunc(w.node.Subscribers(), func(s streamer.SubscriberStatus) bool { return s.Name == "honest/honest" && s.Live })
	}
	w.until("the honest one is on the live path", live)
	heap := func() int {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	var most atomic.Int64
	before := heap()
	for i := range n {
		w.write(1, size)
		honest.events(1)
		honest.ack(honest.seq)
		if !live() {
			t.Fatalf("event %d: the honest session has left the live path", i)
		}
		if i%100 == 0 {
			most.Store(max(most.Load(), int64(heap()-before-i*(size+1000)))) // without the log, which is in memory here
		}
	}
	if held := w.node.Hub().Load().Held; held > budget || held < budget/4 {
		t.Errorf("%d bytes are held", held)
	}
	// A margin for transports, whose windows and buffers are bounded by themselves, and for the
	// ring.
	if used := int(most.Load()); used > budget+64<<20 {
		t.Errorf("the heap has grown by %d MiB", used>>20)
	}
	t.Logf("the heap has grown by %d MiB, %d MiB are held", most.Load()>>20, w.node.Hub().Load().Held>>20)
}

// The names of event streams belong to identities, too.
func TestNameOfAnEventStreamBelongsToItsIdentity(t *testing.T) {
	w := newWorld(t, options{})
	web := httptest.NewServer(closed(t, "victim", "tenant").Handler(gateway.NewEvents(gateway.EventsConfig{Cluster: "c"}, w.node)))
	t.Cleanup(web.Close)
	t.Cleanup(web.CloseClientConnections)
	open := func(identity string) *bufio.Scanner {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, web.URL+"/v1/events?subscriber=page", nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer "+identity)
		response, err := web.Client().Do(request)
		if err != nil || response.StatusCode != http.StatusOK {
			t.Fatalf("%v, %v", response, err)
		}
		t.Cleanup(func() { _ = response.Body.Close() })
		return bufio.NewScanner(response.Body)
	}
	victim := open("victim")
	for range 3 {
		open("tenant")
	}
	if rows := w.rows(); !slices.Equal(rows, []string{"tenant/page", "victim/page"}) {
		t.Errorf("%q", rows)
	}
	w.write(1, 0)
	for victim.Scan() {
		switch line := victim.Text(); {
		case strings.HasPrefix(line, "event: error"):
			t.Fatal("the owner's stream has ended")
		case strings.HasPrefix(line, "data: "):
			return
		}
	}
	t.Errorf("no event, %v", victim.Err())
}

// An absentStore refuses claims while it is away, and holds up the final checkpoint of a
// subscriber.
type absentStore struct {
	streamer.Checkpoints

	away   atomic.Bool
	once   sync.Once
	saving chan struct{} // closed when that is to be saved
	let    chan struct{} // closed: it may be saved
}

func (s *absentStore) ClaimName(ctx context.Context, c checkpoint.Claim, first checkpoint.Checkpoint) (checkpoint.Checkpoint, error) {
	if s.away.Load() {
		return checkpoint.Checkpoint{}, errors.New("away")
	}
	return s.Checkpoints.ClaimName(ctx, c, first)
}

func (s *absentStore) Save(ctx context.Context, all []checkpoint.Checkpoint) []error {
	if slices.ContainsFunc(all, func(c checkpoint.Checkpoint) bool {
		return c.Subscriber == "gone" && c.Reason == checkpoint.ReasonFinal
	}) {
		s.once.Do(func() { close(s.saving) })
		select {
		case <-s.let:
		case <-ctx.Done():
		}
	}
	return s.Checkpoints.Save(ctx, all)
}

// Nobody is told of a process that was replaced where that was the same process, or had gone
// already.
func TestReplacedByNobodyIsNotTold(t *testing.T) {
	store := &absentStore{saving: make(chan struct{}), let: make(chan struct{})}
	board := notice.NewBoard(notice.Config{Node: "n"})
	w := newWorld(t, options{
		node:  streamer.NodeConfig{Board: board, CheckpointTimeout: patience},
		store: func(s streamer.Checkpoints) streamer.Checkpoints { store.Checkpoints = s; return store },
	})
	release := sync.OnceFunc(func() { close(store.let) })
	t.Cleanup(release)
	told := func(s *session, what string) {
		t.Helper()
		for got := false; !got; { // whatever is told of the beginning comes before an event
			r, err := s.take()
			if err != nil {
				t.Fatal(err)
			}
			if n := r.GetNotice(); n.GetKind() == notice.KindSubscriberReplaced {
				t.Errorf("%s: it is told %s", what, n.GetText())
			}
			got = len(r.GetBatch().GetEvents()) > 0
		}
		posted, _ := board.Since(0)
		for _, n := range posted {
			if n.Kind == notice.KindSubscriberReplaced {
				t.Errorf("%s: operators are told %s", what, n.Text)
			}
		}
	}
	// The same process connects again, while the store is away.
	first := w.connect(hello(nil))
	known := func(process string) *streampb.Hello {
		return hello(func(h *streampb.Hello) {
			h.ProcessId, h.Cluster, h.PartitionCount, h.Position = process, "c", partitions, first.to
		})
	}
	store.away.Store(true)
	again := w.open(t.Context(), known("p"))
	next(again, (*streampb.ConnectResponse).GetWelcome)
	w.write(1, 0)
	told(again, "the same process")
	store.away.Store(false)

	// Another process connects, while the checkpoint of one that has gone is being saved.
	ctx, goes := context.WithCancel(t.Context())
	gone := w.open(ctx, hello(func(h *streampb.Hello) { h.Subscriber = "gone" }))
	next(gone, (*streampb.ConnectResponse).GetBatch)
	w.write(1, 0)
	gone.ack(next(gone, func(r *streampb.ConnectResponse) *streampb.Batch {
		if len(r.GetBatch().GetEvents()) > 0 {
			return r.GetBatch()
		}
		return nil
	}).GetSeq())
	goes()
	<-store.saving
	other := w.open(t.Context(), hello(func(h *streampb.Hello) { h.Subscriber, h.ProcessId = "gone", "q" }))
	next(other, (*streampb.ConnectResponse).GetWelcome)
	release()
	w.write(1, 0)
	told(other, "after one that has gone")
}
