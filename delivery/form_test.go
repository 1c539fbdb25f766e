package delivery

import (
	"fmt"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongostream/streamer/change"
)

// Each form of an event has the key of its own document, and an event without a document has none,
// also when another one was encoded before.
func TestFormsHaveTheKeyOfTheirEvent(t *testing.T) {
	t.Parallel()
	var w Writer
	for _, id := range []any{int32(1), "a", nil, int64(22)} {
		doc, want := bson.D{{Key: "_id", Value: bson.D{{Key: "_data", Value: "82"}}}, {Key: "operationType", Value: "drop"}}, `{"operationType":"drop"}`
		if id != nil {
			doc[1].Value, want = "insert", fmt.Sprintf(`{"key":%q,"operationType":"insert","documentKey":{"_id":%[2]v}}`, fmt.Sprint(id), id)
			if text, is := id.(string); is {
				want = fmt.Sprintf(`{"key":"\"%[1]s\"","operationType":"insert","documentKey":{"_id":"%[1]s"}}`, text)
			}
			doc = append(doc, bson.E{Key: "documentKey", Value: bson.D{{Key: "_id", Value: id}}})
		}
		raw, err := bson.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		event, err := change.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		w.Next(&event)
		for _, form := range []Form{{Format: JSON}, {Format: JSON, Fields: []string{"x"}}, {Format: JSON}} {
			if got, err := w.Append(nil, form); err != nil || string(got) != want {
				t.Errorf("%v: %s, want %s: %v", form, got, want, err)
			}
		}
	}
}

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
