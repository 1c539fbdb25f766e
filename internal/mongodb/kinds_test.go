package mongodb_test

import (
	"fmt"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/dev/mongo/devmongotest"
	"github.com/mongostream/streamer/internal/mongodb"
	"github.com/mongostream/streamer/internal/mongodb/mongodbtest"
)

// Whoever names thousands of collections costs MongoDB one listing of each database that there is,
// and is told of each what it is.
func TestKindsAreListedOnceForEachDatabase(t *testing.T) {
	client := mongodbtest.Dial(t, devmongotest.URI(t))
	commands := func(mode string) int64 {
		var reply struct{ Count int64 }
		err := client.Driver().Database("admin").RunCommand(t.Context(), bson.D{
			{Key: "configureFailPoint", Value: "failCommand"}, {Key: "mode", Value: mode},
			{Key: "data", Value: bson.D{
				{Key: "failCommands", Value: bson.A{"listCollections", "listDatabases"}}, {Key: "blockConnection", Value: true}, {Key: "blockTimeMS", Value: 1},
				{Key: "appName", Value: client.Application()},
			}},
		}).Decode(&reply)
		if err != nil {
			t.Fatal(err)
		}
		return reply.Count
	}
	want, names := make(map[change.Namespace]change.NamespaceKind), []change.Namespace(nil)
	expect := func(db, coll string, kind change.NamespaceKind) {
		ns := change.Namespace{DB: db, Coll: coll}
		names = append(names, ns)
		want[ns] = kind
	}
	for range 2 {
		db := client.Driver().Database(mongodbtest.Database(t, client))
		for i := range 150 { // more than one batch
			name := fmt.Sprint("c", i)
			if err := db.CreateCollection(t.Context(), name); err != nil {
				t.Fatal(err)
			}
			expect(db.Name(), name, change.NamespaceCollection)
			expect(db.Name(), fmt.Sprint("missing", i), change.NamespaceMissing)
		}
		if err := db.CreateView(t.Context(), "v", "c0", bson.A{}); err != nil {
			t.Fatal(err)
		}
		expect(db.Name(), "v", change.NamespaceView)
		expect(db.Name(), "", change.NamespaceCollection)
	}
	for i := range 50 {
		expect(fmt.Sprint("nowhere", i), "c", change.NamespaceMissing)
		expect(fmt.Sprint("nowhere", i), "", change.NamespaceMissing)
	}
	before := commands("alwaysOn")
	kinds, err := mongodb.NewDocuments(client, nil).Kinds(t.Context(), names)
	if asked := commands("off") - before; asked != 3 || err != nil {
		t.Errorf("MongoDB was asked %d times for the names in 2 databases of 52: %v", asked, err)
	}
	for ns, kind := range want {
		if got, told := kinds[ns]; !told || got != kind {
			t.Errorf("%s is %v, told: %t", ns, got, told)
		}
	}
}
