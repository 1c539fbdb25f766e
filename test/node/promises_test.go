package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/client"
	devmongo "github.com/mongostream/streamer/dev/mongo"
	"github.com/mongostream/streamer/dev/mongo/devmongotest"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gap"
	"github.com/mongostream/streamer/gateway/sse"
	"github.com/mongostream/streamer/internal/etcd/etcdtest"
)

// subscriberName is what the subscribers of the table are called that have a session of their own.
const subscriberName = "s"

// A transport is a way to follow a node.
type transport struct {
	name    string
	shared  bool // the node itself has the subscriber
	seconds bool // losses are told in whole seconds
	keeps   bool // the program keeps where it is itself
	begin   func(w *stage) (crash func())
}

// transports are all of them.
func transports() []transport {
	return []transport{
		{name: "gRPC all", seconds: true, begin: func(w *stage) func() { return w.beginClient(client.All) }},
		{name: "gRPC owned", seconds: true, begin: func(w *stage) func() { return w.beginClient(client.Owned) }},
		{name: "events", keeps: true, begin: (*stage).beginEvents},
		{name: "shared", shared: true},
	}
}

// A stage is a node, what leads to it, and a subscriber that follows it over a transport.
type stage struct {
	*rig
	*ledger

	transport transport
	settings  []string
	node      *live
	grpc, web *front
	link      *etcdtest.Link
	endpoint  string
	pages     *devmongotest.Pages
	crash     func()         // ends the subscriber without a word
	follower  *client.Client // of the gateways' protocol, nil over other transports

	keeping sync.Mutex
	at      string // the id up to which a client of events has dealt with everything
}

// newStage starts a node and its subscriber.
func newStage(t *testing.T, over transport, cfg devmongo.Config, settings ...string) *stage {
	t.Helper()
	w := &stage{rig: newRig(t, cfg), ledger: &ledger{}, transport: over, settings: settings}
	w.link, w.endpoint = etcdtest.NewLink(t, w.rig.endpoint())
	w.grpc, w.web = newFront(t), newFront(t)
	w.start()
	w.follow()
	w.until("the subscriber is there", func() bool {
		sessions := w.node.service.Node().Subscribers()
		return len(sessions) == 1 && !sessions[0].Position.IsZero()
	})
	return w
}

// start starts the node, or the one after it.
func (w *stage) start() {
	w.Helper()
	l := w.ledger
	if !w.transport.shared {
		l = nil
	}
	w.node = w.beginWith(l, append([]string{
		"STREAMER_ETCD_ENDPOINTS=" + w.endpoint, "STREAMER_RELIABILITY_SHUTDOWN_CHECKPOINT_TIMEOUT=300ms", "STREAMER_HANDOFF_OVERLAP=0s",
	}, w.settings...)...)
	w.grpc.lead(w.node.service.Gateway())
	w.web.lead(w.node.service.Addr())
}

// unhurried are settings of stages whose node stops as planned: its last checkpoints have all
// acknowledgements, however slow the machine is.
func unhurried() []string {
	return []string{"STREAMER_RELIABILITY_SHUTDOWN_CHECKPOINT_TIMEOUT=30s", "STREAMER_RELIABILITY_SHUTDOWN_FLUSH_TIMEOUT=10s"}
}

// kill ends the node so that nobody hears of it: neither its store, nor its subscribers.
func (w *stage) kill() {
	w.Helper()
	heal := w.link.Cut()
	w.grpc.lead("")
	w.web.lead("")
	if w.transport.shared {
		w.node.shared.Session().Close(nil)
	}
	_ = w.node.stop() // how it ends does not matter
	heal()
}

// follow begins a process of the subscriber. The node's own is there.
func (w *stage) follow() {
	w.Helper()
	if !w.transport.shared {
		w.crash = sync.OnceFunc(w.transport.begin(w))
		w.Cleanup(w.crash)
	}
}

