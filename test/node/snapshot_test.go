package node

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongostream/streamer/client"
	devmongo "github.com/mongostream/streamer/dev/mongo"
	"github.com/mongostream/streamer/dev/mongo/devmongotest"
	"github.com/mongostream/streamer/gateway/sse"
	"github.com/mongostream/streamer/internal/etcd/etcdtest"
	"github.com/mongostream/streamer/snapshot"
)

// A replica keeps collections as snapshots and changes tell them: by namespace and _id what the
// documents have as v.
type replica struct {
	mu        sync.Mutex
	docs      map[string]int
	newest    map[string]int // of each document, the greatest v so far
	older     []string       // what was told after something newer
	snapshots int
	marks     []client.Snapshot
	begun     int
	done      int
	resyncs   int
	err       error
}

func newReplica() *replica { return &replica{docs: make(map[string]int), newest: make(map[string]int)} }

// canonical is a JSON value as a key.
func canonical(raw []byte) string {
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		return err.Error()
	}
	text, _ := json.Marshal(v)
	return string(text)
}

// apply takes an event in relaxed Extended JSON.
func (r *replica) apply(event []byte, flagged bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var e struct {
		OperationType     string
		NS                struct{ DB, Coll string }
		DocumentKey       map[string]json.RawMessage
		FullDocument      *struct{ V int }
		UpdateDescription struct{ UpdatedFields struct{ V int } }
	}
	err := json.Unmarshal(event, &e)
	if err == nil && e.DocumentKey == nil {
		err = r.applyWhole(event)
	}
	if err != nil || e.DocumentKey == nil {
		r.err = errors.Join(r.err, err)
		return
	}
	if isSnapshot := e.OperationType == "snapshot"; isSnapshot != flagged {
		r.err = fmt.Errorf("event %s is flagged %v", event, flagged)
	}
	key := e.NS.DB + "." + e.NS.Coll + " " + canonical(e.DocumentKey["_id"])
	if e.OperationType == "delete" {
		delete(r.docs, key)
		return
	}
	v := e.UpdateDescription.UpdatedFields.V
	if e.FullDocument != nil {
		v = e.FullDocument.V
	}
	if e.OperationType == "snapshot" {
		r.snapshots++
	}
	if v < r.newest[key] {
		r.older = append(r.older, fmt.Sprintf("%s %s has %d after %d", e.OperationType, key, v, r.newest[key]))
	}
	r.docs[key], r.newest[key] = v, max(v, r.newest[key])
}

func (r *replica) mark(s client.Snapshot, done bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.marks = append(r.marks, s)
	if done {
		r.done++
	} else {
		r.begun++
	}
}

// look calls a function while the replica does not change.
func (r *replica) look(f func() bool) func() bool {
	return func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return f()
	}
}

// contents returns the collections as they are.
func contents(t *testing.T, colls ...*mongo.Collection) map[string]int {
	t.Helper()
	docs := make(map[string]int)
	for _, coll := range colls {
		cursor, err := coll.Find(t.Context(), bson.D{})
		if err != nil {
			t.Fatal(err)
		}
		for cursor.Next(t.Context()) {
			text, err := bson.MarshalExtJSON(cursor.Current, false, false)
			if err != nil {
				t.Fatal(err)
			}
			var doc struct {
				ID json.RawMessage `json:"_id"`
				V  int
			}
			if err := json.Unmarshal(text, &doc); err != nil {
				t.Fatal(err)
			}
			docs[coll.Database().Name()+"."+coll.Name()+" "+canonical(doc.ID)] = doc.V
		}
		if err := cursor.Err(); err != nil {
			t.Fatal(err)
		}
	}
	return docs
}

// mixedIDs are _ids of many types.
func mixedIDs(n int) (ids []any) {
	for i := range n {
		switch i % 6 {
		case 0:
			ids = append(ids, i)
		case 1:
			ids = append(ids, fmt.Sprint("text ", i))
		case 2:
			ids = append(ids, float64(i)+0.5)
		case 3:
			ids = append(ids, bson.NewObjectID())
		case 4:
			ids = append(ids, bson.D{{Key: "a", Value: i}, {Key: "b", Value: "x"}})
		case 5:
			ids = append(ids, bson.DateTime(int64(i)*1000))
		}
	}
	return ids
}

