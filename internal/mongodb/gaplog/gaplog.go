package gaplog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/checkpoint/record"
	"github.com/mongostream/streamer/internal/mongodb"
)

// A Log keeps entries in one collection. Reads and writes are with majority concern, as its database's.
type Log struct {
	gaps       *mongo.Collection
	partitions int
}

var _ checkpoint.GapKeeper = (*Log)(nil)

// New makes the log in a collection, of a cluster of so many partitions.
func New(gaps *mongo.Collection, partitions int) *Log {
	return &Log{gaps: gaps, partitions: partitions}
}

// A gapDocument is an entry of the gap log as it is stored: Gap is the whole entry in record's form.
type gapDocument struct {
	ID    string    `bson:"_id"`
	Found time.Time `bson:"found"`
	Gap   string    `bson:"gap"`
}

func (l *Log) gapKey(id string) string {
	return l.gaps.Database().Name() + "." + l.gaps.Name() + "/" + id
}

// AddGap implements checkpoint.GapKeeper.
func (l *Log) AddGap(ctx context.Context, g checkpoint.Gap) error {
	g = g.Trimmed()
	for {
		added, err := l.addGap(ctx, g)
		if err != nil {
			return fmt.Errorf("write the gap log: %w", err)
		}
		if added {
			return l.dropGaps(ctx)
		}
	}
}

// addGap makes one attempt; added is false where somebody else has written the entry meanwhile.
func (l *Log) addGap(ctx context.Context, g checkpoint.Gap) (added bool, err error) {
	id := g.ID()
	var d gapDocument
	err = l.gaps.FindOne(ctx, bson.D{{Key: "_id", Value: id}}).Decode(&d)
	missing := errors.Is(err, mongo.ErrNoDocuments)
	if err != nil && !missing {
		return false, mongodb.AsFault(err)
	}
	if !missing {
		known, err := record.DecodeGap(l.gapKey(id), l.partitions, []byte(d.Gap))
		if err != nil {
			return false, err
		}
		g = known.Again(g)
	}
	text, err := record.EncodeGap(g, l.partitions)
	if err != nil {
		return false, err
	}
	if missing {
		_, err := l.gaps.InsertOne(ctx, gapDocument{ID: id, Found: g.Found, Gap: string(text)})
		if mongo.IsDuplicateKeyError(err) {
			return false, nil
		}
		return err == nil, mongodb.AsFault(err)
	}
	if string(text) == d.Gap {
		return true, nil
	}
	result, err := l.gaps.UpdateOne(ctx, bson.D{{Key: "_id", Value: id}, {Key: "gap", Value: d.Gap}},
		bson.D{{Key: "$set", Value: bson.D{{Key: "gap", Value: string(text)}}}})
	return err == nil && result.MatchedCount == 1, mongodb.AsFault(err)
}

// dropGaps deletes what stands behind the youngest entries that are kept. What does so once does so for good, so that whoever else drops at
// the same time drops nothing more.
func (l *Log) dropGaps(ctx context.Context) error {
	behind := options.Find().SetSort(bson.D{{Key: "found", Value: -1}, {Key: "_id", Value: -1}}).SetSkip(checkpoint.MaxGaps).
		SetProjection(bson.D{{Key: "_id", Value: 1}})
	cursor, err := l.gaps.Find(ctx, bson.D{}, behind)
	if err != nil {
		return fmt.Errorf("read the gap log: %w", mongodb.AsFault(err))
	}
	var drop []gapDocument
	if err := cursor.All(ctx, &drop); err != nil {
		return fmt.Errorf("read the gap log: %w", mongodb.AsFault(err))
	}
	if len(drop) == 0 {
		return nil
	}
	ids := make(bson.A, len(drop))
	for i, d := range drop {
		ids[i] = d.ID
	}
	if _, err := l.gaps.DeleteMany(ctx, bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: ids}}}}); err != nil {
		return fmt.Errorf("drop from the gap log: %w", mongodb.AsFault(err))
	}
	return nil
}

// Gaps implements checkpoint.GapKeeper.
func (l *Log) Gaps(ctx context.Context) ([]checkpoint.Gap, error) {
	cursor, err := l.gaps.Find(ctx, bson.D{})
	if err != nil {
		return nil, fmt.Errorf("read the gap log: %w", mongodb.AsFault(err))
	}
	var documents []gapDocument
	if err := cursor.All(ctx, &documents); err != nil {
		return nil, fmt.Errorf("read the gap log: %w", mongodb.AsFault(err))
	}
	gaps := make([]checkpoint.Gap, 0, len(documents))
	var unread []error
	for _, d := range documents {
		g, err := record.DecodeGap(l.gapKey(d.ID), l.partitions, []byte(d.Gap))
		if err != nil {
			unread = append(unread, err)
			continue
		}
		gaps = append(gaps, g)
	}
	checkpoint.SortGaps(gaps)
	return gaps, errors.Join(unread...)
}
