package checkpoints

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/internal/mongodb"
)

// Repartition replaces the origin last with next, which may have another number of partitions, and
// removes the shared checkpoints in the same transaction, so that every partition begins at next's
// start. Their documents stay, as fences and for the histories; exclusive checkpoints and the gap
// log stay, too. It returns the fault NodeRunning if a process owns the partitions, and
// checkpoint.ErrOriginMoved if the origin is not last or a shared checkpoint is earlier than next's
// start. If the origin is next already, it returns no error.
func (s *Store) Repartition(ctx context.Context, last, next checkpoint.Origin) (checkpoint.Origin, error) {
	now, err := s.client.ServerTime(ctx)
	if err != nil {
		return checkpoint.Origin{}, err
	}
	err = s.inSession(ctx, func(ctx context.Context) error {
		_, err := mongo.SessionFromContext(ctx).WithTransaction(ctx, func(ctx context.Context) (any, error) {
			return nil, s.repartition(ctx, last, next, now)
		})
		return err
	})
	_, isFault := errors.AsType[*fault.Error](err)
	isOrigins := errors.Is(err, checkpoint.ErrOriginMoved) || errors.Is(err, checkpoint.ErrNoOrigin)
	if err != nil && !isFault && !isOrigins {
		err = mongodb.AsFault(err)
	}
	if err != nil {
		return checkpoint.Origin{}, fmt.Errorf("repartition: %w", err)
	}
	return next, nil
}

// repartition is the body of the transaction.
func (s *Store) repartition(ctx context.Context, last, next checkpoint.Origin, now time.Time) error {
	whole := *s
	whole.partitions = 0 // any number
	d, stands, err := s.origin(ctx, 0)
	switch {
	case err != nil:
		return err
	case stands.Equal(next):
		return nil
	case !stands.Equal(last):
		return checkpoint.ErrOriginMoved
	}
	if err := s.nobody(ctx, now); err != nil {
		return err
	}
	all := bson.D{{Key: "_id", Value: bson.D{{Key: "$gt", Value: shared}, {Key: "$lt", Value: "shared0"}}}}
	var refused error
	err = whole.find(ctx, all, func(d document, unread error) {
		switch {
		case unread != nil:
			refused = errors.Join(refused, unread)
		case d.checkpoint != nil && change.At(next.Start).After(d.checkpoint.Position):
			refused = fmt.Errorf("%s is at %s, before %s: %w", d.key, d.checkpoint.Position, next.Start, checkpoint.ErrOriginMoved)
		}
	})
	if err = errors.Join(err, refused); err != nil {
		return err
	}
	o := next
	o.Backend = next.Backend.With(stands.Backend)
	if replaced, err := s.replaceOrigin(ctx, d, o); err != nil || !replaced {
		return errors.Join(err, checkpoint.ErrOriginMoved)
	}
	_, err = s.checkpoints.UpdateMany(ctx, all, bson.D{
		{Key: "$set", Value: bson.D{
			{Key: epochField, Value: epochValue(change.Epoch{Incarnation: next.Incarnation})}, {Key: versionField, Value: bson.NewObjectID()},
		}},
		{Key: "$unset", Value: bson.D{{Key: checkpointField, Value: ""}}},
	})
	return err
}

// nobody makes sure that no process owns the partitions. It also writes the owner's document, so
// that a claim before the end of the transaction conflicts with it.
func (s *Store) nobody(ctx context.Context, now time.Time) error {
	var d ownerDocument
	err := s.cluster.FindOne(ctx, bson.D{{Key: "_id", Value: ownerID}}).Decode(&d)
	if errors.Is(err, mongo.ErrNoDocuments) {
		return nil // a process that claims now does so under the old origin
	}
	if err != nil {
		return err
	}
	if d.lives(now) {
		return fault.Newf(fault.NodeRunning, "the partitions are held by node %q; a claim that is not renewed runs out after %s", d.Node, d.ttl())
	}
	_, err = s.cluster.UpdateOne(ctx, bson.D{{Key: "_id", Value: ownerID}}, toNobody())
	return err
}
