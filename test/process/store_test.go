package process

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/internal/etcd"
	"github.com/mongostream/streamer/internal/etcd/etcdtest"
	"github.com/mongostream/streamer/internal/mongodb"
	"github.com/mongostream/streamer/internal/mongodb/checkpoints"
)

// printer is the subscriber whose checkpoints these tests look at: the standard output of the
// nodes.
const printer = "stdout"

// store is a store of checkpoints as it is seen from outside.
type store interface {
	// settings tell a node where the store is.
	settings() []string
	// Load returns the checkpoints of a subscriber.
	Load(ctx context.Context, subscriber string) ([]checkpoint.Checkpoint, error)
	// everything returns every key or document of the store with its value, byte for byte, without
	// what a claim of the partitions changes in MongoDB.
	everything() map[string]string
	// checkpoint, that of the printer in a partition, and origin return what is stored; the others
	// overwrite it with anything.
	checkpoint(p change.Partition) string
	setCheckpoint(p change.Partition, value string)
	origin() string
	setOrigin(value string)
	// restore brings back what everything returned.
	restore(all map[string]string)
}

// etcdStore keeps checkpoints in etcd.
type etcdStore struct {
	*etcd.Store

	lab       *lab
	endpoints []string
	prefix    string
	root      string
	client    *clientv3.Client
}

func newEtcdStore(l *lab, endpoints []string) *etcdStore {
	m := &etcdStore{lab: l, endpoints: endpoints, prefix: etcdtest.Prefix(l.t, endpoints)}
	m.root = m.prefix + "/" + l.cluster + "/"
	m.client = etcdtest.Client(l.t, endpoints)
	ours, err := etcd.Dial(l.t.Context(), etcd.Config{Endpoints: endpoints, Prefix: m.prefix, Cluster: l.cluster, DialTimeout: patience})
	if err != nil {
		l.t.Fatal(err)
	}
	m.Store = etcd.NewStore(ours, 0)
	l.t.Cleanup(func() {
		if err := errors.Join(ours.Close(), m.client.Close()); err != nil {
			l.t.Error(err)
		}
	})
	return m
}

func (m *etcdStore) settings() []string {
	return []string{"STREAMER_ETCD_ENDPOINTS=" + strings.Join(m.endpoints, ","), "STREAMER_ETCD_PREFIX=" + m.prefix}
}

func (m *etcdStore) everything() map[string]string {
	m.lab.t.Helper()
	resp, err := m.client.Get(context.Background(), m.prefix+"/", clientv3.WithPrefix())
	if err != nil {
		m.lab.t.Fatal(err)
	}
	all := make(map[string]string, len(resp.Kvs))
	for _, kv := range resp.Kvs {
		all[string(kv.Key)] = string(kv.Value)
	}
	return all
}

func (m *etcdStore) key(p change.Partition) string {
	return fmt.Sprintf("%scheckpoint/shared/%s/%05d", m.root, printer, p)
}

func (m *etcdStore) checkpoint(p change.Partition) string           { return m.everything()[m.key(p)] }
func (m *etcdStore) setCheckpoint(p change.Partition, value string) { m.put(m.key(p), value) }
func (m *etcdStore) origin() string                                 { return m.everything()[m.root+"origin"] }
func (m *etcdStore) setOrigin(value string)                         { m.put(m.root+"origin", value) }

func (m *etcdStore) put(key, value string) {
	m.lab.t.Helper()
	if _, err := m.client.Put(m.lab.t.Context(), key, value); err != nil {
		m.lab.t.Fatal(err)
	}
}

func (m *etcdStore) restore(all map[string]string) {
	m.lab.t.Helper()
	for key, value := range all {
		m.put(key, value)
	}
}

// mongoStore keeps checkpoints in MongoDB.
type mongoStore struct {
	*checkpoints.Store

	lab      *lab
	database *mongo.Database
}

