package node

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/client"
	devmongo "github.com/mongostream/streamer/dev/mongo"
)

// A node assigns documents to partitions by the format that its cluster's origin names, so that a
// cluster of an earlier version keeps its partitions and nodes of both versions agree on them.
func TestPartitionsAreThoseOfTheOrigin(t *testing.T) {
	t.Parallel()
	for name, format := range map[string]change.IDFormat{"an earlier cluster": change.FirstIDFormat, "a new cluster": change.LatestIDFormat} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, devmongo.Config{})
			if format == change.FirstIDFormat {
				r.insert("before")
				if _, err := r.store.Create(t.Context(), checkpoint.Origin{
					Cluster: "earlier", Incarnation: 1, Partitions: partitions, Source: "replicaset", Start: r.written().Next(), At: time.Now(), By: "n",
				}); err != nil {
					t.Fatal(err)
				}
			}
			n := r.begin()
			want, differ := make(map[int]change.Partition), false
			for i := range 8 { // code whose scope has a number is in another partition in the first format
				id := bson.CodeWithScope{Code: "f", Scope: bson.D{{Key: "n", Value: int32(i)}}}
				doc, err := bson.Marshal(bson.D{{Key: "_id", Value: id}, {Key: "i", Value: i}})
				if err != nil {
					t.Fatal(err)
				}
				e, err := change.Snapshotted(change.Namespace{DB: "shop", Coll: "orders"}, doc, change.Timestamp{T: 1})
				if err != nil {
					t.Fatal(err)
				}
				first, _ := change.FirstIDFormat.Partitioner(partitions).Of(&e)
				latest, _ := change.LatestIDFormat.Partitioner(partitions).Of(&e)
				want[i] = latest
				if format == change.FirstIDFormat {
					want[i] = first
				}
				differ = differ || first != latest
				if _, err := r.coll("orders").InsertOne(t.Context(), bson.Raw(doc)); err != nil {
					t.Fatal(err)
				}
			}
			n.until("all documents have come", func() bool { return n.count("insert") >= len(want) })
			for _, e := range n.changes() {
				i := int(e.event.Lookup("fullDocument", "i").AsInt64())
				if e.partition != int(want[i]) {
					t.Errorf("document %d came in partition %d, want %d", i, e.partition, want[i])
				}
			}
			if !differ {
				t.Error("the formats agree on all documents")
			}
		})
	}
}

// mixed are _ids that are easily taken for each other: of equal bytes, of equal text, of values
// that are nearly equal.
func mixed() []any {
	tenth, _ := bson.ParseDecimal128("0.1")
	return []any{
		int64(5), bson.DateTime(5), bson.Timestamp{I: 5}, "5", nil, bson.MinKey{}, bson.MaxKey{}, "\xff", "\xfe", "\ufffd",
		bson.Binary{Data: []byte("ab")}, bson.Binary{Subtype: 4, Data: []byte("ab")}, "ab", bson.JavaScript("ab"),
		0.1, tenth, bson.D{{Key: "a", Value: int32(1)}}, bson.D{{Key: "a", Value: "1"}}, bson.D{{Key: "a", Value: int32(1)}, {Key: "b", Value: int32(2)}},
		bson.D{{Key: "b", Value: int32(2)}, {Key: "a", Value: int32(1)}}, int64(1<<53 + 1), int64(1<<53 + 2), strings.Repeat("x", 2000), strings.Repeat("x", 2000) + "y",
	}
}

// again are _ids that MongoDB considers equal to some of mixed, by their index.
func again() map[int]any {
	of := func(text string) bson.Decimal128 {
		d, err := bson.ParseDecimal128(text)
		if err != nil {
			panic(err)
		}
		return d
	}
	return map[int]any{
		0: of("5.00"), 3: bson.Symbol("5"), 16: bson.D{{Key: "a", Value: of("1.0")}}, 18: bson.D{{Key: "a", Value: 1.0}, {Key: "b", Value: int64(2)}}, 20: of("9007199254740993"),
	}
}

// A mirror is what a consumer makes of the messages of a sink that knows documents by their keys
// only.
type mirror struct {
	mu   sync.Mutex
	docs map[string]int // the field n by key
	took map[int]int    // messages by n
}

