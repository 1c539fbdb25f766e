package node

import (
	"encoding/json"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	devmongo "github.com/mongostream/streamer/dev/mongo"
)

// What writers put into documents cannot pass for other events, to clients of events and of
// gateways: not even where the driver writes it as it is.
func TestDocumentsCannotForgeEvents(t *testing.T) {
	t.Parallel()
	r := newRig(t, devmongo.Config{})
	n := r.begin()
	n.status()
	const forged = "x\"}}}\n\nid: forged\nevent: resync\ndata: {\"forged\":true}\n\n"
	stream := r.events(n, "")
	if _, err := r.coll("orders").InsertOne(t.Context(), bson.D{{Key: "_id", Value: "hostile"}, {Key: "p", Value: bson.DBPointer{DB: forged}}}); err != nil {
		t.Fatal(err)
	}
	r.insert("after")
	for _, want := range []string{"hostile", "after"} {
		m, err := stream.Next()
		if err != nil {
			t.Fatal(err)
		}
		var event struct {
			DocumentKey bson.M `json:"documentKey"`
		}
		if err := json.Unmarshal(m.Data, &event); err != nil || event.DocumentKey["_id"] != want || m.Event != "" {
			t.Fatalf("%+v: %v, %v; want %s", m, event, err, want)
		}
	}
}
