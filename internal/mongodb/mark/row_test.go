package mark

import (
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongostream/streamer/checkpoint/checkpointtest"
	"github.com/mongostream/streamer/checkpoint/rowtest"
)

func TestRowsInMongoDBAreKept(t *testing.T) {
	rowtest.TestKeeper(t, opener(t), func(t *testing.T, s checkpointtest.Store, rows []rowtest.Stored) {
		puts := make([]mongo.WriteModel, len(rows))
		for i, r := range rows {
			d := bson.D{{Key: "_id", Value: r.Gateway}, {Key: "seen", Value: r.SeenAt}, {Key: "row", Value: string(r.Value)}}
			puts[i] = mongo.NewReplaceOneModel().SetFilter(d[:1]).SetReplacement(d).SetUpsert(true)
		}
		collection := s.(*Store).marks.Database().Collection("c.rows")
		if _, err := collection.BulkWrite(t.Context(), puts, options.BulkWrite().SetOrdered(false)); err != nil {
			t.Fatal(err)
		}
	}, func(t *testing.T, s checkpointtest.Store, gateway string, by time.Duration) {
		collection, key := s.(*Store).marks.Database().Collection("c.rows"), bson.D{{Key: "_id", Value: gateway}}
		var d struct{ Seen time.Time }
		err := collection.FindOne(t.Context(), key).Decode(&d)
		if err == nil {
			_, err = collection.UpdateOne(t.Context(), key, bson.D{{Key: "$set", Value: bson.D{{Key: "seen", Value: d.Seen.Add(-by)}}}})
		}
		if err != nil {
			t.Fatal(err)
		}
	})
}