// churn changes documents of shop.orders until it is stopped.
func (r *rig) churn(ids []any) (stop func()) {
	r.Helper()
	coll := r.coll("orders")
	docs := make([]any, len(ids))
	for i, id := range ids {
		docs[i] = bson.D{{Key: "_id", Value: id}, {Key: "v", Value: i + 1}}
	}
	if _, err := coll.InsertMany(r.Context(), docs); err != nil {
		r.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var writing sync.WaitGroup
	writing.Go(func() {
		dice, v := rand.New(rand.NewPCG(1, 0)), len(ids)
		wait := time.NewTicker(2 * time.Millisecond)
		defer wait.Stop()
		for ctx.Err() == nil {
			v++
			is := bson.D{{Key: "_id", Value: ids[dice.IntN(len(ids))]}}
			var err error
			switch dice.IntN(4) {
			case 0:
				_, err = coll.DeleteOne(context.Background(), is)
			case 1: // one that is gone comes back
				_, err = coll.InsertOne(context.Background(), append(is, bson.E{Key: "v", Value: v}))
				if mongo.IsDuplicateKeyError(err) {
					err = nil
				}
			default:
				_, err = coll.UpdateOne(context.Background(), is, bson.D{{Key: "$set", Value: bson.D{{Key: "v", Value: v}}}})
			}
			if err != nil {
				r.Error(err)
				return
			}
			<-wait.C
		}
	})
	stop = sync.OnceFunc(func() { cancel(); writing.Wait() })
	r.Cleanup(stop)
	return stop
}

// begin begins a subscriber over gRPC, and returns how to subscribe more.
func (r *replica) begin(t *testing.T, cfg client.Config, subscriptions ...client.Subscription) *client.Client {
	t.Helper()
	cfg.ReconnectWait, cfg.MaxReconnectWait, cfg.StopTimeout = 10*time.Millisecond, 200*time.Millisecond, time.Millisecond
	cfg.OnNotice = func(_ context.Context, n client.Notice) error {
		switch n := n.(type) {
		case client.SnapshotBegun:
			r.mark(n.Snapshot, false)
		case client.SnapshotDone:
			r.mark(n.Snapshot, true)
		case client.Resync:
			r.mu.Lock()
			r.resyncs++
			r.mu.Unlock()
		}
		return nil
	}
	c, err := client.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, sub := range subscriptions {
		r.subscribe(t, c, sub)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := c.Run(ctx); err != nil {
			r.mu.Lock()
			r.err = err
			r.mu.Unlock()
		}
	})
	t.Cleanup(func() { cancel(); running.Wait() })
	return c
}

