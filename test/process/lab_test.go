package process

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	devmongo "github.com/mongostream/streamer/dev/mongo"
	"github.com/mongostream/streamer/dev/mongo/devmongotest"
	"github.com/mongostream/streamer/internal/etcd/etcdtest"
)

// partitions is the number that the nodes of these tests have, unless a test says otherwise.
const partitions = 16

// backends are where marks can be kept.
func backends() []string { return []string{"etcd", "mongo"} }

// A lab is a MongoDB to write to and a store of marks, with what a node must be told of them.
type lab struct {
	t        testing.TB
	uri      string
	database string // what the test writes
	cluster  string
	client   *mongo.Client
	store    store
	settings []string
}

// newLab makes a lab with a development MongoDB and an embedded etcd of its own, or on the running
// servers that STREAMER_TEST_MONGODB_URI and STREAMER_TEST_ETCD_ENDPOINTS name.
func newLab(t testing.TB, backend string) *lab {
	t.Helper()
	return labOn(t, backend, devmongotest.URI(t))
}

// newDevLab makes a lab whose MongoDB is a development one in any case.
func newDevLab(t testing.TB, backend string) (*lab, *devmongo.Server) {
	t.Helper()
	server := devmongotest.Start(t, devmongo.Config{})
	return labOn(t, backend, server.URI()), server
}

// labOn makes a lab, with the etcd at endpoints if there are any. On a deployment that others use,
// only what the lab writes is read.
func labOn(t testing.TB, backend, uri string, endpoints ...string) *lab {
	t.Helper()
	name := strings.ToLower(rand.Text())
	l := &lab{t: t, uri: uri, database: "test_" + name, cluster: "c_" + name}
	l.client = connect(t, uri)
	t.Cleanup(func() { l.drop(l.database) })
	l.settings = []string{
		"STREAMER_MONGODB_URI=" + uri, "STREAMER_CLUSTER_ID=" + l.cluster, fmt.Sprintf("STREAMER_CLUSTER_PARTITIONS=%d", partitions),
		"STREAMER_NODE_ID=node", "STREAMER_HTTP_LISTEN=127.0.0.1:0", "STREAMER_GRPC_LISTEN=127.0.0.1:0", "STREAMER_RELIABILITY_CHECKPOINT_BACKEND=" + backend,
	}
	if devmongotest.Shared() {
		l.settings = append(l.settings, "STREAMER_MONGODB_WATCH="+l.database+".*")
	}
	switch backend {
	case "etcd":
		if len(endpoints) == 0 {
			endpoints = etcdtest.Endpoints(t)
		}
		l.store = newEtcdStore(l, endpoints)
	case "mongo":
		l.store = newMongoStore(l)
	}
	l.settings = append(l.settings, l.store.settings()...)
	return l
}

// connect returns a client that lives as long as the test. What it has written nobody can lose any
// more, and everybody sees.
func connect(t testing.TB, uri string) *mongo.Client {
	t.Helper()
	client, err := mongo.Connect(options.Client().ApplyURI(uri).SetAppName("test").SetWriteConcern(writeconcern.Majority()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Disconnect(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return client
}

func (l *lab) drop(database string) {
	if err := l.client.Database(database).Drop(context.Background()); err != nil {
		l.t.Errorf("drop %s: %v", database, err)
	}
}

// with returns the same lab with other settings for its nodes.
func (l *lab) with(settings ...string) *lab {
	other := *l
	other.settings = append(append([]string(nil), l.settings...), settings...)
	return &other
}

// node starts a node that writes what happens to its standard output.
func (l *lab) node(args ...string) *process {
	l.t.Helper()
	return start(l.t, launch{args: append([]string{"run", "-o", "json"}, args...), env: l.settings})
}

// printer starts a node that hands its events, as JSON, over to line.
func (l *lab) printer(line func(string), args ...string) *process {
	l.t.Helper()
	return start(l.t, launch{args: append([]string{"run", "-o", "json"}, args...), env: l.settings, line: line})
}

// insert inserts documents with the _ids from up to below to.
func (l *lab) insert(from, to int) {
	l.t.Helper()
	documents := make([]any, 0, to-from)
	for id := from; id < to; id++ {
		documents = append(documents, bson.D{{Key: "_id", Value: id}})
	}
	if _, err := l.collection().InsertMany(l.t.Context(), documents); err != nil {
		l.t.Fatal(err)
	}
}

func (l *lab) collection() *mongo.Collection {
	return l.client.Database(l.database).Collection("orders")
}

// stored returns the checkpoints of the nodes' standard output.
func (l *lab) stored() map[change.Partition]checkpoint.Checkpoint {
	l.t.Helper()
	list, err := l.store.Load(l.t.Context(), printer)
	if err != nil {
		l.t.Fatal(err)
	}
	stored := make(map[change.Partition]checkpoint.Checkpoint, len(list))
	for _, m := range list {
		stored[m.Partition] = m
	}
	return stored
}

// has reports whether there is a checkpoint of standard output in a partition.
func (l *lab) has(p change.Partition) bool {
	l.t.Helper()
	_, there := l.stored()[p]
	return there
}

// until waits for what a look at the outside tells.
func until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	if !comes(holds) {
		t.Fatalf("in vain: %s", what)
	}
}

// comes waits for what a look at the outside tells, and reports whether it came.
func comes(holds func() bool) bool {
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	for !holds() {
		select {
		case <-look.C:
		case <-timeout.C:
			return false
		}
	}
	return true
}

// An answer is what a node says to an HTTP request.
type answer struct {
	status int
	body   string
}

// ask sends a request; the zero answer says that nobody listens.
func ask(t testing.TB, url string, header ...string) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return answer{}
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return answer{}
	}
	return answer{resp.StatusCode, string(body)}
}

// decode reads a JSON object.
func decode[T any](t testing.TB, text string) (into T) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &into); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return into
}

func encode(t testing.TB, value any) string {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
