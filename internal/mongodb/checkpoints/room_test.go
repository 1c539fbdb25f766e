package checkpoints

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/dev/mongo/devmongotest"
)

// Several nodes that make room at the same time drop what is too much, and no more.
func TestNodesThatMakeRoomTogetherDropNoMore(t *testing.T) {
	t.Parallel()
	s := newStore(t, devmongotest.URI(t))
	const droppers = 8
	for round := range 5 {
		var documents []any
		for i := range checkpoint.MaxGaps / 2 {
			n := round*checkpoint.MaxGaps + i
			documents = append(documents, bson.D{{Key: "_id", Value: fmt.Sprintf("%06d", n)}, {Key: foundField, Value: time.Unix(int64(n), 0)}})
		}
		if _, err := s.gaps.InsertMany(t.Context(), documents); err != nil {
			t.Fatal(err)
		}
		total, err := s.gaps.CountDocuments(t.Context(), bson.D{})
		if err != nil {
			t.Fatal(err)
		}
		var dropping sync.WaitGroup
		for range droppers {
			dropping.Go(func() {
				if err := drop(t.Context(), s.gaps, bson.D{}, foundField, checkpoint.MaxGaps); err != nil {
					t.Error(err)
				}
			})
		}
		dropping.Wait()
		left, err := s.gaps.CountDocuments(t.Context(), bson.D{})
		if err != nil || left != min(total, checkpoint.MaxGaps) {
			t.Fatalf("%d of %d are left, %v", left, total, err)
		}
	}
}

// Of too many subscribers those make room that were written longest ago by the server's clock.
// Shared subscribers do not count, and stay.
func TestSubscribersMakeRoom(t *testing.T) {
	t.Parallel()
	s := newStore(t, devmongotest.URI(t))
	renewed := s.claimed(t, "renewed", 1)
	shared := s.begin(t, 1, 3)
	if _, err := s.ClaimTerms(t.Context(), "shared", shared); err != nil {
		t.Fatal(err)
	}
	now := uint32(time.Now().Add(-time.Hour).Unix())
	var documents []any
	for n := range checkpoint.MaxSubscribers {
		documents = append(documents, bson.D{{Key: "_id", Value: fmt.Sprintf("exclusive/%06d", n)}, {Key: savedField, Value: bson.Timestamp{T: now, I: uint32(n + 1)}}})
	}
	if _, err := s.checkpoints.InsertMany(t.Context(), documents); err != nil {
		t.Fatal(err)
	}
	past := bson.D{{Key: "$set", Value: bson.D{{Key: savedField, Value: bson.Timestamp{T: now - 1, I: 1}}}}}
	if _, err := s.checkpoints.UpdateMany(t.Context(), bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: bson.A{idOf(renewed.Key), "shared/shared/00003"}}}}}, past); err != nil {
		t.Fatal(err)
	}
	s.claimed(t, "renewed", 2) // it is the youngest then
	s.claimed(t, "new", 1)
	cursor, err := s.checkpoints.Find(t.Context(), bson.D{}, options.Find().SetProjection(bson.D{{Key: "_id", Value: 1}}))
	if err != nil {
		t.Fatal(err)
	}
	var left []struct {
		ID string `bson:"_id"`
	}
	if err := cursor.All(t.Context(), &left); err != nil {
		t.Fatal(err)
	}
	there := make(map[string]bool)
	for _, d := range left {
		there[d.ID] = true
	}
	if len(left) != checkpoint.MaxSubscribers+1 || !there["shared/shared/00003"] || !there["exclusive/renewed"] || !there["exclusive/new"] ||
		there["exclusive/000000"] || there["exclusive/000001"] || !there["exclusive/000002"] {
		t.Errorf("%d are left", len(left))
	}
}