// until waits for what the subscriber receives, or a look at the node tells.
func (w *stage) until(what string, holds func() bool) {
	w.Helper()
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for more := w.more(); !holds(); more = w.more() {
		select {
		case <-more:
		case <-look.C:
		case <-timeout.C:
			w.Fatalf("in vain: %s; %s; received %s; %v", what, w.node.tell(), w.ledger, w.failure())
		}
	}
}

// sees waits until every one of the documents has been told of.
func (w *stage) sees(want ...string) {
	w.Helper()
	w.until(fmt.Sprintf("%d documents arrive", len(want)), func() bool { return len(missing(w.ids(), want)) == 0 })
}

// name is what the subscriber is called.
func (w *stage) name() string {
	if w.transport.shared {
		return sharedName
	}
	return subscriberName
}

// saved waits until a checkpoint of the subscriber is later than the time in some partition. It
// begins right after what there was before.
func (w *stage) saved(at change.Timestamp) {
	w.Helper()
	w.until("a checkpoint is saved", func() bool {
		for _, c := range w.stored(w.name()) {
			if c.Position.Time.Compare(at) > 0 {
				return true
			}
		}
		return false
	})
}

// comesAgain writes down that what follows may have been received before, but for what the
// checkpoint has, or the program knows.
func (w *stage) comesAgain() {
	w.Helper()
	floor := make(map[change.Partition]change.Timestamp)
	w.keeping.Lock()
	own := w.at // of a client of events, which comes before its checkpoint
	w.keeping.Unlock()
	if own != "" {
		id, _, _ := strings.Cut(own, ".")
		ref, err := change.ParseRefText(id, w.node.service.Origin().Cluster)
		if err != nil {
			w.Fatal(err)
		}
		for p := range change.Partition(partitions) {
			floor[p] = ref.Time()
		}
		w.add(entry{again: true, floor: floor})
		return
	}
	for p, c := range w.stored(w.name()) {
		floor[p] = c.Position.Time
		if c.Position.IsProgress() { // it is before everything of that time
			floor[p] = c.Position.Time.Prev()
		}
	}
	w.add(entry{again: true, floor: floor})
}

// beginClient begins a client of the gateways' protocol.
func (w *stage) beginClient(partitions client.Partitions) (crash func()) {
	w.Helper()
	c, err := client.New(client.Config{
		Addresses: []string{w.grpc.address()}, Subscriber: subscriberName, Start: client.StartNow, Partitions: partitions,
		ReconnectWait: 10 * time.Millisecond, MaxReconnectWait: 200 * time.Millisecond, StopTimeout: time.Millisecond,
		OnNotice: func(ctx context.Context, n client.Notice) error {
			second := func(t time.Time) change.Timestamp { return change.Timestamp{T: uint32(t.Unix())} }
			switch n := n.(type) {
			case client.Resync:
				w.add(entry{loss: &loss{kind: "resync", reason: n.Reason, namespaces: n.Namespaces, advice: n.Advice, from: second(n.From), to: second(n.To)}})
			case client.Rewound:
				w.add(entry{loss: &loss{kind: "rewound", to: second(n.To)}})
			case client.Disconnected:
				w.end(n.Err)
				return nil
			default:
				return nil
			}
			return w.held(ctx.Done())
		},
	})
	if err != nil {
		w.Fatal(err)
	}
	w.follower = c
	err = c.Subscribe(client.Subscription{ID: "all", DB: "shop"}, func(ctx context.Context, c client.Change) error {
		p := int(c.Partition)
		if c.AllPartitions {
			p = everywhere
		}
		w.add(entryOf(p, c.Data))
		return w.held(ctx.Done())
	})
	if err != nil {
		w.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := c.Run(ctx); err != nil {
			w.end(err)
		}
	}()
	return func() {
		w.grpc.cut()
		cancel()
		<-done
	}
}

