package devmongo_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	devmongo "github.com/mongostream/streamer/dev/mongo"
	"github.com/mongostream/streamer/dev/mongo/devmongotest"
	"github.com/mongostream/streamer/dev/mongo/doc"
	"github.com/mongostream/streamer/dev/mongo/wire"
)

func failCommand(t *testing.T, c *mongo.Client, mode any, data bson.D) {
	t.Helper()
	run(t, c, "admin", d("configureFailPoint", "failCommand", "mode", mode, "data", data))
}

func TestFailPoints(t *testing.T) {
	_, client := start(t, devmongo.Config{})
	db := client.Database("a")
	ping := func() error { return db.RunCommand(t.Context(), d("count", "x")).Err() }
	failCommand(t, client, d("times", 2), d("failCommands", bson.A{"count"}, "errorCode", 13))
	for _, want := range []int{13, 13, 0} {
		wantCode(t, ping(), want)
	}
	failCommand(t, client, d("skip", 1), d("failCommands", bson.A{"count"}, "errorCode", 2, "errorLabels", bson.A{"Mine"}))
	wantCode(t, ping(), 0)
	err := ping()
	wantCode(t, err, 2)
	if se, ok := errors.AsType[mongo.ServerError](err); !ok || !se.HasErrorLabel("Mine") {
		t.Error(err)
	}
	wantCode(t, ping(), 2)
	failCommand(t, client, "alwaysOn", d("failCommands", bson.A{"count"}, "namespace", "a.x", "errorCode", 13))
	wantCode(t, ping(), 13)
	wantCode(t, db.RunCommand(t.Context(), d("count", "y")).Err(), 0)
	failCommand(t, client, "alwaysOn", d("failCommands", bson.A{"count"}, "appName", "someone else", "errorCode", 13))
	wantCode(t, ping(), 0)
	failCommand(t, client, "off", nil)
	wantCode(t, ping(), 0)
	failCommand(t, client, d("times", 1), d("failCommands", bson.A{"insert"}, "writeConcernError", d("code", 64, "errmsg", "no")))
	_, err = db.Collection("x").InsertOne(t.Context(), d("_id", 1))
	var we mongo.WriteException
	if !errors.As(err, &we) || we.WriteConcernError == nil || we.WriteConcernError.Code != 64 {
		t.Error(err)
	}
	// A retriable error and a closed connection: the driver writes again.
	failCommand(t, client, d("times", 1), d("failCommands", bson.A{"insert"}, "errorCode", 91))
	insert(t, db.Collection("x"), d("_id", 2))
	failCommand(t, client, d("times", 1), d("failCommands", bson.A{"insert"}, "closeConnection", true))
	insert(t, db.Collection("x"), d("_id", 3))
	failCommand(t, client, d("times", 1), d("failCommands", bson.A{"count"}, "blockConnection", true, "blockTimeMS", 30))
	began := time.Now()
	wantCode(t, ping(), 0)
	if took := time.Since(began); took < 30*time.Millisecond {
		t.Error("not blocked:", took)
	}
	wantCode(t, client.Database("admin").RunCommand(t.Context(), d("configureFailPoint", "other", "mode", "off")).Err(), 167)
}

func TestStreamResumesOverFailures(t *testing.T) {
	srv, client := start(t, devmongo.Config{})
	c := client.Database("a").Collection("x")
	insert(t, c, d("_id", 0))
	s := watch(t, c, nil)
	for i, fail := range []func(){
		func() { failCommand(t, client, d("times", 1), d("failCommands", bson.A{"getMore"}, "errorCode", 43)) },
		func() {
			failCommand(t, client, d("times", 1), d("failCommands", bson.A{"getMore"}, "errorCode", 91, "errorLabels", bson.A{"ResumableChangeStreamError"}))
		},
		func() { run(t, client, "a", d("killCursors", "x", "cursors", bson.A{s.ID()})) },
		srv.DropConnections,
	} {
		fail()
		insert(t, c, d("_id", i+1))
		if got := s.next().Lookup("documentKey", "_id").Int32(); got != int32(i+1) {
			t.Errorf("failure %d: next is %d", i, got)
		}
	}
}

func TestStandalone(t *testing.T) {
	_, client := start(t, devmongo.Config{Standalone: true})
	c := client.Database("a").Collection("x")
	insert(t, c, d("_id", 1))
	if n, err := c.CountDocuments(t.Context(), d()); n != 1 || err != nil {
		t.Error(n, err)
	}
	_, err := tryWatch(t, c, nil)
	wantCode(t, err, 40573)
	hello := run(t, client, "admin", d("hello", 1))
	if !hello.Lookup("setName").IsZero() || !hello.Lookup("isWritablePrimary").Boolean() || !hello.Lookup("operationTime").IsZero() {
		t.Error(hello)
	}
}

