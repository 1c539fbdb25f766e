package mark

import (
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongostream/checkpoint/checkpointtest"
	"mongostream/checkpoint/rowtest"
)

func TestRowsInMongoDBAreKept(t *testing.T) {
	rowtest.TestKeeper(t, opener(t), func(t *testing.T, s checkpointtest.Store, gateway string, value []byte) {
		rows := s.(*Store).marks.Database().Collection("c.rows")
		result, err := rows.UpdateOne(t.Context(), bson.D{{Key: "_id", Value: gateway}}, bson.D{{Key: "$set", Value: bson.D{{Key: "row", Value: string(value)}}}})
		if err != nil || result.MatchedCount != 1 {
			t.Fatalf("%+v, %v", result, err)
		}
	})
}