// beginEvents begins a client of events, which keeps the id up to which it has dealt with
// everything as an EventSource does.
func (w *stage) beginEvents() (crash func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		wait := time.NewTicker(20 * time.Millisecond)
		defer wait.Stop()
		for ctx.Err() == nil {
			if err := w.readEvents(ctx); err != nil && ctx.Err() == nil && !errors.Is(err, io.EOF) {
				w.end(err)
			}
			select {
			case <-wait.C:
			case <-ctx.Done():
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

func (w *stage) readEvents(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+w.web.address()+"/v1/events?db=shop&subscriber="+url.QueryEscape(subscriberName), nil)
	if err != nil {
		return err
	}
	w.keeping.Lock()
	req.Header.Set("Last-Event-ID", w.at)
	w.keeping.Unlock()
	req.Header.Set("Accept", "text/event-stream")
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	events := sse.NewReader(resp.Body)
	events.Progress = w.keep
	for {
		m, err := events.Next()
		if err != nil {
			return err
		}
		switch m.Event {
		case "error", "unavailable":
			var said struct{ Code fault.Code }
			_ = json.Unmarshal(m.Data, &said)
			return fault.Newf(said.Code, "%s", m.Data)
		case "resync", "rewound":
			w.add(entry{loss: lossOfJSON(m.Event, m.Data)})
		case "":
			p := everywhere
			var said struct{ Partition *int }
			if err := json.Unmarshal(m.Data, &said); err == nil && said.Partition != nil {
				p = *said.Partition
			}
			w.add(entryOfJSON(p, m.Data))
		}
		if err := w.held(ctx.Done()); err != nil {
			return err
		}
		w.keep(m.ID)
	}
}

// keep keeps the id up to which a client of events has dealt with everything.
func (w *stage) keep(id string) {
	w.keeping.Lock()
	defer w.keeping.Unlock()
	w.at = id
}

// lossOfJSON reads a loss of a transport of text.
func lossOfJSON(kind string, data []byte) *loss {
	type timestamp struct {
		Timestamp struct{ T, I uint32 } `json:"$timestamp"`
	}
	var said struct {
		Reason, Advice string
		Namespaces     []string
		From           timestamp `json:"lost_from"`
		To             timestamp `json:"lost_to"`
	}
	_ = json.Unmarshal(data, &said) // what is missing fails the test
	return &loss{
		kind: kind, reason: said.Reason, advice: said.Advice, namespaces: said.Namespaces,
		from: change.Timestamp(said.From.Timestamp), to: change.Timestamp(said.To.Timestamp),
	}
}

// A front is an address that leads to whatever is behind it at a time.
type front struct {
	listener net.Listener
	copying  sync.WaitGroup

	mu    sync.Mutex
	to    string
	conns map[net.Conn]struct{}
}

func newFront(t *testing.T) *front {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &front{listener: listener, conns: make(map[net.Conn]struct{})}
	f.copying.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			f.copying.Go(func() { f.pass(conn) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		f.lead("")
		f.copying.Wait()
	})
	return f
}

func (f *front) address() string { return f.listener.Addr().String() }

// pass leads a connection to what is behind the front.
func (f *front) pass(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	f.mu.Lock()
	to := f.to
	f.mu.Unlock()
	if to == "" {
		return
	}
	behind, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", to)
	if err != nil {
		return
	}
	defer func() { _ = behind.Close() }()
	_ = behind.(*net.TCPConn).SetReadBuffer(256 << 10) //nolint:forcetypeassert // it is; the system's own may hold all that a test sends
	f.mu.Lock()
	if f.to != to {
		f.mu.Unlock()
		return
	}
	f.conns[conn], f.conns[behind] = struct{}{}, struct{}{}
	f.mu.Unlock()
	var both sync.WaitGroup
	for _, pair := range [][2]net.Conn{{conn, behind}, {behind, conn}} {
		both.Go(func() {
			_, _ = io.Copy(pair[0], pair[1])
			_, _ = pair[0].Close(), pair[1].Close()
		})
	}
	both.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.conns, conn)
	delete(f.conns, behind)
}

// lead cuts what is connected, and leads what comes to an address; to none it is refused.
func (f *front) lead(to string) {
	f.mu.Lock()
	f.to = to
	f.mu.Unlock()
	f.cut()
}

// cut ends what is connected.
func (f *front) cut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for c := range f.conns {
		_ = c.Close()
	}
}

