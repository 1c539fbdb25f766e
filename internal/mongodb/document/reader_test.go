package document

import (
	"fmt"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.uber.org/goleak"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/internal/devmongo/devmongotest"
	"github.com/mongostream/streamer/internal/mongodb/mongodbtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestDocumentsAreReadPageByPage(t *testing.T) {
	client := mongodbtest.Dial(t, devmongotest.URI(t))
	coll := client.Driver().Database(mongodbtest.Database(t, client)).Collection("c")
	if _, err := coll.InsertOne(t.Context(), bson.D{{Key: "_id", Value: "first"}}); err != nil {
		t.Fatal(err)
	}
	since := time.Now().Truncate(time.Millisecond)
	for i := range 25 {
		doc := bson.D{{Key: "_id", Value: i}, {Key: "updated_at", Value: since.Add(time.Duration(i-5) * time.Second)}}
		if _, err := coll.InsertOne(t.Context(), doc); err != nil {
			t.Fatal(err)
		}
	}
	now, err := client.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	q := Query{Namespace: change.Namespace{DB: coll.Database().Name(), Coll: "c"}, UpdatedAt: "updated_at", Since: since, Limit: 8}
	var got []string
	for {
		documents, at, last, err := NewReader(client).Page(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		if at.Compare(now) < 0 {
			t.Errorf("read at %v, before %v", at, now)
		}
		for _, d := range documents {
			got = append(got, bson.Raw(d).Lookup("_id").String())
		}
		if len(documents) < q.Limit {
			break
		}
		q.After = last
	}
	if len(got) != 20 || got[0] != `{"$numberInt":"5"}` || got[19] != `{"$numberInt":"24"}` {
		t.Errorf("read %v", got)
	}
	q = Query{Namespace: q.Namespace, Limit: 100}
	if documents, _, last, err := NewReader(client).Page(t.Context(), q); err != nil || len(documents) != 26 || fmt.Sprint(bson.Raw(last)) != `{"_id": "first"}` {
		t.Errorf("everything: %d, last %v, %v", len(documents), bson.Raw(last), err)
	}
}