// take takes a message: an event in relaxed Extended JSON, or nothing for a tombstone. An empty key
// is that of the event itself.
func (m *mirror) take(key string, value []byte) {
	var e struct {
		Key  string          `json:"key"`
		Op   string          `json:"operationType"`
		Full struct{ N int } `json:"fullDocument"`
	}
	if len(value) > 0 {
		if err := json.Unmarshal(value, &e); err != nil {
			panic(fmt.Sprintf("%v: %s", err, value))
		}
	}
	if key == "" {
		key = e.Key
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.docs == nil {
		m.docs, m.took = make(map[string]int), make(map[int]int)
	}
	if len(value) == 0 || e.Op == "delete" {
		delete(m.docs, key)
		return
	}
	m.docs[key] = e.Full.N
	m.took[e.Full.N]++
}

// equals reports whether the mirror has the documents of a collection, each under a key of its own.
func (m *mirror) equals(t *testing.T, coll *mongo.Collection) bool {
	t.Helper()
	cursor, err := coll.Find(t.Context(), bson.D{})
	var docs []struct{ N int }
	if err == nil {
		err = cursor.All(t.Context(), &docs)
	}
	if err != nil {
		t.Fatal(err)
	}
	var want []int
	for _, d := range docs {
		want = append(want, d.N)
	}
	slices.Sort(want)
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Equal(slices.Sorted(maps.Values(m.docs)), want)
}

// change inserts documents of all mixed _ids and calls seen; then it deletes half of them, inserts
// some again with _ids that are equal and of other types, and replaces one.
func (r *rig) mixedChanges(seen func()) {
	r.Helper()
	ok := func(err error) {
		r.Helper()
		if err != nil {
			r.Fatal(err)
		}
	}
	orders, ids := r.coll("orders"), mixed()
	for i, id := range ids {
		_, err := orders.InsertOne(r.Context(), bson.D{{Key: "_id", Value: id}, {Key: "n", Value: i}})
		ok(err)
	}
	for i, id := range again() { // which are taken
		if _, err := orders.InsertOne(r.Context(), bson.D{{Key: "_id", Value: id}, {Key: "n", Value: 1000}}); !mongo.IsDuplicateKeyError(err) {
			r.Errorf("inserting %v beside %v: %v", id, ids[i], err)
		}
	}
	seen()
	for i, id := range ids {
		if _, comes := again()[i]; i%2 == 0 || comes {
			_, err := orders.DeleteOne(r.Context(), bson.D{{Key: "_id", Value: id}})
			ok(err)
		}
	}
	for i, id := range again() {
		_, err := orders.InsertOne(r.Context(), bson.D{{Key: "_id", Value: id}, {Key: "n", Value: 100 + i}})
		ok(err)
	}
	_, err := orders.ReplaceOne(r.Context(), bson.D{{Key: "_id", Value: "\xfe"}}, bson.D{{Key: "n", Value: 200}})
	ok(err)
	seen()
}

// toMirrors begins targets of each kind for a mirror, and returns the configuration of their sinks.
func toMirrors() map[string]func(*testing.T, *rig, *mirror) string {
	record := func(m *mirror) func(*kgo.Record) { // as what a compacted topic keeps says
		return func(r *kgo.Record) {
			if op := slices.IndexFunc(r.Headers, func(h kgo.RecordHeader) bool { return h.Key == "streamer-op" }); string(r.Headers[op].Value) != "delete" || r.Value == nil {
				m.take(string(r.Key), r.Value)
			}
		}
	}
	return map[string]func(*testing.T, *rig, *mirror) string{
		"kafka": func(t *testing.T, _ *rig, m *mirror) string { return toKafkaOf(t, record(m)) + ", tombstones: true}\n" },
		"kafka, transactions": func(t *testing.T, _ *rig, m *mirror) string {
			return toKafkaOf(t, record(m)) + ", tombstones: true, transactional: true}\n"
		},
		"nats": func(t *testing.T, _ *rig, m *mirror) string {
			return toNATSOf(t, func(got jetstream.Msg) { m.take(got.Headers().Get("Streamer-Key"), got.Data()) })
		},
		"http": func(t *testing.T, _ *rig, m *mirror) string {
			e := &endpoint{}
			e.answers(func(_ *http.Request, lines []string) int {
				for _, l := range lines {
					m.take("", []byte(l))
				}
				return http.StatusOK
			})
			return toHTTP(t, e)
		},
		"file": func(t *testing.T, _ *rig, m *mirror) string {
			path := filepath.Join(t.TempDir(), "out.jsonl")
			stop, stopped := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(stopped)
				for done, tick := 0, time.NewTicker(10*time.Millisecond); ; {
					text, _ := os.ReadFile(path)
					for end := strings.IndexByte(string(text[done:]), '\n'); end >= 0; end = strings.IndexByte(string(text[done:]), '\n') {
						m.take("", text[done:done+end])
						done += end + 1
					}
					select {
					case <-tick.C:
					case <-stop:
						return
					}
				}
			}()
			t.Cleanup(func() { close(stop); <-stopped })
			return "    type: file\n    file: {path: '" + path + "'}\n"
		},
		"stdout": func(_ *testing.T, r *rig, m *mirror) string {
			r.stdout = lines(func(l []byte) { m.take("", l) })
			return "    type: stdout\n"
		},
	}
}