// A promise is kept over every transport.
type promise struct {
	name     string
	server   devmongo.Config
	pages    int // of shop.orders that are read until hold opens them; 0: all
	settings []string
	hold     func(t *testing.T, w *stage)
}

// TestPromises holds every transport to every promise: whatever happens, each change comes, in the
// order of its partition, or a loss in its place that bounds what is missing; and nothing comes
// again that a checkpoint has, or the program says that it has.
func TestPromises(t *testing.T) {
	t.Parallel()
	blind := devmongo.Config{Adjust: func(p *devmongo.Profile) { p.DenyLocal = true }}
	for _, promise := range []promise{
		{name: "crash of the node", hold: holdCrashOfNode},
		{name: "crash of the subscriber", hold: holdCrashOfSubscriber},
		{name: "wrapped log, resync", hold: holdWrappedLog},
		{name: "wrapped log, halt", settings: []string{"STREAMER_ON_HISTORY_LOST=halt"}, hold: holdHalt},
		{name: "suspect jump", server: blind, settings: []string{"STREAMER_RELIABILITY_GAP_DETECTION_MAX_GAP=10s"}, hold: holdSuspectJump},
		{name: "poison", server: devmongo.Config{OplogBytes: 256 << 20}, hold: holdPoison},
		{name: "rename onto", settings: []string{"STREAMER_MONGODB_WATCH=shop.orders"}, hold: holdRename},
		{name: "rewind", hold: holdRewind},
		{name: "rescan", settings: []string{"STREAMER_RESCAN_COLLECTIONS=shop.orders", "STREAMER_RESCAN_PAGE_SIZE=7"}, hold: holdRescan},
		{name: "crash within a rescan", pages: 4, settings: []string{"STREAMER_RESCAN_COLLECTIONS=shop.orders", "STREAMER_RESCAN_PAGE_SIZE=7"}, hold: holdCrashWithinRescan},
		{name: "writes elsewhere", hold: holdWritesElsewhere},
		{name: "refused tokens", server: devmongo.Config{Release: "9.0"}, hold: holdRefusedTokens},
		{name: "renames to another shard", server: moving(), hold: holdRenamesToAnotherShard},
		// Writing what it does not read takes minutes on a busy machine.
		{name: "slow subscriber", settings: []string{"STREAMER_GATEWAY_CREDIT_EVENTS=100", "STREAMER_HTTP_STALL_TIMEOUT=10m"}, hold: holdSlow},
	} {
		for _, over := range transports() {
			t.Run(promise.name+"/"+over.name, func(t *testing.T) {
				t.Parallel()
				server, pages := promise.server, devmongotest.NewPages("orders", promise.pages)
				if promise.pages > 0 {
					server.Adjust = func(p *devmongo.Profile) { p.BeforeReply = pages.Pass }
				}
				w := newStage(t, over, server, promise.settings...)
				w.pages = pages
				t.Cleanup(pages.Open)
				promise.hold(t, w)
				w.inOrder(t)
			})
		}
	}
}

func holdCrashOfNode(t *testing.T, w *stage) {
	t.Helper()
	at := w.now()
	first := w.series(0, 40)
	w.sees(first...)
	w.saved(at.Next())
	second := w.series(40, 60)
	w.sees(second...)
	w.kill()
	third := w.series(60, 80)
	if w.transport.shared { // the others know themselves where they are
		w.comesAgain()
	}
	w.start()
	w.sees(third...)
	last := w.series(80, 100)
	w.sees(last...)
	if !w.transport.shared {
		w.once(t, idsUpTo(100)...)
	}
	if len(w.losses()) > 0 {
		t.Errorf("received %s", w.ledger)
	}
}

