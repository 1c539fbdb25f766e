package client_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mongostream/streamer/client"
	"github.com/mongostream/streamer/gateway/streampb"
)

// A watcher runs live queries against a node whose every answer the test gives.
type watcher struct {
	*journal

	t       *testing.T
	node    *node
	visit   *visit
	queries map[string]*client.LiveQuery
	ids     map[string]string // of the subscriptions, by what they were asked for as
}

// watch runs live queries of namespaces, db or db.coll, and welcomes their session.
func watch(t *testing.T, of ...string) *watcher {
	t.Helper()
	w := &watcher{journal: newJournal(), t: t, node: newNode(t), queries: make(map[string]*client.LiveQuery), ids: make(map[string]string)}
	cfg := config(w.journal, w.node.address)
	cfg.Start, cfg.OnPoison = client.StartSnapshot, func(context.Context, client.Poison) client.Decision { return client.Skip }
	c, err := client.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, ns := range of {
		db, coll, _ := strings.Cut(ns, ".")
		changed := func(client.Document) { w.signal() }
		if w.queries[ns], err = c.Live(client.Subscription{ID: ns, DB: db, Coll: coll}, client.LiveCallbacks{
			Added: changed, Removed: changed, Changed: func(_, d client.Document) { changed(d) }, Whole: w.signal,
		}); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	w.begin("a")
	return w
}

// begin welcomes a session.
func (w *watcher) begin(place string) {
	w.t.Helper()
	w.visit = w.node.welcomed(w.t, 2, place)
	for _, sub := range w.visit.hello.GetSubscriptions() {
		w.subscribed(sub)
	}
}

func (w *watcher) subscribed(sub *streampb.Subscription) {
	asked, _, _ := strings.Cut(sub.GetId(), "~")
	w.ids[asked] = sub.GetId()
}

// sends sends an event to a query.
func (w *watcher) sends(query, place, event string) {
	w.t.Helper()
	all := strings.Contains(event, `"drop`) || strings.Contains(event, `"rename"`)
	w.visit.acked(w.visit.sendBatch(&streampb.Batch{To: at(place), Events: []*streampb.Event{{
		Position: at(place), Change: []byte(event), Format: streampb.Format_FORMAT_JSON, Subscriptions: []string{w.ids[query]}, AllPartitions: all,
	}}}))
}

// document sends a document of a query's snapshot, or of an insert.
func (w *watcher) document(query, place, ns string, id, v int) {
	w.t.Helper()
	_, coll, _ := strings.Cut(ns, ".")
	w.sends(query, place, fmt.Sprintf(`{"operationType":"snapshot","ns":{"db":"shop","coll":"%s"},"documentKey":{"_id":%d},"fullDocument":{"_id":%d,"v":%d}}`, coll, id, id, v))
}

func (w *watcher) mark(query, place string, state streampb.Snapshot_State, reason string, namespaces ...string) {
	w.t.Helper()
	w.visit.acked(w.visit.sendBatch(&streampb.Batch{To: at(place), Snapshot: &streampb.Snapshot{
		Subscription: w.ids[query], State: state, Reason: reason, Namespaces: namespaces,
	}}))
}

func (w *watcher) lost(place string, namespaces ...string) {
	w.t.Helper()
	w.visit.acked(w.visit.sendBatch(&streampb.Batch{To: at(place), Loss: &streampb.Loss{Kind: streampb.Loss_KIND_RESYNC, Reason: "history_lost", Namespaces: namespaces}}))
}

// has waits until a query has documents, and is whole or not.
func (w *watcher) has(query string, whole bool, want ...string) {
	w.t.Helper()
	w.wait(w.t, fmt.Sprintf("%s to have %v, whole %t", query, want, whole), func() bool {
		all, is := w.queries[query].Documents()
		var got []string
		for _, d := range all {
			got = append(got, fmt.Sprint(d["_id"], "=", d["v"]))
		}
		slices.Sort(got)
		return is == whole && slices.Equal(got, want)
	})
}

// again waits until a query subscribes anew.
func (w *watcher) again(query string) {
	w.t.Helper()
	before := w.ids[query]
	for w.ids[query] == before {
		m := w.visit.next()
		w.visit.ack = max(w.visit.ack, m.GetAck().GetSeq())
		for _, sub := range m.GetSubscribe().GetSubscriptions() {
			w.subscribed(sub)
		}
	}
}

const (
	done      = streampb.Snapshot_STATE_DONE
	begun     = streampb.Snapshot_STATE_BEGUN
	cancelled = streampb.Snapshot_STATE_CANCELLED
)

// loaded begins two queries, of which the first has documents of both collections.
func loaded(t *testing.T) *watcher {
	t.Helper()
	w := watch(t, "shop", "shop.b")
	for query := range w.queries {
		w.mark(query, "b", begun, "start")
	}
	w.document("shop", "b", "shop.a", 1, 1)
	w.document("shop", "b", "shop.a", 2, 1)
	w.document("shop", "b", "shop.b", 3, 1)
	w.has("shop", false, "1=1", "2=1", "3=1")
	w.mark("shop", "b", done, "start")
	w.mark("shop.b", "b", done, "start")
	w.has("shop", true, "1=1", "2=1", "3=1")
	w.has("shop.b", true)
	return w
}

// A loss concerns the documents of its namespaces: they come again or are gone. Other documents
// stay, and other queries stay whole.
func TestLossConcernsItsNamespaces(t *testing.T) {
	w := loaded(t)
	w.lost("c", "shop.a")
	w.has("shop", false, "1=1", "2=1", "3=1")
	w.has("shop.b", true)
	w.mark("shop", "c", begun, "loss", "shop.a")
	w.document("shop", "d", "shop.a", 2, 5)
	w.mark("shop", "d", done, "operator", "shop.b")
	w.has("shop", false, "1=1", "2=5", "3=1")
	w.mark("shop", "d", done, "loss", "shop.a")
	w.has("shop", true, "2=5", "3=1")
}

// The end of a snapshot says nothing of what was lost later. An operator's snapshot brings what is
// there already.
func TestSnapshotEndsWhatWasLostBefore(t *testing.T) {
	w := loaded(t)
	w.mark("shop", "c", begun, "operator")
	w.has("shop", true, "1=1", "2=1", "3=1")
	w.lost("e")
	w.mark("shop", "e", cancelled, "operator")
	w.visit.close(errBroken)
	w.begin("d") // a session of which the one before knew more
	w.mark("shop", "d", done, "operator")
	w.has("shop", false, "1=1", "2=1", "3=1")
	w.document("shop", "f", "shop.a", 1, 2)
	w.mark("shop", "f", done, "loss")
	w.has("shop", true, "1=2")
}

// A collection that is dropped, renamed or renamed over takes its documents with it; those of
// others stay.
func TestReplacedCollections(t *testing.T) {
	w := loaded(t)
	w.document("shop", "c", "shop.draft", 7, 7)
	w.lost("c", "shop.a")
	w.sends("shop", "d", `{"operationType":"rename","ns":{"db":"shop","coll":"draft"},"to":{"db":"shop","coll":"a"}}`)
	w.has("shop", false, "3=1")
	w.document("shop", "d", "shop.a", 7, 7)
	w.mark("shop", "d", done, "loss")
	w.has("shop", true, "3=1", "7=7")
	w.sends("shop", "e", `{"operationType":"drop","ns":{"db":"shop","coll":"b"}}`)
	w.has("shop", true, "7=7")
	w.sends("shop", "f", `{"operationType":"dropDatabase","ns":{"db":"shop"}}`)
	w.has("shop", true)
}

// What does not say how a document is makes the query not whole, and the documents are read again.
func TestUnclearChangesAreReadAgain(t *testing.T) {
	key := `"ns":{"db":"shop","coll":"a"},"documentKey":{"_id":1}`
	for name, event := range map[string]string{
		"a path with dots below 6.1":  `{"operationType":"update",` + key + `,"updateDescription":{"updatedFields":{"v.w":2},"removedFields":[],"truncatedArrays":[]}}`,
		"a path that does not fit":    `{"operationType":"update",` + key + `,"updateDescription":{"updatedFields":{"v.w":2},"removedFields":[]}}`,
		"an update that is too large": `{"operationType":"update",` + key + `,"incomplete":true}`,
		"an insert that is too large": `{"operationType":"insert","ns":{"db":"shop","coll":"a"},"documentKey":{"_id":5},"incomplete":true}`,
		"an update of nothing":        `{"operationType":"update","ns":{"db":"shop","coll":"a"},"documentKey":{"_id":5},"updateDescription":{"updatedFields":{"v":2},"removedFields":[]}}`,
	} {
		t.Run(name, func(t *testing.T) {
			w := loaded(t)
			old := w.ids["shop"]
			w.sends("shop", "c", event)
			if _, whole := w.queries["shop"].Documents(); whole {
				t.Fatal("it is whole")
			}
			w.again("shop")
			w.visit.acked(w.visit.sendBatch(&streampb.Batch{To: at("d"), Snapshot: &streampb.Snapshot{Subscription: old, State: done}}))
			w.has("shop", false, "1=1", "2=1", "3=1")
			w.document("shop", "e", "shop.a", 1, 9)
			w.mark("shop", "e", done, "start")
			w.has("shop", true, "1=9")
			w.has("shop.b", true)
		})
	}
}

// A doubt ends with what says how the document is.
func TestDoubtEnds(t *testing.T) {
	for name, tc := range map[string]struct {
		event string
		then  []string
	}{
		"with a replacement": {`{"operationType":"replace","ns":{"db":"shop","coll":"a"},"documentKey":{"_id":1},"fullDocument":{"_id":1,"v":8}}`, []string{"1=8", "2=1", "3=1"}},
		"with a deletion":    {`{"operationType":"delete","ns":{"db":"shop","coll":"a"},"documentKey":{"_id":1}}`, []string{"2=1", "3=1"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := loaded(t)
			unclear := `{"operationType":"update","ns":{"db":"shop","coll":"a"},"documentKey":{"_id":1},"incomplete":true}`
			w.visit.acked(w.visit.sendBatch(&streampb.Batch{To: at("d"), Events: []*streampb.Event{
				{Position: at("c"), Change: []byte(unclear), Format: streampb.Format_FORMAT_JSON, Subscriptions: []string{w.ids["shop"]}},
				{Position: at("d"), Change: []byte(tc.event), Format: streampb.Format_FORMAT_JSON, Subscriptions: []string{w.ids["shop"]}},
			}}))
			w.has("shop", true, tc.then...)
		})
	}
}

// Where older changes will come again, the documents are read again: of what comes before them
// nothing is applied.
func TestRewoundQueriesAreReadAgain(t *testing.T) {
	w := loaded(t)
	old := w.ids["shop"]
	w.visit.loss(streampb.Loss_KIND_REWOUND, "a", 1)
	w.begin("a")
	if w.ids["shop"] == old {
		t.Fatal("it is subscribed to as before")
	}
	w.has("shop", false, "1=1", "2=1", "3=1")
	w.document("shop", "c", "shop.a", 2, 3)
	w.mark("shop", "c", done, "start")
	w.has("shop", true, "2=3")
}

// So it is where the number of partitions has changed: all of them begin at the earliest position
// again.
func TestRepartitionedQueriesAreReadAgain(t *testing.T) {
	w := loaded(t)
	w.visit.close(errBroken)
	w.visit = w.node.welcomed(t, 3, "b")
	w.again("shop")
	w.has("shop", false, "1=1", "2=1", "3=1")
	w.document("shop", "c", "shop.a", 2, 3)
	w.mark("shop", "c", done, "start")
	w.has("shop", true, "2=3")
}

// A node may believe that a query has no documents, until one has come.
func TestQueryIsFreshUntilItHasDocuments(t *testing.T) {
	w := watch(t, "shop", "shop.b")
	w.document("shop", "b", "shop.a", 1, 1)
	w.has("shop", false, "1=1")
	fresh := func() (all []string) {
		for _, sub := range w.visit.hello.GetSubscriptions() {
			if asked, _, _ := strings.Cut(sub.GetId(), "~"); sub.GetFresh() {
				all = append(all, asked)
			}
		}
		return all
	}
	if got := fresh(); !slices.Equal(got, []string{"shop.b", "shop"}) && !slices.Equal(got, []string{"shop", "shop.b"}) {
		t.Errorf("%v", got)
	}
	w.visit.close(errBroken)
	w.begin("b")
	if got := fresh(); !slices.Equal(got, []string{"shop.b"}) {
		t.Errorf("then %v", got)
	}
}

// A change that a program skips because it cannot be read may be of any document.
func TestSkippedChangeIsReadAgain(t *testing.T) {
	w := loaded(t)
	w.sends("shop", "c", `{"operationType":`)
	w.again("shop")
	w.has("shop", false, "1=1", "2=1", "3=1")
}
