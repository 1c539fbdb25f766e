package keyring

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/checkpoint/record"
	"github.com/mongostream/streamer/internal/mongodb"
)

// keysID is the _id of the document of the keys that seal cursors, which stands beside the origin's.
const keysID = "keys"

// A keysDocument is the keys as they are stored. Serial is that of the last one: what a write must find, so that no secret stands in a
// filter.
type keysDocument struct {
	ID     string `bson:"_id"`
	Serial int64  `bson:"serial"`
	Keys   string `bson:"keys"`
}

// A Keeper keeps the keys of a cluster.
type Keeper struct {
	cluster *mongo.Collection
}

var _ checkpoint.KeyKeeper = (*Keeper)(nil)

// New makes a Keeper of the cluster whose marks are in a database.
func New(c *mongodb.Client, database, cluster string) *Keeper {
	return &Keeper{c.Driver().Database(database).Collection(cluster + ".cluster")}
}

// Keys implements [checkpoint.KeyKeeper].
func (k *Keeper) Keys(ctx context.Context) (checkpoint.Keys, error) {
	var d keysDocument
	err := k.cluster.FindOne(ctx, bson.D{{Key: "_id", Value: keysID}}).Decode(&d)
	if errors.Is(err, mongo.ErrNoDocuments) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the keys: %w", mongodb.AsFault(err))
	}
	return record.DecodeKeys(k.cluster.Database().Name()+"."+k.cluster.Name()+"/"+keysID, []byte(d.Keys))
}

// AddKey implements [checkpoint.KeyKeeper]. Where its answer gets lost, adding again finds the key.
func (k *Keeper) AddKey(ctx context.Context, key checkpoint.Key) error {
	for {
		added, err := k.addKey(ctx, key)
		if err != nil {
			return fmt.Errorf("add a key: %w", err)
		}
		if added {
			return nil
		}
	}
}

// addKey makes one attempt; added is false where somebody else has written the keys meanwhile.
func (k *Keeper) addKey(ctx context.Context, key checkpoint.Key) (added bool, err error) {
	stand, err := k.Keys(ctx)
	if err != nil {
		return false, err
	}
	keys, changed, err := stand.Add(key)
	if err != nil || !changed {
		return err == nil, err
	}
	text, err := record.EncodeKeys(keys)
	if err != nil {
		return false, err
	}
	d := keysDocument{ID: keysID, Serial: int64(key.Serial), Keys: string(text)}
	if len(stand) == 0 {
		_, err := k.cluster.InsertOne(ctx, d)
		if mongo.IsDuplicateKeyError(err) {
			return false, nil
		}
		return err == nil, mongodb.AsFault(err)
	}
	result, err := k.cluster.ReplaceOne(ctx, bson.D{{Key: "_id", Value: keysID}, {Key: "serial", Value: int64(stand[len(stand)-1].Serial)}}, d)
	return err == nil && result.MatchedCount == 1, mongodb.AsFault(err)
}