func newMongoStore(l *lab) *mongoStore {
	m := &mongoStore{lab: l, database: l.client.Database("checkpoints_" + l.cluster)}
	l.t.Cleanup(func() { l.drop(m.database.Name()) })
	ours, err := mongodb.Dial(l.t.Context(), mongodb.Config{URI: l.uri, Application: "test"})
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(ours.Close)
	m.Store = checkpoints.NewStore(ours, m.database.Name(), l.cluster, 0)
	return m
}

func (m *mongoStore) settings() []string {
	return []string{"STREAMER_RELIABILITY_CHECKPOINT_DATABASE=" + m.database.Name()}
}

func (m *mongoStore) everything() map[string]string {
	m.lab.t.Helper()
	all := map[string]string{}
	for _, name := range []string{m.lab.cluster + ".checkpoints", m.lab.cluster + ".cluster"} {
		maps.Copy(all, m.documents(m.database.Collection(name)))
	}
	return all
}

func (m *mongoStore) documents(from *mongo.Collection) map[string]string {
	m.lab.t.Helper()
	cursor, err := from.Find(context.Background(), bson.D{})
	if err != nil {
		m.lab.t.Fatal(err)
	}
	var all []bson.D
	if err := cursor.All(context.Background(), &all); err != nil {
		m.lab.t.Fatal(err)
	}
	documents := make(map[string]string, len(all))
	for _, d := range all {
		id := fmt.Sprintf("%s/%v", from.Name(), d[0].Value)
		if d[0].Value == "owner" {
			continue
		}
		d = slices.DeleteFunc(d, func(e bson.E) bool { return e.Key == "epoch" || e.Key == "version" })
		raw, err := bson.Marshal(d)
		if err != nil {
			m.lab.t.Fatal(err)
		}
		documents[id] = string(raw)
	}
	return documents
}

func (m *mongoStore) id(p change.Partition) string { return fmt.Sprintf("shared/%s/%05d", printer, p) }

// The documents that hold a checkpoint and the origin, and their fields.
func (m *mongoStore) checkpoint(p change.Partition) string {
	return m.get("checkpoints", m.id(p), "checkpoint")
}

func (m *mongoStore) setCheckpoint(p change.Partition, value string) {
	m.set("checkpoints", m.id(p), "checkpoint", value)
}
func (m *mongoStore) origin() string         { return m.get("cluster", "origin", "origin") }
func (m *mongoStore) setOrigin(value string) { m.set("cluster", "origin", "origin", value) }

func (m *mongoStore) restore(all map[string]string) {
	m.lab.t.Helper()
	for key, raw := range all {
		name, _, _ := strings.Cut(key, "/")
		var d bson.D
		if err := bson.Unmarshal([]byte(raw), &d); err != nil {
			m.lab.t.Fatal(err)
		}
		if _, err := m.database.Collection(name).UpdateOne(m.lab.t.Context(), d[:1], bson.D{{Key: "$set", Value: d[1:]}}); err != nil {
			m.lab.t.Fatal(err)
		}
	}
}

func (m *mongoStore) get(kind string, id any, field string) string {
	m.lab.t.Helper()
	raw, err := m.database.Collection(m.lab.cluster+"."+kind).FindOne(m.lab.t.Context(), bson.D{{Key: "_id", Value: id}}).Raw()
	if err != nil {
		m.lab.t.Fatal(err)
	}
	return raw.Lookup(field).StringValue()
}

func (m *mongoStore) set(kind string, id any, field, value string) {
	m.lab.t.Helper()
	done, err := m.database.Collection(m.lab.cluster+"."+kind).UpdateOne(m.lab.t.Context(), bson.D{{Key: "_id", Value: id}},
		bson.D{{Key: "$set", Value: bson.D{{Key: field, Value: value}}}})
	if err != nil || done.MatchedCount != 1 {
		m.lab.t.Fatalf("set %s of %v: %v, %+v", field, id, err, done)
	}
}