// lines is a writer of whole lines.
type lines func(line []byte)

func (f lines) Write(b []byte) (int, error) {
	for l := range strings.Lines(string(b)) {
		f([]byte(l))
	}
	return len(b), nil
}

// Documents of mixed _ids are documents of their own at the target of every sink, also where the
// sink begins with a snapshot of them, and what is equal for MongoDB is one.
func TestMixedIDsThroughEverySink(t *testing.T) {
	t.Parallel()
	for name, start := range toMirrors() {
		for _, from := range []string{"earliest", "snapshot"} {
			t.Run(name+", "+from, func(t *testing.T) {
				t.Parallel()
				m := &mirror{}
				r := sinkRig(t, "    type: stdout\n")
				settings := start(t, r, m)
				r.sinkFrom(from, settings)
				var n *live
				r.mixedChanges(func() {
					if n == nil {
						n = r.beginWith(nil)
					}
					n.until("the target has the documents", func() bool { return m.equals(t, r.coll("orders")) })
				})
				m.mu.Lock()
				defer m.mu.Unlock()
				for i := range mixed() {
					if m.took[i] == 0 {
						t.Errorf("document %d did not come", i)
					}
				}
			})
		}
	}
}

// The clients know documents of mixed _ids by keys of their own, too: the Go client's live query,
// event streams, and pages of /v1/snapshot.
func TestMixedIDsThroughEveryClient(t *testing.T) {
	t.Parallel()
	r := newRig(t, devmongo.Config{})
	n := r.beginWith(nil)
	n.status()
	events := &mirror{}
	stream := r.events(n, "")
	go func() {
		for {
			m, err := stream.Next()
			if err != nil {
				return
			}
			if m.Event == "" && len(m.Data) > 0 {
				events.take("", m.Data)
			}
		}
	}()
	c, err := client.New(client.Config{Addresses: []string{n.service.Gateway()}, Start: client.StartSnapshot, Subscriber: "live", OnNotice: func(context.Context, client.Notice) error { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	query, err := c.Live(client.Subscription{ID: "all", DB: "shop", Coll: "orders"}, client.LiveCallbacks{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	r.mixedChanges(func() {
		n.until("the event stream has the documents", func() bool { return events.equals(t, r.coll("orders")) })
		n.until("the live query has the documents", func() bool {
			docs, whole := query.Documents()
			live := &mirror{docs: make(map[string]int)}
			for i, d := range docs {
				number, _ := d["n"].(json.Number).Int64()
				live.docs[fmt.Sprint(i)] = int(number)
			}
			return whole && live.equals(t, r.coll("orders"))
		})
		pages := &mirror{docs: make(map[string]int)}
		for from := ""; ; {
			_, text := n.answer(http.DefaultClient, "http://"+n.service.Addr()+"/v1/snapshot?db=shop&coll=orders&limit=5&from="+from)
			var page struct {
				Documents []struct{ N int }
				Keys      []string
				Next      string
			}
			if err := json.Unmarshal([]byte(text), &page); err != nil || len(page.Keys) != len(page.Documents) {
				t.Fatalf("%v: %s", err, text)
			}
			for i, d := range page.Documents {
				pages.docs[page.Keys[i]] = d.N
			}
			if from = page.Next; from == "" {
				break
			}
		}
		if !pages.equals(t, r.coll("orders")) {
			t.Errorf("the pages have %v", pages.docs)
		}
		events.mu.Lock()
		defer events.mu.Unlock()
		if !maps.Equal(pages.docs, events.docs) {
			t.Errorf("the pages have %v, the events %v", pages.docs, events.docs)
		}
	})
}
