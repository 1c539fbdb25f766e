package keyring

import (
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongostream/streamer/checkpoint/key"
	"github.com/mongostream/streamer/checkpoint/keytest"
	"github.com/mongostream/streamer/internal/devmongo/devmongotest"
	"github.com/mongostream/streamer/internal/mongodb/mongodbtest"
)

func TestKeysInMongoDBAreKept(t *testing.T) {
	uri := devmongotest.URI(t)
	keytest.TestKeeper(t, func(t *testing.T) keytest.Harness {
		client := mongodbtest.Dial(t, uri)
		name := mongodbtest.Database(t, client)
		open := func() *Keeper { return New(client, name, "c") }
		keeper := open()
		return keytest.Harness{
			Keeper: keeper, Reopen: func() key.Keeper { return open() },
			Damage: func(value []byte) {
				set := bson.D{{Key: "$set", Value: bson.D{{Key: "keys", Value: string(value)}}}}
				if result, err := keeper.cluster.UpdateOne(t.Context(), bson.D{{Key: "_id", Value: keysID}}, set); err != nil || result.MatchedCount != 1 {
					t.Fatal(result, err)
				}
			},
		}
	})
}
