package devmongo_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	devmongo "github.com/mongostream/streamer/dev/mongo"
)

// What collections are created with is listed, kept over a restart, and either behaves as a
// server's does or is refused.
func TestCollectionsHaveOptions(t *testing.T) {
	config := devmongo.Config{Release: "4.4", Snapshot: filepath.Join(t.TempDir(), "data")}
	t.Run("created", func(t *testing.T) { createOptions(t, config) })
	t.Run("restarted", func(t *testing.T) {
		_, client := start(t, config)
		db := client.Database("a")
		checkTypes(t, db)
		_, err := db.Collection("folded").InsertOne(t.Context(), d("_id", "B"))
		wantCode(t, err, 11000)
		_, err = db.Collection("capped").InsertOne(t.Context(), d("_id", 4))
		wantCode(t, err, 115)
		wantCode(t, db.Collection("view").Drop(t.Context()), 0)
		if list, err := db.ListCollectionNames(t.Context(), d()); err != nil || len(list) != 2 {
			t.Errorf("%v, %v", list, err)
		}
	})
}

func createOptions(t *testing.T, config devmongo.Config) {
	_, client := start(t, config)
	db := client.Database("a")
	create := func(code int, name string, options ...any) {
		t.Helper()
		wantCode(t, db.RunCommand(t.Context(), append(d("create", name), d(options...)...)).Err(), code)
	}
	create(0, "capped", "capped", true, "size", 4096, "max", 3)
	create(72, "sizeless", "capped", true)
	create(72, "uncapped", "size", 4096)
	create(0, "folded", "collation", d("locale", "en", "strength", 2))
	create(115, "french", "collation", d("locale", "fr"))
	create(0, "view", "viewOn", "capped", "pipeline", bson.A{})
	create(115, "view", "viewOn", "folded", "pipeline", bson.A{})
	create(40415, "series", "timeseries", d("timeField", "at"))

	capped := db.Collection("capped")
	insert(t, capped, d("_id", 1, "v", 1), d("_id", 2, "v", 1), d("_id", 3, "v", 1))
	_, err := capped.InsertOne(t.Context(), d("_id", 4))
	wantCode(t, err, 115)
	_, err = capped.DeleteOne(t.Context(), d("_id", 1))
	wantCode(t, err, 20)
	_, err = capped.UpdateByID(t.Context(), 1, d("$set", d("v", "long")))
	wantCode(t, err, 10003)
	_, err = capped.UpdateByID(t.Context(), 1, d("$set", d("v", 2)))
	wantCode(t, err, 0)
	_, err = db.Collection("view").InsertOne(t.Context(), d("_id", 1))
	wantCode(t, err, 115)
	_, err = db.Collection("view").Find(t.Context(), d())
	wantCode(t, err, 115)

	folded := db.Collection("folded")
	insert(t, folded, d("_id", "b"), d("_id", "A"), d("_id", "C"), d("_id", 7))
	_, err = folded.InsertOne(t.Context(), d("_id", "a"))
	wantCode(t, err, 11000)
	_, err = folded.InsertOne(t.Context(), d("_id", "é"))
	wantCode(t, err, 115)
	_, err = folded.Find(t.Context(), d("_id", "a"))
	wantCode(t, err, 115)
	cursor, err := folded.Find(t.Context(), d(), options.Find().SetSort(d("_id", 1)).SetHint(d("_id", 1)).SetMin(d("_id", "a")).SetMax(d("_id", "c")))
	if err != nil {
		t.Fatal(err)
	}
	var docs []struct {
		ID any `bson:"_id"`
	}
	if err := cursor.All(t.Context(), &docs); err != nil || fmt.Sprint(docs) != "[{A} {b}]" {
		t.Errorf("%v, %v", docs, err)
	}
	checkTypes(t, db)
}

// checkTypes checks what is listed of the collections.
func checkTypes(t *testing.T, db *mongo.Database) {
	t.Helper()
	list, err := db.ListCollectionSpecifications(t.Context(), d())
	if err != nil {
		t.Fatal(err)
	}
	var types strings.Builder
	for _, s := range list {
		fmt.Fprintln(&types, s.Name, s.Type, s.Options)
	}
	want := `capped collection {"capped": true,"size": {"$numberInt":"4096"},"max": {"$numberInt":"3"}}
folded collection {"collation": {"locale": "en","strength": {"$numberInt":"2"}}}
system.views collection {}
view view {"viewOn": "capped","pipeline": []}
`
	if types.String() != want {
		t.Errorf("%s; want %s", types.String(), want)
	}
}
