package mark

import (
	"testing"

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
	})
}