func holdCrashOfSubscriber(t *testing.T, w *stage) {
	t.Helper()
	at := w.now()
	first := w.series(0, 40)
	w.sees(first...)
	w.saved(at.Next())
	w.hold()
	had := len(w.all())
	second := w.series(40, 60)
	w.until("it is dealing with something", func() bool { return len(w.all()) > had })
	if w.transport.shared { // it goes with its node
		w.kill()
	} else {
		w.crash()
	}
	third := w.series(60, 80)
	had = len(w.all())
	w.comesAgain()
	w.goOn()
	if w.transport.shared {
		w.start()
	} else {
		w.follow()
	}
	w.until("all that was not acknowledged arrives", func() bool {
		var after ledger
		after.add(w.all()[had:]...)
		return len(missing(after.ids(), slices.Concat(second, third))) == 0
	})
	if len(w.losses()) > 0 {
		t.Errorf("received %s", w.ledger)
	}
}

// wrapMeanwhile has the node go while the log wraps, and returns what nobody can tell of any more,
// and when that was, and what the log still has.
func (w *stage) wrapMeanwhile() (lost []string, times []change.Timestamp, kept []string) {
	w.Helper()
	at := w.now()
	w.sees(w.series(0, 40)...)
	w.saved(at.Next())
	w.kill()
	since := w.now().Next()
	lost = w.series(40, 60)
	for _, p := range w.positions(since) {
		times = append(times, p.Time)
	}
	begin := w.server.ClusterTime() + 1
	w.elsewhere(1)
	kept = w.series(60, 80)
	w.server.TruncateOplogBefore(begin)
	return lost, times, kept
}

func holdWrappedLog(t *testing.T, w *stage) {
	t.Helper()
	lost, times, kept := w.wrapMeanwhile()
	if w.transport.shared {
		w.comesAgain()
	}
	w.start()
	w.sees(kept...)
	w.sees(w.series(80, 100)...)
	w.once(t, idsUpTo(100)[60:]...)
	if len(missing(w.ids(), lost)) != len(lost) {
		t.Errorf("what the log has not any more came: %s", w.ledger)
	}
	losses := w.losses()
	if len(losses) != 1 || losses[0].kind != "resync" || losses[0].reason != string(gap.HistoryLost) || losses[0].advice == "" || !slices.Equal(losses[0].namespaces, []string{"shop.*"}) {
		t.Fatalf("received %s", w.ledger)
	}
	for _, at := range times {
		if !losses[0].bounds(at, w.transport.seconds) {
			t.Errorf("%s is outside of %s–%s", at, losses[0].from, losses[0].to)
		}
	}
	w.until("it is kept", func() bool { return len(w.kept()) == 1 })
}

// After a loss every subscriber gets the documents of the collections that are read again, each in
// its place among the changes: those that nobody can tell of any more among them, none that is
// gone, and none that is older than what came before.
func holdRescan(t *testing.T, w *stage) {
	t.Helper()
	for _, id := range []any{"text", 1.5, bson.NewObjectID()} { // of all types
		w.insert(id)
	}
	lost, _, _ := w.wrapMeanwhile()
	if _, err := w.coll("orders").DeleteOne(t.Context(), bson.D{{Key: "_id", Value: 41}}); err != nil {
		t.Fatal(err)
	}
	if w.transport.shared {
		w.comesAgain()
	}
	w.start()
	still := slices.DeleteFunc(append(slices.Clone(lost), "text", "0"), func(id string) bool { return id == "41" })
	read := func() (ids []string) {
		for _, e := range w.changes() {
			if e.op == change.SnapshotName {
				ids = append(ids, e.id)
			}
		}
		return ids
	}
	w.until("the documents are read again", func() bool { return len(missing(read(), still)) == 0 && len(read()) >= 82 })
	if gone := missing(read(), []string{"41"}); len(gone) == 0 {
		t.Errorf("a document that is gone is read: %s", w.ledger)
	}
	w.sees(w.series(80, 100)...)
	w.times(t, 1, idsUpTo(100)[80:]...)
	if len(w.losses()) != 1 {
		t.Errorf("received %s", w.ledger)
	}
}

