package mongodb_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongostream/streamer/change"
	devmongo "github.com/mongostream/streamer/dev/mongo"
	"github.com/mongostream/streamer/dev/mongo/devmongotest"
	"github.com/mongostream/streamer/internal/mongodb"
	"github.com/mongostream/streamer/internal/mongodb/mongodbtest"
	"github.com/mongostream/streamer/snapshot"
)

// Pages have every document once, in the order of _id, whatever the types of the _ids, and say
// between which times they were read.
func TestPagesOfMixedIDs(t *testing.T) {
	client := mongodbtest.Dial(t, devmongotest.URI(t))
	coll := client.Driver().Database(mongodbtest.Database(t, client)).Collection("c")
	ids := bson.A{
		bson.Null{}, -1, int64(3), 4.5, bson.NewDecimal128(0x3040000000000000, 7), "a", "b", bson.D{{Key: "a", Value: 1}}, bson.D{{Key: "a", Value: "x"}},
		bson.Binary{Data: []byte("x")}, bson.NewObjectIDFromTimestamp(time.Unix(1, 0)), bson.NewObjectIDFromTimestamp(time.Unix(2, 0)), false, true,
		bson.DateTime(5), bson.Timestamp{T: 1, I: 1},
	}
	for i := range ids {
		if _, err := coll.InsertOne(t.Context(), bson.D{{Key: "_id", Value: ids[len(ids)-1-i]}}); err != nil {
			t.Fatal(err)
		}
	}
	ns, source := change.Namespace{DB: coll.Database().Name(), Coll: "c"}, mongodb.NewDocuments(client, nil)
	for _, pageOf := range []int{1, 3, 100} {
		after, err := client.Now(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var read []string
		q := snapshot.Query{Namespace: ns, After: after, Documents: pageOf, Bytes: 1 << 20}
		for more := true; more; {
			p, err := source.Read(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			if p.To.Compare(after) < 0 || len(p.Documents) > pageOf {
				t.Errorf("%d documents, read by %s, after %s", len(p.Documents), p.To, after)
			}
			for _, d := range p.Documents {
				read = append(read, bson.Raw(d).Lookup("_id").String())
			}
			q.From, more = p.Next, !p.Next.IsZero()
		}
		var want []string
		for _, id := range ids {
			kind, data, err := bson.MarshalValue(id)
			if err != nil {
				t.Fatal(err)
			}
			want = append(want, bson.RawValue{Type: kind, Value: data}.String())
		}
		if fmt.Sprint(read) != fmt.Sprint(want) {
			t.Errorf("in pages of %d:\n%v, want\n%v", pageOf, read, want)
		}
	}
	first := func(q snapshot.Query) string {
		t.Helper()
		q.Namespace, q.Documents, q.Bytes = ns, 100, 1<<20
		p, err := source.Read(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(len(p.Documents), p.Next.IsZero())
	}
	value := func(id any) change.Value {
		kind, data, _ := bson.MarshalValue(id)
		return change.Value{Type: byte(kind), Data: data}
	}
	if got := first(snapshot.Query{From: value("a"), Until: value(false)}); got != "7 true" {
		t.Errorf("from a string up to a boolean: %s", got)
	}
	if got := first(snapshot.Query{IDs: []change.Value{value("b"), value(3), value("none")}}); got != "2 true" {
		t.Errorf("by _id: %s", got)
	}
	collections, at, err := source.Collections(t.Context(), ns.DB, "")
	if err != nil || at.IsZero() || len(collections) != 1 || collections[0] != (snapshot.Collection{Namespace: ns, Documents: int64(len(ids))}) {
		t.Errorf("%+v, %v", collections, err)
	}
}

// Since 5.0 a page shows the documents as they were at its time, whatever has been changed since.
// Where that cannot be read, because the collection was created later or the time is too old, it
// shows what there is, and says by when.
func TestPagesShowTheirTime(t *testing.T) {
	for release, exact := range map[string]bool{"4.4": false, "6.0": true, "8.0": true} {
		t.Run(release, func(t *testing.T) {
			t.Parallel()
			server := devmongotest.Start(t, devmongo.Config{Release: release})
			client := mongodbtest.Dial(t, server.URI())
			source := mongodb.NewDocuments(client, nil)
			coll := client.Driver().Database("shop").Collection("orders")
			before, err := client.Now(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for i := range 4 {
				if _, err := coll.InsertOne(t.Context(), bson.D{{Key: "_id", Value: i}, {Key: "v", Value: 1}}); err != nil {
					t.Fatal(err)
				}
			}
			after, err := client.Now(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			_, err1 := coll.DeleteOne(t.Context(), bson.D{{Key: "_id", Value: 0}})
			_, err2 := coll.UpdateByID(t.Context(), 1, bson.D{{Key: "$set", Value: bson.D{{Key: "v", Value: 2}}}})
			_, err3 := coll.InsertOne(t.Context(), bson.D{{Key: "_id", Value: 9}, {Key: "v", Value: 2}})
			if err := errors.Join(err1, err2, err3); err != nil {
				t.Fatal(err)
			}
			read := func(after change.Timestamp) (text string, to change.Timestamp) {
				p, err := source.Read(t.Context(), snapshot.Query{Namespace: change.Namespace{DB: "shop", Coll: "orders"}, After: after, Documents: 10, Bytes: 1 << 20})
				if err != nil {
					t.Fatal(err)
				}
				for _, d := range p.Documents {
					text += fmt.Sprint(bson.Raw(d).Lookup("_id").AsInt64(), ":", bson.Raw(d).Lookup("v").AsInt64(), " ")
				}
				return text, p.To
			}
			const now = "1:2 2:1 3:1 9:2 "
			text, to := read(after)
			if want := map[bool]string{false: now, true: "0:1 1:1 2:1 3:1 "}[exact]; text != want || (to == after) != exact {
				t.Errorf("%s up to %s, want %s of %s", text, to, want, after)
			}
			if text, to := read(before); text != now || to.Compare(after) <= 0 {
				t.Errorf("%s up to %s, before the collection was created", text, to)
			}
		})
	}
}

// A page below 5.0 and a list of collections wait until the stream has reached their time. Behind
// mongos the stream does, although nothing is written to any shard nor to the config servers.
func TestStreamReachesTheTimeOfAPageOfIdleShards(t *testing.T) {
	orders := change.Namespace{DB: "shop", Coll: "orders"}
	for name, read := range map[string]func(*mongodb.Documents) error{
		"page": func(source *mongodb.Documents) error {
			_, err := source.Read(t.Context(), snapshot.Query{Namespace: orders, Documents: 10, Bytes: 1 << 20})
			return err
		},
		"collections": func(source *mongodb.Documents) error {
			_, _, err := source.Collections(t.Context(), orders.DB, "")
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := devmongotest.Start(t, devmongo.Config{Release: "4.4", Preset: "sharded", Adjust: func(p *devmongo.Profile) { p.NoopEvery, p.ConfigNoopEvery = 0, 0 }})
			client := mongodbtest.Dial(t, server.URI())
			stream, err := client.Driver().Watch(t.Context(), mongo.Pipeline{}, options.ChangeStream().SetMaxAwaitTime(20*time.Millisecond))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = stream.Close(context.Background()) }()
			source, coll := mongodb.NewDocuments(client, nil), client.Driver().Database(orders.DB).Collection(orders.Coll)
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
			defer cancel()
			for id := range 4 { // on the first shard and on the second one by turns
				if _, err := coll.InsertOne(t.Context(), bson.D{{Key: "_id", Value: id}}); err != nil {
					t.Fatal(err)
				}
				if err := read(source); err != nil {
					t.Fatal(err)
				}
				if !stream.Next(ctx) || stream.Current.Lookup("documentKey", "_id").AsInt64() != int64(id) {
					t.Fatalf("instead of the change of document %d came %v, %v", id, stream.Current, stream.Err())
				}
			}
		})
	}
}

// Whoever may not read from the config servers reads collections all the same.
func TestCollectionsAreListedWithoutTheConfigServers(t *testing.T) {
	for _, code := range []int{13, 8000} { // of MongoDB, of proxies in front of it
		server := devmongotest.Start(t, devmongo.Config{Preset: "sharded"})
		client := mongodbtest.Dial(t, server.URI())
		if _, err := client.Driver().Database("shop").Collection("orders").InsertOne(t.Context(), bson.D{}); err != nil {
			t.Fatal(err)
		}
		err := client.Driver().Database("admin").RunCommand(t.Context(), bson.D{
			{Key: "configureFailPoint", Value: "failCommand"}, {Key: "mode", Value: "alwaysOn"},
			{Key: "data", Value: bson.D{{Key: "failCommands", Value: bson.A{"find"}}, {Key: "errorCode", Value: code}}},
		}).Err()
		if err != nil {
			t.Fatal(err)
		}
		all, _, err := mongodb.NewDocuments(client, nil).Collections(t.Context(), "shop", "")
		if err != nil || len(all) != 1 || all[0].Documents != 1 {
			t.Errorf("code %d: %v, %v", code, all, err)
		}
	}
}

// A hash is looked for among a few keys at a time, and is found where it is.
func TestHashIsLookedForAmongAFewKeys(t *testing.T) {
	client := mongodbtest.Dial(t, devmongotest.URI(t))
	coll := client.Driver().Database(mongodbtest.Database(t, client)).Collection("c")
	docs := make([]any, 2*snapshot.LocatedKeys+100)
	for i := range docs {
		docs[i] = bson.D{{Key: "_id", Value: fmt.Sprintf("%05d", i)}}
	}
	if _, err := coll.InsertMany(t.Context(), docs); err != nil {
		t.Fatal(err)
	}
	after, err := client.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	id := func(i int) change.Value {
		kind, data, err := bson.MarshalValue(fmt.Sprintf("%05d", i))
		if err != nil {
			t.Fatal(err)
		}
		return change.Value{Type: byte(kind), Data: data}
	}
	q := snapshot.Query{
		Namespace: change.Namespace{DB: coll.Database().Name(), Coll: "c"}, After: after, Documents: 10, Bytes: 1 << 20,
		From: id(0), FromHash: change.KeyHash(id(len(docs) - 1)),
	}
	source := mongodb.NewDocuments(client, nil)
	reads := 0
	page, err := source.Read(t.Context(), q)
	for further, is := errors.AsType[*snapshot.FurtherError](err); is; further, is = errors.AsType[*snapshot.FurtherError](err) {
		reads++
		q.From = further.From
		page, err = source.Read(t.Context(), q)
	}
	if err != nil || reads != 2 || len(page.Documents) != 1 {
		t.Errorf("%d documents after %d reads: %v", len(page.Documents), reads, err)
	}
	q.From, q.FromHash = id(len(docs)-100), change.KeyHash(id(0))
	if _, err := source.Read(t.Context(), q); !errors.Is(err, snapshot.ErrPlaceGone) {
		t.Errorf("where there is none: %v", err)
	}
}

// Documents that the server sends in several replies are all of the page.
func TestPageOfSeveralReplies(t *testing.T) {
	client := mongodbtest.Dial(t, devmongotest.URI(t))
	coll := client.Driver().Database(mongodbtest.Database(t, client)).Collection("c")
	q := snapshot.Query{Namespace: change.Namespace{DB: coll.Database().Name(), Coll: "c"}, Documents: 10, Bytes: snapshot.PageBytes}
	const documents, size = 5, 6 << 20 // a reply has at most 16 MiB
	for i := range documents {
		if _, err := coll.InsertOne(t.Context(), bson.D{{Key: "_id", Value: int32(i)}, {Key: "large", Value: bson.Binary{Data: make([]byte, size)}}}); err != nil {
			t.Fatal(err)
		}
		kind, data, err := bson.MarshalValue(int32(i))
		if err != nil {
			t.Fatal(err)
		}
		q.IDs = append(q.IDs, change.Value{Type: byte(kind), Data: data})
	}
	var err error
	if q.After, err = client.Now(t.Context()); err != nil {
		t.Fatal(err)
	}
	p, err := mongodb.NewDocuments(client, nil).Read(t.Context(), q)
	if err != nil || len(p.Documents) != documents || !p.Next.IsZero() {
		t.Fatalf("%d documents, %v, %v", len(p.Documents), p.Next, err)
	}
	for i, doc := range p.Documents {
		if id, is := bson.Raw(doc).Lookup("_id").Int32OK(); !is || int(id) != i || len(doc) < size {
			t.Errorf("document %d has _id %d and %d bytes", i, id, len(doc))
		}
	}
}