func TestRetriedWritesRunOnce(t *testing.T) {
	srv, client := start(t, devmongo.Config{})
	c := &client2{t: t, addr: srv.Addr().String()}
	lsid := d("id", bson.Binary{Subtype: 4, Data: []byte("0123456789abcdef")})
	statement := func(n int64, cmd bson.D) bson.Raw {
		return c.run(append(cmd, d("lsid", lsid, "txnNumber", n, "$db", "a")...))
	}
	for _, cmd := range []bson.D{
		d("insert", "x", "documents", bson.A{d("_id", 1, "v", 0), d("_id", 1), d("_id", 2)}, "ordered", false),
		d("update", "x", "updates", bson.A{d("q", d("_id", 1), "u", d("$inc", d("v", 1))), d("q", d("_id", 9), "u", d("$set", d("v", 1)), "upsert", true)}),
		d("findAndModify", "x", "query", d("_id", 1), "update", d("$inc", d("v", 10)), "new", true),
		d("delete", "x", "deletes", bson.A{d("q", d("_id", 2), "limit", 1)}),
	} {
		n := int64(len(cmd[0].Key)) // grows: insert and update have 6 letters
		if cmd[0].Key == "update" {
			n = 7
		} else if cmd[0].Key == "delete" {
			n = 20
		}
		first := statement(n, cmd)
		at := srv.ClusterTime()
		again := statement(n, cmd)
		if srv.ClusterTime() != at {
			t.Errorf("%s was carried out twice", cmd[0].Key)
		}
		for _, field := range []string{"n", "nModified", "upserted", "value", "lastErrorObject", "writeErrors"} {
			if !first.Lookup(field).Equal(again.Lookup(field)) {
				t.Errorf("%s: %s is %s, then %s", cmd[0].Key, field, first.Lookup(field), again.Lookup(field))
			}
		}
	}
	if n, err := client.Database("a").Collection("x").CountDocuments(t.Context(), d("v", 11)); n != 1 || err != nil {
		t.Error(n, err)
	}
	if got := statement(1, d("insert", "x", "documents", bson.A{d()})).Lookup("code").Int32(); got != 225 {
		t.Errorf("an old number brings %d", got)
	}
}

// client2 is a client that sends exactly what it is told.
type client2 struct {
	t    testing.TB
	addr string
	conn net.Conn
}

func (c *client2) run(cmd bson.D) bson.Raw {
	c.t.Helper()
	if c.conn == nil {
		conn, err := net.Dial("tcp", c.addr)
		if err != nil {
			c.t.Fatal(err)
		}
		c.t.Cleanup(func() { _ = conn.Close() })
		c.conn = conn
	}
	body, err := bson.Marshal(cmd)
	if err != nil {
		c.t.Fatal(err)
	}
	if _, err := c.conn.Write(message{body: body}.encode(1, 0)); err != nil {
		c.t.Fatal(err)
	}
	reply, err := readReply(c.conn)
	if err != nil {
		c.t.Fatal(err)
	}
	return bson.Raw(reply)
}

func TestSnapshotKeepsDataAndPositions(t *testing.T) {
	for _, release := range []string{"4.4", "7.0"} {
		path := filepath.Join(t.TempDir(), "data")
		config := devmongo.Config{Release: release, Snapshot: path}
		var token, txn bson.Raw
		var uuid *bson.Binary
		var before uint64
		t.Run("first "+release, func(t *testing.T) {
			srv, client := start(t, config)
			c := client.Database("a").Collection("x")
			insert(t, c, d("_id", 1))
			s := watch(t, c, nil)
			insert(t, c, d("_id", 2), d("_id", int64(3)))
			token = s.next().Lookup("_id").Document()
			se := session(t, client)
			if _, err := se.WithTransaction(t.Context(), func(ctx context.Context) (any, error) {
				return c.InsertMany(ctx, []any{d("_id", 4), d("_id", 5)})
			}); err != nil {
				t.Fatal(err)
			}
			s.next()
			txn = s.next().Lookup("_id").Document()
			list, err := client.Database("a").ListCollectionSpecifications(t.Context(), d())
			if err != nil {
				t.Fatal(err)
			}
			uuid, before = list[0].UUID, srv.ClusterTime()
		})
		t.Run("second "+release, func(t *testing.T) {
			srv, client := start(t, config)
			c := client.Database("a").Collection("x")
			if srv.ClusterTime() < before {
				t.Error("time went back")
			}
			s := watch(t, c, nil, resumeAfter(token))
			equal(t, s.types(3), []string{"insert", "insert", "insert"})
			if got := watch(t, c, nil, resumeAfter(txn)).next().Lookup("documentKey", "_id").Int32(); got != 5 {
				t.Error("after the first insert of the transaction comes", got)
			}
			insert(t, c, d("_id", 6))
			if at := clusterTime(s.next()); at <= before {
				t.Error("a time was used again")
			}
			list, err := client.Database("a").ListCollectionSpecifications(t.Context(), d())
			if err != nil || string(list[0].UUID.Data) != string(uuid.Data) {
				t.Error(list, err)
			}
			wantCode(t, c.FindOne(t.Context(), d("_id", 3.0)).Err(), 0)
		})
		other := config
		other.Release = map[string]string{"4.4": "7.0", "7.0": "4.4"}[release]
		if _, err := devmongo.Listen(other); err == nil || !strings.Contains(err.Error(), "release") {
			t.Error("another release takes the snapshot:", err)
		}
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, raw[:len(raw)-10], 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := devmongo.Listen(config); err == nil || !strings.Contains(err.Error(), "whole") {
			t.Error("half a snapshot is taken:", err)
		}
	}
}