// Whoever crashes while documents are read again gets those that it has not had.
func holdCrashWithinRescan(t *testing.T, w *stage) {
	t.Helper()
	lost, _, kept := w.wrapMeanwhile()
	if w.transport.shared {
		w.comesAgain()
	}
	w.start()
	read := func() (ids []string) {
		for _, e := range w.changes() {
			if e.op == change.SnapshotName {
				ids = append(ids, e.id)
			}
		}
		return ids
	}
	w.until("some documents are read again", func() bool { return len(read()) > 7 })
	w.saved(w.now().Prev())
	w.hold()
	if w.transport.shared {
		w.kill()
	} else {
		w.crash()
	}
	w.pages.Open()
	w.comesAgain()
	w.goOn()
	if w.transport.shared {
		w.start()
	} else {
		w.follow()
	}
	all := slices.Concat(idsUpTo(40), lost, kept)
	w.until("the others are read again", func() bool { return len(missing(read(), all)) == 0 })
	if len(w.losses()) != 1 {
		t.Errorf("received %s", w.ledger)
	}
}

func holdHalt(t *testing.T, w *stage) {
	t.Helper()
	_, times, _ := w.wrapMeanwhile()
	w.start()
	w.until("it is told why it is served no longer", func() bool {
		err := w.failure()
		return err != nil && strings.Contains(err.Error(), string(fault.LogHistoryLost))
	})
	w.series(80, 100)
	w.node.until("the log goes on", func() bool { return w.node.service.Log().Stats().End.Time.Compare(w.now()) >= 0 })
	for p, c := range w.stored(w.name()) {
		if c.Position.Time.Compare(times[0]) >= 0 {
			t.Errorf("the checkpoint of partition %d has moved to %s, over what was lost from %s on", p, c.Position, times[0])
		}
	}
	w.once(t, idsUpTo(40)...)
	if len(w.changes()) != 40 || len(w.losses()) > 0 {
		t.Errorf("received %s", w.ledger)
	}
}

func holdSuspectJump(t *testing.T, w *stage) {
	t.Helper()
	w.sees(w.series(0, 40)...)
	reread := func() bool { return w.node.metric("streamer_log_rereads_total") > 0 }
	rounds := 0
	for ; rounds < 3 || !reread() && rounds < 20; rounds++ { // MongoDB may write something of its own just before, so that nothing jumps
		w.fail(times(1), 91, "getMore")
		w.server.SetClockOffset(time.Duration(rounds+1) * time.Minute)
		w.sees(w.series(40+20*rounds, 60+20*rounds)...)
	}
	w.once(t, idsUpTo(40+20*rounds)...)
	if !reread() {
		t.Error("nothing was read again")
	}
	if len(w.losses()) > 0 || len(w.gaps()) > 0 {
		t.Errorf("received %s", w.ledger)
	}
}

func holdPoison(t *testing.T, w *stage) {
	t.Helper()
	w.insert("a", "b")
	w.insert(strings.Repeat("k", 9<<20))
	at := w.written()
	w.insert("c", "d")
	w.sees("a", "b", "c", "d")
	w.once(t, "a", "b", "c", "d")
	all := w.all()
	place := slices.IndexFunc(all, func(e entry) bool { return e.loss != nil })
	if place < 0 || len(w.losses()) != 1 {
		t.Fatalf("received %s", w.ledger)
	}
	for i, e := range all {
		if !e.again && e.loss == nil && (i < place) != (e.id == "a" || e.id == "b") {
			t.Errorf("%s is on the wrong side: %s", e.id, w.ledger)
		}
	}
	if l := all[place].loss; l.reason != string(gap.Poison) || l.advice == "" || !l.bounds(at, w.transport.seconds) {
		t.Errorf("the change of %s is lost: %s", at, w.ledger)
	}
}