func (r *replica) subscribe(t *testing.T, c *client.Client, sub client.Subscription) {
	t.Helper()
	sub.Format = client.JSON
	if err := c.Subscribe(sub, func(_ context.Context, c client.Change) error {
		r.apply(c.Data, c.Snapshot)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// beginEvents begins a client of events, which reconnects as an EventSource does.
func (r *replica) beginEvents(t *testing.T, address, query string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var reading sync.WaitGroup
	reading.Go(func() {
		wait := time.NewTicker(20 * time.Millisecond)
		defer wait.Stop()
		for last := ""; ctx.Err() == nil; <-wait.C {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/v1/events?"+query, nil)
			if err != nil {
				return
			}
			req.Header.Set("Accept", "text/event-stream")
			req.Header.Set("Last-Event-ID", last)
			req.Close = true
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				continue
			}
			events := sse.NewReader(resp.Body)
			for m, err := events.Next(); err == nil; m, err = events.Next() {
				r.event(m)
			}
			last = events.LastID()
			_ = resp.Body.Close()
		}
	})
	t.Cleanup(func() { cancel(); reading.Wait() })
}

func (r *replica) event(m sse.Message) {
	switch m.Event {
	case "":
		r.apply(m.Data, bytes.Contains(m.Data, []byte(`"operationType":"snapshot"`)))
	case "snapshot":
		var mark struct {
			client.Snapshot

			State string
		}
		if err := json.Unmarshal(m.Data, &mark); err != nil {
			r.mu.Lock()
			r.err = err
			r.mu.Unlock()
		}
		r.mark(mark.Snapshot, mark.State == "done")
	case "resync":
		r.mu.Lock()
		r.resyncs++
		r.mu.Unlock()
	}
}

// equals waits until the replica is what the collections are, which nobody changes any more.
func (r *replica) equals(n *live, colls ...*mongo.Collection) {
	n.Helper()
	want := contents(n.T, colls...)
	n.until("the replica is what the collection is", r.look(func() bool { return maps.Equal(r.docs, want) }))
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil {
		n.Error(r.err)
	}
}

// A subscriber that begins with a snapshot has what the collection has, whatever is changed while
// it is read, and whichever node reads it.
func TestSnapshotGoesOnAtAnotherNode(t *testing.T) {
	t.Parallel()
	for _, over := range []string{"gRPC", "events"} {
		t.Run(over, func(t *testing.T) {
			t.Parallel()
			pages := devmongotest.NewPages("orders", 15) // more come when the first node has gone
			w := newRig(t, devmongo.Config{Adjust: func(p *devmongo.Profile) { p.BeforeReply = pages.Pass }},
				"STREAMER_RESCAN_PAGE_SIZE=7", "STREAMER_RESCAN_RATE=400", "STREAMER_RELIABILITY_SHUTDOWN_CHECKPOINT_TIMEOUT=300ms")
			t.Cleanup(pages.Open)
			const documents = 480
			stop := w.churn(mixedIDs(documents))
			link, endpoint := etcdtest.NewLink(t, w.endpoint())
			first := w.beginWith(nil, append(several("n1"), "STREAMER_ETCD_ENDPOINTS="+endpoint)...)
			second := w.beginWith(nil, several("n2")...)
			grpc, web := newFront(t), newFront(t)
			grpc.lead(first.service.Gateway())
			web.lead(first.service.Addr())
			r := newReplica()
			if over == "gRPC" {
				r.begin(t, client.Config{Addresses: []string{grpc.address()}, Subscriber: "s", Start: client.StartSnapshot},
					client.Subscription{ID: "events", DB: "shop", Coll: "orders"})
			} else {
				r.beginEvents(t, web.address(), url.Values{"db": {"shop"}, "coll": {"orders"}, "start": {"snapshot"}, "subscriber": {"s"}}.Encode())
			}
			first.until("some documents are read", r.look(func() bool { return r.snapshots > 60 }))
			first.until("a checkpoint has the progress", func() bool {
				saved, err := w.store.Load(t.Context(), "s")
				return err == nil && len(saved) == 1 && len(saved[0].Snapshots) == 1 && saved[0].Snapshots[0].Read > 0
			})
			heal := link.Cut() // and nobody hears of its end
			grpc.lead("")
			web.lead("")
			_ = first.stop()
			heal()
			r.mu.Lock()
			before, older := r.snapshots, len(r.older)
			if r.done > 0 || r.begun != 1 || r.marks[0].Subscription != "events" || r.marks[0].Reason != "start" || r.marks[0].Estimated == 0 {
				t.Errorf("%+v", r.marks)
			}
			r.mu.Unlock()
			pages.Open()
			grpc.lead(second.service.Gateway())
			web.lead(second.service.Addr())
			second.until("the snapshot is complete", r.look(func() bool { return r.done == 1 }))
			stop()
			r.equals(second, w.coll("orders"))
			r.mu.Lock()
			defer r.mu.Unlock()
			if older > 0 || over == "gRPC" && len(r.older) > 0 { // events come again after a crash, from the last id on
				t.Errorf("%q", r.older)
			}
			if last := r.marks[len(r.marks)-1]; last.Reason != "start" || last.Read < last.Estimated/2 {
				t.Errorf("%+v", r.marks)
			}
			if over == "gRPC" && r.snapshots-before > documents-before/2 {
				t.Errorf("%d documents before and %d after the end of the node: it began again", before, r.snapshots-before)
			}
		})
	}
}

// Where something is known of a subscriber it resumes; what it subscribes to later it gets from the
// beginning, and a loss has the documents come again that it concerns. Everything means what is
// watched.
func TestSnapshotsOfLaterSubscriptionsAndAfterALoss(t *testing.T) {
	t.Parallel()
	w := newRig(t, devmongo.Config{}, "STREAMER_RELIABILITY_SHUTDOWN_CHECKPOINT_TIMEOUT=300ms")
	insert := func(coll *mongo.Collection, from, to int) {
		for i := from; i < to; i++ {
			if _, err := coll.InsertOne(t.Context(), bson.D{{Key: "_id", Value: i}, {Key: "v", Value: i}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	orders, items := w.coll("orders"), w.coll("items")
	insert(orders, 1, 30)
	insert(items, 1, 20)
	w.elsewhere(5)
	written := w.now().Prev()
	node := w.beginWith(nil)
	front := newFront(t)
	front.lead(node.service.Gateway())
	r, later, everything := newReplica(), newReplica(), newReplica()
	c := r.begin(t, client.Config{Addresses: []string{front.address()}, Subscriber: "s", Start: client.StartSnapshot},
		client.Subscription{ID: "orders", DB: "shop", Coll: "orders", OnLoss: client.LossSnapshot})
	everything.begin(t, client.Config{Addresses: []string{front.address()}, Subscriber: "all", Start: client.StartSnapshot},
		client.Subscription{ID: "all"})
	node.until("the snapshot is complete", r.look(func() bool { return r.done == 1 && r.snapshots == 29 }))
	node.until("everything is complete", everything.look(func() bool { return everything.done == 1 && everything.snapshots == 48 }))
	everything.equals(node, orders, items)

	later.subscribe(t, c, client.Subscription{ID: "items", DB: "shop", Coll: "items"})
	node.until("the later one is complete", r.look(func() bool { return r.done == 2 && r.marks[len(r.marks)-1].Subscription == "items" }))
	later.equals(node, items)

	var told struct {
		Subscribers []struct {
			Subscriber string
			Snapshots  []struct {
				Subscription string
				Done         bool
				Read         int
			}
			Session *struct {
				Snapshots []struct{ Read, Estimated int }
			}
		}
	}
	node.until("the node tells of them", func() bool {
		resp, err := http.Get("http://" + node.service.Addr() + "/v1/subscribers")
		if err != nil {
			return false
		}
		defer func() { _ = resp.Body.Close() }()
		told.Subscribers = nil
		if err := json.NewDecoder(resp.Body).Decode(&told); err != nil {
			t.Fatal(err)
		}
		for _, s := range told.Subscribers {
			if s.Subscriber == "s" && len(s.Snapshots) == 2 && s.Session != nil && len(s.Session.Snapshots) == 2 && s.Session.Snapshots[0].Estimated == 29 {
				return s.Snapshots[0].Done && s.Snapshots[1].Done && s.Snapshots[0].Read == 29
			}
		}
		return false
	})

	done := func(subscriber string, snapshots int) bool {
		saved, err := w.store.Load(t.Context(), subscriber)
		return err == nil && len(saved) == 1 && len(saved[0].Snapshots) == snapshots &&
			!slices.ContainsFunc(saved[0].Snapshots, func(p snapshot.Progress) bool { return !p.Done })
	}
	node.until("they are saved", func() bool {
		return w.reached("s", written) && w.reached("all", written) && done("s", 2) && done("all", 1)
	})
	front.lead("")
	_ = node.stop()
	insert(orders, 30, 40)
	begin := w.server.ClusterTime() + 1
	w.elsewhere(1)
	insert(orders, 40, 45)
	w.server.TruncateOplogBefore(begin)
	node = w.beginWith(nil)
	front.lead(node.service.Gateway())
	node.until("orders are read again", r.look(func() bool { // a mark that was not acknowledged comes again, too
		last := r.marks[len(r.marks)-1]
		return r.resyncs == 1 && r.snapshots == 29+44 && last.Reason == "loss" && last.Subscription == "orders" && last.Read == 44
	}))
	r.equals(node, orders)
	node.until("the others know of the loss", everything.look(func() bool { return everything.resyncs == 1 }))
	everything.mu.Lock()
	defer everything.mu.Unlock()
	if later.mu.Lock(); everything.snapshots != 48 || later.snapshots != 19 {
		t.Errorf("%d and %d documents", everything.snapshots, later.snapshots)
	}
	later.mu.Unlock()
}

// Subscribers that want a collection while it is being read join in at the next page and get the
// pages before it afterwards: many of them cost MongoDB little more than one.
func TestOneScanServesManySubscribers(t *testing.T) {
	t.Parallel()
	const documents, subscribers = 500, 25
	joined := make(chan struct{})
	w := newRig(t, devmongo.Config{Adjust: func(p *devmongo.Profile) {
		p.BeforeReply = func(command, namespace string) {
			if command == "find" && namespace == "shop.orders" {
				<-joined // the first page arrives when all have joined
			}
		}
	}}, "STREAMER_RESCAN_PAGE_SIZE=50", "STREAMER_RESCAN_RATE=1000000")
	all := make([]any, documents)
	for i := range all {
		all[i] = bson.D{{Key: "_id", Value: i}, {Key: "v", Value: i + 1}}
	}
	if _, err := w.coll("orders").InsertMany(t.Context(), all); err != nil {
		t.Fatal(err)
	}
	node := w.beginWith(nil)
	replicas := make([]*replica, subscribers)
	for i := range replicas {
		replicas[i] = newReplica()
		replicas[i].begin(t, client.Config{Addresses: []string{node.service.Gateway()}, Subscriber: fmt.Sprint("s", i), Start: client.StartSnapshot},
			client.Subscription{ID: "orders", DB: "shop", Coll: "orders"})
	}
	for i, r := range replicas {
		node.until(fmt.Sprintf("subscriber %d joins", i), r.look(func() bool { return r.begun == 1 }))
	}
	before := w.server.Stats().DocumentsExamined // of the first page, which is asked for again while it is held
	close(joined)
	for i, r := range replicas {
		node.until(fmt.Sprintf("subscriber %d has everything", i), r.look(func() bool { return r.done == 1 }))
		r.mu.Lock()
		if len(r.docs) != documents || r.snapshots != documents || r.err != nil {
			t.Errorf("subscriber %d has %d documents of %d, %v", i, len(r.docs), r.snapshots, r.err)
		}
		r.mu.Unlock()
	}
	// A subscriber that is late for a page by a second reads the rest with a scan of its own, as
	// may happen on a busy machine. All of them would do so if scans were not shared.
	if examined := w.server.Stats().DocumentsExamined - before; examined > documents*subscribers/4 {
		t.Errorf("%d documents examined for %d subscribers of %d documents", examined, subscribers, documents)
	}
}

// An operator has a subscriber get documents again, pauses and cancels that, and is in the audit
// log.
func TestOperatorsSnapshots(t *testing.T) {
	t.Parallel()
	w := newRig(t, devmongo.Config{}, "STREAMER_RESCAN_PAGE_SIZE=5")
	for i := range 40 {
		if _, err := w.coll("orders").InsertOne(t.Context(), bson.D{{Key: "_id", Value: i}, {Key: "v", Value: i + 1}}); err != nil {
			t.Fatal(err)
		}
	}
	node := w.beginWith(nil)
	r := newReplica()
	r.begin(t, client.Config{Addresses: []string{node.service.Gateway()}, Subscriber: "s", Start: client.StartSnapshot},
		client.Subscription{ID: "orders", DB: "shop", Coll: "orders"}, client.Subscription{ID: "items", DB: "shop", Coll: "items"})
	node.until("the snapshots are complete", r.look(func() bool { return r.done == 2 }))
	operate := func(query string) (status, subscriptions int) {
		t.Helper()
		resp, err := http.Post("http://"+node.service.Addr()+"/v1/subscribers/snapshots?"+query, "", nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		var result struct{ Subscriptions int }
		if err := json.NewDecoder(resp.Body).Decode(&result); err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, result.Subscriptions
	}
	for query, want := range map[string]int{
		"subscriber=nobody": 404, "": 400, "subscriber=s&operation=burn": 400, "subscriber=s&namespace=shop": 400, "subscriber=s&operation=pause": 404, "subscriber=s&subscription=none": 404,
	} {
		if status, n := operate(query); status != want || n != 0 {
			t.Errorf("%q: %d, %d subscriptions", query, status, n)
		}
	}
	if status, n := operate("subscriber=s&namespace=shop.orders"); status != 200 || n != 1 {
		t.Errorf("%d, %d subscriptions", status, n)
	}
	node.until("the documents have come again", r.look(func() bool {
		return r.done == 3 && r.snapshots == 80 && r.marks[len(r.marks)-1].Reason == "operator"
	}))
	board, _ := node.service.Board().Since(0)
	recorded := 0
	for _, n := range board {
		if n.Kind == "operated" {
			recorded++
		}
	}
	if recorded != 4 {
		t.Errorf("%d records of operators", recorded)
	}
}

// A live query has the documents that match, kept up to date, whatever is changed; what it is not
// told of a loss it learns from a snapshot.
func TestLiveQueryEqualsTheCollection(t *testing.T) {
	t.Parallel()
	w := newRig(t, devmongo.Config{}, "STREAMER_RESCAN_PAGE_SIZE=7", "STREAMER_RESCAN_RATE=100000", "STREAMER_MONGODB_FULL_DOCUMENT=updateLookup")
	stop := w.churn(mixedIDs(60))
	node := w.beginWith(nil)
	c, err := client.New(client.Config{
		Addresses: []string{node.service.Gateway()}, Subscriber: "live", Start: client.StartSnapshot, OnNotice: func(context.Context, client.Notice) error { return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	has := make(map[string]bool)
	key := func(d client.Document) string { return fmt.Sprint(d["_id"]) }
	note := func(d client.Document, before, after bool) {
		mu.Lock()
		defer mu.Unlock()
		if has[key(d)] != before {
			t.Errorf("%v: there was %t, is %t", d, has[key(d)], after)
		}
		has[key(d)] = after
	}
	even, err := c.Live(client.Subscription{ID: "even", DB: "shop", Coll: "orders", Filter: "doc.v % 2 == 0"}, client.LiveCallbacks{
		Added: func(d client.Document) { note(d, false, true) }, Removed: func(d client.Document) { note(d, true, false) },
		Changed: func(_, d client.Document) { note(d, true, true) },
	})
	if err != nil {
		t.Fatal(err)
	}
	all, err := c.Live(client.Subscription{ID: "all", DB: "shop", Coll: "orders"}, client.LiveCallbacks{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := c.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); running.Wait() })
	whole := func(q *client.LiveQuery) bool { _, whole := q.Documents(); return whole }
	node.until("the queries are whole", func() bool { return whole(even) && whole(all) })
	nested := func(update bson.D) {
		t.Helper()
		if _, err := w.coll("orders").UpdateOne(t.Context(), bson.D{{Key: "_id", Value: "nested"}}, update); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.coll("orders").InsertOne(t.Context(), bson.D{{Key: "_id", Value: "nested"}, {Key: "v", Value: 2}, {Key: "a", Value: bson.D{{Key: "b", Value: bson.A{1, 2}}}}}); err != nil {
		t.Fatal(err)
	}
	nested(bson.D{{Key: "$set", Value: bson.D{{Key: "a.b.1", Value: 3}, {Key: "a.c.d", Value: 4}}}})
	stop()
	// The last change has a v of its own: who has that has all.
	nested(bson.D{{Key: "$unset", Value: bson.D{{Key: "a.c", Value: ""}}}, {Key: "$set", Value: bson.D{{Key: "v", Value: 4}}}})
	equals := func(q *client.LiveQuery, only func(v int) bool) func() bool {
		want := contents(t, w.coll("orders"))
		maps.DeleteFunc(want, func(_ string, v int) bool { return !only(v) })
		return func() bool {
			docs, _ := q.Documents()
			got := make(map[string]int)
			for _, d := range docs {
				id, _ := json.Marshal(d["_id"])
				n, _ := d["v"].(json.Number).Int64()
				got["shop.orders "+canonical(id)] = int(n)
			}
			return maps.Equal(got, want)
		}
	}
	node.until("even documents are there", equals(even, func(v int) bool { return v%2 == 0 }))
	node.until("all documents are there", equals(all, func(int) bool { return true }))
	docs, _ := all.Documents()
	i := slices.IndexFunc(docs, func(d client.Document) bool { return d["_id"] == "nested" })
	if a, _ := json.Marshal(docs[i]["a"]); string(a) != `{"b":[1,3]}` {
		t.Errorf("nested: %s", a)
	}
	docs, _ = even.Documents()
	want := make(map[string]bool)
	for _, d := range docs {
		want[key(d)] = true
	}
	node.until("the callbacks have told of the even documents", func() bool { // of the last one later than it is there
		mu.Lock()
		defer mu.Unlock()
		maps.DeleteFunc(has, func(_ string, there bool) bool { return !there })
		return maps.Equal(has, want)
	})
}

// A client that keeps its own progress gets a collection page by page, and goes on with the changes
// without a gap. When the log has wrapped it is told to start over.
func TestPagesAreFollowedByEvents(t *testing.T) {
	t.Parallel()
	for _, release := range []string{"4.4", "8.0"} {
		t.Run(release, func(t *testing.T) {
			t.Parallel()
			w := newRig(t, devmongo.Config{Release: release})
			stop := w.churn(mixedIDs(60))
			node := w.beginWith(nil)
			r := newReplica()
			get := func(query string) (status int, page struct {
				Documents      []json.RawMessage
				Next, Position string
			}) {
				t.Helper()
				resp, err := http.Get("http://" + node.service.Addr() + "/v1/snapshot?db=shop&coll=orders&limit=7&" + query)
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = resp.Body.Close() }()
				if err := json.NewDecoder(resp.Body).Decode(&page); err != nil {
					t.Fatal(err)
				}
				return resp.StatusCode, page
			}
			_, page := get("")
			first := page.Next
			for {
				for _, doc := range page.Documents {
					var d struct {
						ID json.RawMessage `json:"_id"`
						V  int
					}
					if err := json.Unmarshal(doc, &d); err != nil {
						t.Fatal(err)
					}
					r.docs["shop.orders "+canonical(d.ID)] = d.V
				}
				if page.Next == "" {
					break
				}
				var status int
				if status, page = get("from=" + page.Next); status != http.StatusOK {
					t.Fatalf("%d", status)
				}
			}
			r.beginEvents(t, node.service.Addr(), url.Values{"db": {"shop"}, "coll": {"orders"}, "Last-Event-ID": {page.Position}}.Encode())
			stop()
			want := contents(t, w.coll("orders"))
			node.until("the replica is what the collection is", r.look(func() bool { return maps.Equal(r.docs, want) }))
			if status, page := get("filter=" + url.QueryEscape(`doc._id == "none"`)); status != http.StatusOK || len(page.Documents) != 0 {
				t.Errorf("%d, %d documents", status, len(page.Documents))
			}
			for query, want := range map[string]int{"from=x": 400, "filter=%28": 400} {
				if status, _ := get(query); status != want {
					t.Errorf("%s: %d", query, status)
				}
			}
			w.elsewhere(1)
			w.server.TruncateOplogBefore(w.server.ClusterTime())
			node.until("the client is told to start over", func() bool { status, _ := get("from=" + first); return status == http.StatusGone })
		})
	}
}
