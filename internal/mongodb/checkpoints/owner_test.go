package checkpoints

import (
	"errors"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint/checkpointtest"
	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/cluster/clustertest"
	"github.com/mongostream/streamer/dev/mongo/devmongotest"
	"github.com/mongostream/streamer/internal/mongodb/mongodbtest"
)

func TestOwnerIsARegistry(t *testing.T) {
	uri := devmongotest.URI(t)
	clustertest.TestRegistry(t, func(t *testing.T) clustertest.RegistryHarness {
		c := mongodbtest.Dial(t, uri)
		name := mongodbtest.Database(t, c)
		open := func() *Store { return NewStore(c, name, "c", checkpointtest.Partitions) }
		take := func(p change.Partition) {
			s := open()
			d := bson.D{{Key: "_id", Value: idOf(checkpointtest.SharedKey(p))}}
			var was struct {
				Epoch struct{ Incarnation, Revision int64 }
			}
			if err := s.checkpoints.FindOne(t.Context(), d).Decode(&was); err != nil && !errors.Is(err, mongo.ErrNoDocuments) {
				t.Fatal(err)
			}
			epoch := change.Epoch{Incarnation: max(1, uint64(was.Epoch.Incarnation)), Revision: uint64(was.Epoch.Revision) + 1}
			set := bson.D{{Key: epochField, Value: epochValue(epoch)}, {Key: versionField, Value: bson.NewObjectID()}}
			if _, err := s.checkpoints.UpdateOne(t.Context(), d, bson.D{{Key: "$set", Value: set}}, upsert()); err != nil {
				t.Fatal(err)
			}
		}
		return clustertest.RegistryHarness{Join: func() cluster.Registry { return NewRegistry(open()) }, Store: open(), Take: take}
	})
}