func holdRename(t *testing.T, w *stage) {
	t.Helper()
	w.insert("a", "b", "c", "d")
	if _, err := w.coll("staging").InsertOne(t.Context(), bson.D{{Key: "_id", Value: "staged"}}); err != nil {
		t.Fatal(err)
	}
	w.command(bson.D{{Key: "renameCollection", Value: "shop.staging"}, {Key: "to", Value: "shop.orders"}, {Key: "dropTarget", Value: true}})
	w.insert("e", "f", "g", "h")
	w.sees("a", "b", "c", "d", "e", "f", "g", "h")
	w.once(t, "a", "b", "c", "d", "e", "f", "g", "h", "rename")
	all := slices.DeleteFunc(w.all(), func(e entry) bool { return e.again || e.op == "drop" })
	if len(all) != 10 || all[4].loss == nil || all[5].op != "rename" || all[5].partition != everywhere {
		t.Fatalf("received %s", w.ledger)
	}
	if l := all[4].loss; l.reason != string(gap.Renamed) || !slices.Equal(l.namespaces, []string{"shop.orders"}) {
		t.Errorf("received %s", w.ledger)
	}
}

func holdRewind(t *testing.T, w *stage) {
	t.Helper()
	w.sees(w.series(0, 40)...)
	to := w.now().Next()
	w.sees(w.series(40, 80)...)
	at := w.now()
	w.until("checkpoints are later", func() bool { return w.reached(w.name(), at) })
	keys := []checkpoint.Key{{Subscriber: w.name()}}
	if w.transport.shared {
		keys = nil
		for p := range change.Partition(partitions) {
			keys = append(keys, checkpoint.Key{Subscriber: w.name(), Shared: true, Partition: p})
		}
	}
	for _, key := range keys {
		if _, err := w.store.Rewind(t.Context(), key, change.At(to), "operator", "a test"); err != nil {
			t.Fatal(err)
		}
	}
	last := w.series(80, 100) // which is to be saved: the store says no
	count := func() map[string]int {
		counts := make(map[string]int)
		for _, id := range w.ids() {
			counts[id]++
		}
		return counts
	}
	w.until("everything since comes again", func() bool {
		counts := count()
		return !slices.ContainsFunc(idsUpTo(80)[40:], func(id string) bool { return counts[id] < 2 }) && len(missing(slices.Collect(maps.Keys(counts)), last)) == 0
	})
	w.times(t, 1, idsUpTo(40)...)
	w.times(t, 2, idsUpTo(80)[40:]...)
	if !w.transport.shared && (len(w.losses()) != 1 || w.losses()[0].kind != "rewound") {
		t.Errorf("received %s", w.ledger)
	}
	w.until("checkpoints go on", func() bool { return w.reached(w.name(), at.Next()) })
}

func holdSlow(t *testing.T, w *stage) {
	t.Helper()
	w.sees(w.series(0, 20)...)
	w.hold()
	const batches, batch = 40, 25
	text := strings.Repeat("x", 20<<10)
	var written []string
	for i := range batches {
		docs := make([]any, batch)
		for j := range docs {
			id := 20 + batch*i + j
			docs[j], written = bson.D{{Key: "_id", Value: id}, {Key: "a", Value: text}}, append(written, fmt.Sprint(id))
		}
		if _, err := w.coll("orders").InsertMany(t.Context(), docs); err != nil {
			t.Fatal(err)
		}
	}
	w.until("the session has left the live path", func() bool {
		sessions := w.node.service.Node().Subscribers()
		return len(sessions) == 1 && !sessions[0].Live
	})
	w.node.until("the log goes on", func() bool { return w.node.service.Log().Stats().End.Time.Compare(w.now()) >= 0 })
	// Of a client no more than its credit is on the way; a sink may have 16 MiB.
	most := max(100+batches*batch/2, 16<<20/len(text))
	if s := w.node.service.Node().Subscribers()[0]; s.Unacknowledged > most {
		t.Errorf("%+v", s)
	}
	w.goOn()
	w.sees(written...)
	w.once(t, idsUpTo(20+batches*batch)...)
	if len(w.losses()) > 0 {
		t.Errorf("received %s", w.ledger)
	}
}
