package mongodb_test

import (
	"fmt"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/internal/devmongo/devmongotest"
	"github.com/mongostream/streamer/internal/mongodb"
	"github.com/mongostream/streamer/internal/mongodb/mongodbtest"
	"github.com/mongostream/streamer/snapshot"
)

// Pages have every document once, in the order of _id, whatever the types of the _ids, and say between which times they were read.
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
	collections, err := source.Collections(t.Context(), ns.DB, "")
	if err != nil || len(collections) != 1 || collections[0] != (snapshot.Collection{Namespace: ns, Documents: int64(len(ids))}) {
		t.Errorf("%+v, %v", collections, err)
	}
}
