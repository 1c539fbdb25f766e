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
	ID      string `bson:"_id"`
	Origin  string `bson:"origin"`
	Backend string `bson:"backend,omitempty"`
}

// Origin implements checkpoint.OriginKeeper.
func (m *Store) Origin(ctx context.Context) (checkpoint.Origin, error) {
	return m.origin(ctx, m.partitions)
}

func (m *Store) origin(ctx context.Context, partitions int) (checkpoint.Origin, error) {
	_, o, err := m.originStands(ctx, partitions)
	return o, err
}

// originStands reads the origin, and its document.
func (m *Store) originStands(ctx context.Context, partitions int) (d originDocument, o checkpoint.Origin, err error) {
	err = m.cluster.FindOne(ctx, bson.D{{Key: "_id", Value: originID}}).Decode(&d)
	if errors.Is(err, mongo.ErrNoDocuments) {
		return d, o, checkpoint.ErrNoOrigin
	}
	if err != nil {
		return d, o, fmt.Errorf("read origin: %w", mongodb.AsFault(err))
	}
	key := m.cluster.Database().Name() + "." + m.cluster.Name() + "/" + originID
	if o, err = record.DecodeOrigin(key, partitions, []byte(d.Origin)); err != nil {
		return d, o, err
	}
	o.Backend, err = record.DecodeBackend(key+".backend", []byte(d.Backend))
	return d, o, err
}

// Found implements checkpoint.OriginKeeper: the insert of one document is the transaction.
func (m *Store) Found(ctx context.Context, o checkpoint.Origin) (checkpoint.Origin, error) {
	text, err := record.EncodeOrigin(o)
	if err != nil {
		return checkpoint.Origin{}, err
	}
	backend, err := record.EncodeBackend(o.Backend)
	if err != nil {
		return checkpoint.Origin{}, err
	}
	_, err = m.cluster.InsertOne(ctx, originDocument{ID: originID, Origin: string(text), Backend: string(backend)})
	if err != nil && !mongo.IsDuplicateKeyError(err) {
		return checkpoint.Origin{}, fmt.Errorf("write origin: %w", mongodb.AsFault(err))
	}
	return m.origin(ctx, o.Partitions)
}

// Complete implements checkpoint.OriginKeeper: the update of one document, as it was read, is the transaction.
func (m *Store) Complete(ctx context.Context, b checkpoint.Backend) (checkpoint.Origin, error) {
	for {
		d, stands, err := m.originStands(ctx, m.partitions)
		if err != nil || stands.Backend.With(b) == stands.Backend {
			return stands, err
		}
		backend, err := record.EncodeBackend(stands.Backend.With(b))
		if err != nil {
			return checkpoint.Origin{}, err
		}
		was := bson.E{Key: "backend", Value: bson.D{{Key: "$exists", Value: false}}}
		if d.Backend != "" {
			was.Value = d.Backend
		}
		filter := bson.D{{Key: "_id", Value: originID}, {Key: "origin", Value: d.Origin}, was}
		if _, err := m.cluster.UpdateOne(ctx, filter, bson.D{{Key: "$set", Value: bson.D{{Key: "backend", Value: string(backend)}}}}); err != nil {
			return checkpoint.Origin{}, fmt.Errorf("complete origin: %w", mongodb.AsFault(err))
		}
	}
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
		fields := bson.D{{Key: "origin", Value: string(text)}}
		if next.Backend != (checkpoint.Backend{}) {
			backend, err := record.EncodeBackend(next.Backend.With(stands.Backend))
			if err != nil {
				return nil, err
			}
			fields = append(fields, bson.E{Key: "backend", Value: string(backend)})
		}
		set := bson.D{{Key: "$set", Value: fields}}
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
