package checkpoints

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/internal/mongodb"
)

// originID is the _id of the origin's document.
const originID = "origin"

// An originDocument is the stored form of the origin.
type originDocument struct {
	ID      string `bson:"_id"`
	Origin  string `bson:"origin"`
	Backend string `bson:"backend,omitempty"`
}

// Origin implements checkpoint.OriginKeeper.
func (s *Store) Origin(ctx context.Context) (checkpoint.Origin, error) {
	_, o, err := s.origin(ctx, s.partitions)
	return o, err
}

// origin reads the origin and its document. The origin must have the given number of partitions, 0
// for any.
func (s *Store) origin(ctx context.Context, partitions int) (d originDocument, o checkpoint.Origin, err error) {
	err = s.cluster.FindOne(ctx, bson.D{{Key: "_id", Value: originID}}).Decode(&d)
	if errors.Is(err, mongo.ErrNoDocuments) {
		return d, o, checkpoint.ErrNoOrigin
	}
	if err != nil {
		return d, o, fmt.Errorf("read origin: %w", mongodb.AsFault(err))
	}
	name := s.cluster.Database().Name() + "." + s.cluster.Name() + "/" + originID
	if o, err = checkpoint.DecodeOrigin(name, partitions, []byte(d.Origin)); err != nil {
		return d, o, err
	}
	o.Backend, err = checkpoint.DecodeBackend(name+".backend", []byte(d.Backend))
	return d, o, err
}

// originOf returns the stored form of an origin.
func originOf(o checkpoint.Origin) (d originDocument, err error) {
	text, err := checkpoint.EncodeOrigin(o)
	if err != nil {
		return d, err
	}
	backend, err := checkpoint.EncodeBackend(o.Backend)
	return originDocument{ID: originID, Origin: string(text), Backend: string(backend)}, err
}

// Create implements checkpoint.OriginKeeper: the insert of one document is the transaction.
func (s *Store) Create(ctx context.Context, o checkpoint.Origin) (checkpoint.Origin, error) {
	d, err := originOf(o)
	if err != nil {
		return checkpoint.Origin{}, err
	}
	err = s.inSession(ctx, func(ctx context.Context) error {
		_, err := s.cluster.InsertOne(ctx, d)
		if err != nil && !mongo.IsDuplicateKeyError(err) {
			return fmt.Errorf("write origin: %w", mongodb.AsFault(err))
		}
		_, o, err = s.origin(ctx, o.Partitions)
		return err
	})
	if err != nil {
		return checkpoint.Origin{}, err
	}
	return o, nil
}

// replaceOrigin replaces the origin that was read. replaced is false if it has changed since.
func (s *Store) replaceOrigin(ctx context.Context, was originDocument, o checkpoint.Origin) (replaced bool, err error) {
	d, err := originOf(o)
	if err != nil {
		return false, err
	}
	filter := bson.D{{Key: "_id", Value: originID}, {Key: "origin", Value: was.Origin}, {Key: "backend", Value: was.Backend}}
	if was.Backend == "" {
		filter[2].Value = bson.D{{Key: "$exists", Value: false}}
	}
	result, err := s.cluster.ReplaceOne(ctx, filter, d)
	if err != nil {
		return false, fmt.Errorf("write origin: %w", mongodb.AsFault(err))
	}
	return result.MatchedCount == 1, nil
}

// Complete implements checkpoint.OriginKeeper: the update of one unchanged document is the
// transaction.
func (s *Store) Complete(ctx context.Context, b checkpoint.Backend) (o checkpoint.Origin, err error) {
	err = s.inSession(ctx, func(ctx context.Context) error {
		for range attempts {
			var d originDocument
			if d, o, err = s.origin(ctx, s.partitions); err != nil || o.Backend.With(b) == o.Backend {
				return err
			}
			o.Backend = o.Backend.With(b)
			if replaced, err := s.replaceOrigin(ctx, d, o); err != nil || replaced {
				return err
			}
		}
		return fmt.Errorf("complete origin: %w", errContended)
	})
	if err != nil {
		return checkpoint.Origin{}, err
	}
	return o, nil
}

// alive returns ErrFenced if a term has an earlier incarnation than the origin.
func (s *Store) alive(ctx context.Context, terms []change.Term) error {
	o, err := s.Origin(ctx)
	if errors.Is(err, checkpoint.ErrNoOrigin) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, t := range terms {
		if t.Epoch.Incarnation < o.Incarnation {
			return fmt.Errorf("partition %d, epoch %s, incarnation %d: %w", t.Partition, t.Epoch, o.Incarnation, checkpoint.ErrFenced)
		}
	}
	return nil
}

// Adopt implements checkpoint.Adopter: it writes the origin, and then the incarnation into the
// documents, which are the fence. If the second step fails, the error says so; a repeated adoption,
// or the claims of the new incarnation, complete it.
func (s *Store) Adopt(ctx context.Context, last, next checkpoint.Origin) error {
	if err := next.Follows(last); err != nil {
		return err
	}
	err := s.inSession(ctx, func(ctx context.Context) error {
		if err := s.adopt(ctx, last, next); err != nil {
			return err
		}
		before := bson.D{{Key: epochField + ".incarnation", Value: bson.D{{Key: "$lt", Value: int64(next.Incarnation)}}}}
		_, err := s.checkpoints.UpdateMany(ctx, before, bson.D{{Key: "$set", Value: bson.D{
			{Key: epochField, Value: epochValue(change.Epoch{Incarnation: next.Incarnation})}, {Key: versionField, Value: bson.NewObjectID()},
		}}})
		if err != nil {
			return fmt.Errorf("the origin is written, the terms that were are not ended: %w", mongodb.AsFault(err))
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("adopt: %w", err)
	}
	return nil
}

// adopt replaces the origin last with next.
func (s *Store) adopt(ctx context.Context, last, next checkpoint.Origin) error {
	for range attempts {
		d, stands, err := s.origin(ctx, last.Partitions)
		switch {
		case err != nil:
			return err
		case stands.Equal(next):
			return nil // an earlier attempt succeeded, but its reply was lost
		case !stands.Equal(last):
			return checkpoint.ErrOriginMoved
		}
		o := next
		o.Backend = next.Backend.With(stands.Backend)
		if replaced, err := s.replaceOrigin(ctx, d, o); err != nil || replaced {
			return err
		}
	}
	return errContended
}