func TestKillWakesAWaitingGetMore(t *testing.T) {
	srv, client := start(t, devmongo.Config{})
	c := &client2{t: t, addr: srv.Addr().String()}
	id := c.run(d("aggregate", 1, "pipeline", bson.A{d("$changeStream", d())}, "cursor", d(), "$db", "a")).Lookup("cursor", "id").Int64()
	reply := make(chan bson.Raw, 1)
	go func() {
		defer close(reply) // where there is none
		reply <- c.run(d("getMore", id, "collection", "$cmd.aggregate", "maxTimeMS", 60_000, "$db", "a"))
	}()
	insert(t, client.Database("b").Collection("x"), d("_id", 1))
	for srv.Stats().EntriesExamined == 0 { // from then on it waits, or is about to
		runtime.Gosched()
	}
	run(t, client, "a", d("killCursors", "$cmd.aggregate", "cursors", bson.A{id}))
	if got := (<-reply).Lookup("code").Int32(); got != 237 {
		t.Errorf("code %d", got)
	}
	if st := srv.Stats(); st.CursorsOpen != 0 || st.ChangeStreamsOpen != 0 || st.KillCursors != 1 {
		t.Errorf("%+v", st)
	}
}

func TestGarbageClosesOnlyItsConnection(t *testing.T) {
	srv, client := start(t, devmongo.Config{})
	good := doc.New().Int32("ping", 1).String("$db", "admin").Document()
	whole := message{body: good}.encode(1, 0)
	for _, garbage := range [][]byte{
		[]byte("GET / HTTP/1.1\r\n\r\n"),
		{16, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 99, 0, 0, 0},
		message{body: bsoncore.Document("\x06\x00\x00\x00\x10\x00")}.encode(1, 0),
		message{body: good}.encode(1, 1<<9),
		message{body: good}.encode(1, wire.ChecksumPresent),
		append(message{body: good}.encode(1, 0)[:30], 0xff),
	} {
		c, err := net.Dial("tcp", srv.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write(whole); err != nil {
			t.Fatal(err)
		}
		if _, err := readReply(c); err != nil {
			t.Fatal(err)
		}
		_, _ = c.Write(garbage)
		_ = c.(*net.TCPConn).CloseWrite()
		if reply, err := readReply(c); err == nil {
			t.Errorf("an answer to garbage: %s", reply)
		}
		_ = c.Close()
	}
	run(t, client, "admin", d("ping", 1))
}

func TestUnansweredWrites(t *testing.T) {
	srv, client := start(t, devmongo.Config{})
	c, err := net.Dial("tcp", srv.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	body := doc.New().String("insert", "x").String("$db", "a").Open("writeConcern").Int32("w", 0).Document()
	m := message{body: body, sequences: []wire.Sequence{{Name: "documents", Docs: []bsoncore.Document{doc.New().Int32("_id", 1).Document()}}}}
	ping := message{body: doc.New().Int32("ping", 1).String("$db", "admin").Document()}
	if _, err := c.Write(append(m.encode(1, wire.MoreToCome), ping.encode(2, 0)...)); err != nil {
		t.Fatal(err)
	}
	if _, err := readReply(c); err != nil {
		t.Fatal(err)
	}
	if n, err := client.Database("a").Collection("x").CountDocuments(t.Context(), d()); n != 1 || err != nil {
		t.Error(n, err)
	}
}

func TestConfigIsChecked(t *testing.T) {
	for _, c := range []devmongo.Config{{Release: "5.0"}, {Users: []devmongo.User{{Name: "u"}}}, {OplogBytes: -1}} {
		if _, err := devmongo.Listen(c); err == nil {
			t.Errorf("%+v is taken", c)
		}
	}
	if uri := devmongotest.URI(t); !strings.HasPrefix(uri, "mongodb") {
		t.Error(uri)
	}
}
