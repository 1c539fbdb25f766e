package mark

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/checkpoint/record"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/internal/mongodb"
)

// Repartition puts next, which may count the partitions otherwise, in the place of last, and takes the marks away in the same transaction, so
// that every partition begins at next's start. Their documents stay, as fences and for the histories. The gap log and rows tell of how
// many partitions they are, and stay too. No mark may stand before next's start, and nobody may own the partitions: else it is the fault
// NodeRunning. Where last does not stand it is checkpoint.ErrOriginMoved; that next stands already is nil.
func (m *Store) Repartition(ctx context.Context, last, next checkpoint.Origin) (checkpoint.Origin, error) {
	text, err := record.EncodeOrigin(next)
	if err != nil {
		return checkpoint.Origin{}, err
	}
	now, err := m.now(ctx)
	if err != nil {
		return checkpoint.Origin{}, err
	}
	session, err := m.cluster.Database().Client().StartSession()
	if err != nil {
		return checkpoint.Origin{}, fmt.Errorf("repartition: %w", mongodb.AsFault(err))
	}
	defer session.EndSession(context.WithoutCancel(ctx))
	_, err = session.WithTransaction(ctx, func(ctx context.Context) (any, error) {
		return nil, m.repartition(ctx, last, next, string(text), now)
	})
	if _, known := errors.AsType[*fault.Error](err); err != nil && !known && !errors.Is(err, checkpoint.ErrOriginMoved) {
		err = mongodb.AsFault(err)
	}
	if err != nil {
		return checkpoint.Origin{}, fmt.Errorf("repartition: %w", err)
	}
	return next, nil
}

// repartition is what is done in the transaction.
func (m *Store) repartition(ctx context.Context, last, next checkpoint.Origin, text string, now time.Time) error {
	stands, err := m.origin(ctx, 0)
	switch {
	case err != nil:
		return err
	case stands.Equal(next):
		return nil
	case !stands.Equal(last):
		return checkpoint.ErrOriginMoved
	}
	if err := m.nobody(ctx, now); err != nil {
		return err
	}
	documents, err := m.documents(ctx, bson.D{})
	if err != nil {
		return err
	}
	for p, d := range documents {
		mark, _, err := m.mark(d)
		switch {
		case errors.Is(err, checkpoint.ErrNoMark):
		case err != nil:
			return err
		case change.At(next.Start).After(mark.Position):
			return fmt.Errorf("partition %d stands at %s, before %s: %w", p, mark.Position, next.Start, checkpoint.ErrOriginMoved)
		}
	}
	set := bson.D{{Key: "$set", Value: bson.D{{Key: "origin", Value: text}}}}
	if _, err := m.cluster.UpdateOne(ctx, bson.D{{Key: "_id", Value: originID}}, set); err != nil {
		return err
	}
	unmarked := append(ofEpoch(change.Epoch{Incarnation: next.Incarnation}), bson.E{Key: "order", Value: ""}, bson.E{Key: "mark", Value: ""})
	_, err = m.marks.UpdateMany(ctx, bson.D{}, bson.D{{Key: "$set", Value: unmarked}})
	return err
}

// nobody makes sure that no process owns the partitions, and that none claims them before the transaction ends: it would write the same
// document.
func (m *Store) nobody(ctx context.Context, now time.Time) error {
	var d ownerDocument
	err := m.cluster.FindOne(ctx, bson.D{{Key: "_id", Value: ownerID}}).Decode(&d)
	if errors.Is(err, mongo.ErrNoDocuments) {
		return nil // who claims now does so under the origin that was
	}
	if err != nil {
		return err
	}
	if d.lives(now) {
		return fault.Newf(fault.NodeRunning, "the partitions are held by node %q; a claim that is not renewed runs out after %s", d.Node, d.ttl())
	}
	_, err = m.cluster.UpdateOne(ctx, bson.D{{Key: "_id", Value: ownerID}}, toNobody())
	return err
}
