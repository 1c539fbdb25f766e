package stream

import (
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mongostream/streamer/change/changetest"
)

// BenchmarkReply does what the driver's change stream does with a reply before it returns the first
// event: it counts the events, parses and checks them.
func BenchmarkReply(b *testing.B) {
	const events = 1000
	var all bson.A
	for i := range int64(events) {
		all = append(all, bson.Raw(changetest.Event{ID: i, Pad: 100}.Bytes()))
	}
	reply, err := bson.Marshal(bson.D{{Key: "batch", Value: all}})
	if err != nil {
		b.Fatal(err)
	}
	batch := &bsoncore.Iterator{List: bsoncore.Array(bson.Raw(reply).Lookup("batch").Value)}
	for b.Loop() {
		n := batch.Count()
		if documents, err := batch.Documents(); err != nil || n != events || len(documents) != events {
			b.Fatalf("%d, %d: %v", n, len(documents), err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/events, "ns/event")
}
