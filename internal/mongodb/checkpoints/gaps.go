package checkpoints

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/internal/mongodb"
)

// The fields of an entry of the gap log, without its _id.
const (
	gapField   = "gap"   // encoded by checkpoint.EncodeGap
	foundField = "found" // time of the first discovery
)

func (s *Store) gapName(id string) string {
	return s.gaps.Database().Name() + "." + s.gaps.Name() + "/" + id
}

// AddGap implements checkpoint.GapKeeper.
func (s *Store) AddGap(ctx context.Context, g checkpoint.Gap) error {
	g = g.Trimmed()
	err := s.inSession(ctx, func(ctx context.Context) error {
		for range attempts {
			switch added, err := s.addGap(ctx, g); {
			case err != nil:
				return mongodb.AsFault(err)
			case added:
				return mongodb.AsFault(drop(ctx, s.gaps, bson.D{}, foundField, checkpoint.MaxGaps))
			}
		}
		return errContended
	})
	if err != nil {
		return fmt.Errorf("write the gap log: %w", err)
	}
	return nil
}

// addGap makes one attempt; added is false if another process has written the entry meanwhile.
func (s *Store) addGap(ctx context.Context, g checkpoint.Gap) (added bool, err error) {
	id := g.ID()
	var d struct{ Gap string }
	err = s.gaps.FindOne(ctx, bson.D{{Key: "_id", Value: id}}).Decode(&d)
	missing := errors.Is(err, mongo.ErrNoDocuments)
	if err != nil && !missing {
		return false, err
	}
	if !missing {
		next, keep := g.Over(checkpoint.DecodeGap(s.gapName(id), []byte(d.Gap)))
		if keep {
			return true, nil
		}
		g = next
	}
	text, err := checkpoint.EncodeGap(g)
	if err != nil {
		return false, err
	}
	if missing {
		_, err := s.gaps.InsertOne(ctx, bson.D{{Key: "_id", Value: id}, {Key: foundField, Value: g.Found}, {Key: gapField, Value: string(text)}})
		if mongo.IsDuplicateKeyError(err) {
			return false, nil
		}
		return err == nil, err
	}
	if string(text) == d.Gap {
		return true, nil
	}
	result, err := s.gaps.UpdateOne(ctx, bson.D{{Key: "_id", Value: id}, {Key: gapField, Value: d.Gap}},
		bson.D{{Key: "$set", Value: bson.D{{Key: gapField, Value: string(text)}}}})
	return err == nil && result.MatchedCount == 1, err
}

// Gaps implements checkpoint.GapKeeper.
func (s *Store) Gaps(ctx context.Context) (gaps []checkpoint.Gap, err error) {
	cursor, err := s.gaps.Find(ctx, bson.D{})
	if err != nil {
		return nil, fmt.Errorf("read the gap log: %w", mongodb.AsFault(err))
	}
	defer func() { _ = cursor.Close(context.WithoutCancel(ctx)) }()
	var unread []error
	for cursor.Next(ctx) {
		id, ok := cursor.Current.Lookup("_id").StringValueOK()
		if !ok {
			id = cursor.Current.Lookup("_id").String()
		}
		text, _ := cursor.Current.Lookup(gapField).StringValueOK()
		g, err := checkpoint.DecodeGap(s.gapName(id), []byte(text))
		if err != nil {
			unread = append(unread, err)
			continue
		}
		gaps = append(gaps, g)
	}
	if err := cursor.Err(); err != nil {
		return nil, fmt.Errorf("read the gap log: %w", mongodb.AsFault(err))
	}
	checkpoint.SortGaps(gaps)
	return gaps, errors.Join(unread...)
}
