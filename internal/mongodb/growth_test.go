package mongodb_test

import (
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	devmongo "github.com/mongostream/streamer/dev/mongo"
	"github.com/mongostream/streamer/dev/mongo/devmongotest"
	"github.com/mongostream/streamer/internal/mongodb/mongodbtest"
)

// Nothing leaves an oplog that has not reached its size. Where nobody may ask for that, it counts
// as full.
func TestOplogGrowsUntilItIsFull(t *testing.T) {
	const size = 512 << 10
	server := devmongotest.Start(t, devmongo.Config{OplogBytes: size, Users: []devmongo.User{
		{Name: "root", Password: "p", Privileges: devmongo.Root()},
		{Name: "some", Password: "p", Privileges: append(devmongo.Read(""), devmongo.Privilege{DB: "local", Coll: "oplog.rs", Actions: []string{"find"}})},
	}})
	as := func(user string) string { return strings.Replace(server.URI(), "://", "://"+user+":p@", 1) }
	growing := func(user string) bool {
		return mongodbtest.Dial(t, as(user)).Growing(t.Context()) // each asks, because it has no answer yet
	}
	c := mongodbtest.Dial(t, as("root"))
	coll := c.Driver().Database("shop").Collection("orders")
	write := func(bytes int) {
		t.Helper()
		for range bytes / 8192 {
			if _, err := coll.InsertOne(t.Context(), bson.D{{Key: "pad", Value: strings.Repeat("x", 8192)}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	write(size / 2)
	if !growing("root") {
		t.Error("it counts as full at half its size")
	}
	if growing("some") {
		t.Error("it counts as growing without the right to ask")
	}
	write(2 * size)
	if growing("root") {
		t.Error("it counts as growing when entries leave it")
	}
}
