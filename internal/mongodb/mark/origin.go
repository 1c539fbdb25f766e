package mark

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/checkpoint/record"
	"github.com/mongostream/streamer/internal/mongodb"
)

// originID is the _id of the origin's document.
const originID = "origin"

// An originDocument is the origin as it is stored.
type originDocument struct {
	ID     string `bson:"_id"`
	Origin string `bson:"origin"`
}

// Origin implements checkpoint.OriginKeeper.
func (m *Store) Origin(ctx context.Context) (checkpoint.Origin, error) {
	return m.origin(ctx, m.partitions)
}

func (m *Store) origin(ctx context.Context, partitions int) (checkpoint.Origin, error) {
	var d originDocument
	err := m.cluster.FindOne(ctx, bson.D{{Key: "_id", Value: originID}}).Decode(&d)
	if errors.Is(err, mongo.ErrNoDocuments) {
		return checkpoint.Origin{}, checkpoint.ErrNoOrigin
	}
	if err != nil {
		return checkpoint.Origin{}, fmt.Errorf("read origin: %w", mongodb.AsFault(err))
	}
	return record.DecodeOrigin(m.cluster.Database().Name()+"."+m.cluster.Name()+"/"+originID, partitions, []byte(d.Origin))
}

// Found implements checkpoint.OriginKeeper: the insert of one document is the transaction.
func (m *Store) Found(ctx context.Context, o checkpoint.Origin) (checkpoint.Origin, error) {
	text, err := record.EncodeOrigin(o)
	if err != nil {
		return checkpoint.Origin{}, err
	}
	_, err = m.cluster.InsertOne(ctx, originDocument{ID: originID, Origin: string(text)})
	if err != nil && !mongo.IsDuplicateKeyError(err) {
		return checkpoint.Origin{}, fmt.Errorf("write origin: %w", mongodb.AsFault(err))
	}
	return m.origin(ctx, o.Partitions)
}

// ofThisLife returns ErrFenced where a term is of an earlier incarnation than the origin.
func (m *Store) ofThisLife(ctx context.Context, terms []change.Term) error {
	o, err := m.Origin(ctx)
	if errors.Is(err, checkpoint.ErrNoOrigin) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, term := range terms {
		if term.Epoch.Incarnation < o.Incarnation {
			return fmt.Errorf("partition %d, epoch %s, incarnation %d: %w", term.Partition, term.Epoch, o.Incarnation, checkpoint.ErrFenced)
		}
	}
	return nil
}

// Adopt implements checkpoint.Adopter. The fence is in the documents of the marks, so they are given the new incarnation in the same
// transaction.
func (m *Store) Adopt(ctx context.Context, last, next checkpoint.Origin) error {
	if err := next.Follows(last); err != nil {
		return err
	}
	text, err := record.EncodeOrigin(next)
	if err != nil {
		return err
	}
	adopt := func(ctx context.Context) (any, error) {
		stands, err := m.origin(ctx, last.Partitions)
		if err != nil {
			return nil, err
		}
		if !stands.Equal(last) {
			return nil, checkpoint.ErrOriginMoved
		}
		set := bson.D{{Key: "$set", Value: bson.D{{Key: "origin", Value: string(text)}}}}
		if _, err := m.cluster.UpdateOne(ctx, bson.D{{Key: "_id", Value: originID}}, set); err != nil {
			return nil, err
		}
		before := bson.D{{Key: "incarnation", Value: bson.D{{Key: "$lt", Value: int64(next.Incarnation)}}}}
		_, err = m.marks.UpdateMany(ctx, before, bson.D{{Key: "$set", Value: ofEpoch(change.Epoch{Incarnation: next.Incarnation})}})
		return nil, err
	}
	session, err := m.cluster.Database().Client().StartSession()
	if err != nil {
		return fmt.Errorf("adopt: %w", mongodb.AsFault(err))
	}
	defer session.EndSession(context.WithoutCancel(ctx))
	if _, err := session.WithTransaction(ctx, adopt); err != nil {
		if errors.Is(err, checkpoint.ErrOriginMoved) || errors.Is(err, checkpoint.ErrNoOrigin) {
			return fmt.Errorf("adopt: %w", err)
		}
		return fmt.Errorf("adopt: %w", mongodb.AsFault(err))
	}
	return nil
}
