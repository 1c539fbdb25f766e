package delivery

import (
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// A subscription of some fields gets what an update says of them, also where their names have dots.
func TestUpdatesOfSomeFields(t *testing.T) {
	event, err := bson.Marshal(bson.D{{Key: "_id", Value: bson.D{{Key: "_data", Value: "82"}}}, {Key: "updateDescription", Value: bson.D{
		{Key: "updatedFields", Value: bson.D{{Key: "a.b", Value: 1}, {Key: "a.b.c", Value: 2}, {Key: "a", Value: 3}, {Key: "a.bc", Value: 4}, {Key: "x.y", Value: 5}}},
		{Key: "disambiguatedPaths", Value: bson.D{{Key: "a.b", Value: bson.A{"a.b"}}, {Key: "z.z", Value: bson.A{"z.z"}}}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	got := bson.Raw(appendStripped(nil, event, []string{"a.b", "x"})).String()
	const want = `{"updateDescription": {"updatedFields": {"a.b": {"$numberInt":"1"},"a.b.c": {"$numberInt":"2"},"x.y": {"$numberInt":"5"}},"disambiguatedPaths": {"a.b": ["a.b"]}}}`
	if got != want {
		t.Errorf("got %s", got)
	}
}
