package gaplog

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.uber.org/goleak"

	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/internal/devmongo/devmongotest"
	"github.com/mongostream/streamer/internal/mongodb/mongodbtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Several nodes that make room in the gap log at the same time drop what is too much, and no more.
func TestNodesThatDropGapsTogetherDropNoMore(t *testing.T) {
	client := mongodbtest.Dial(t, devmongotest.URI(t))
	store := New(client.Driver().Database(mongodbtest.Database(t, client)).Collection("c.gaps"), 4)
	const droppers = 8
	var documents []any
	for round := range 5 {
		for i := range checkpoint.MaxGaps / 2 {
			n := round*checkpoint.MaxGaps + i
			documents = append(documents, gapDocument{ID: fmt.Sprintf("%06d", n), Found: time.Unix(int64(n), 0)})
		}
		if _, err := store.gaps.InsertMany(t.Context(), documents); err != nil {
			t.Fatal(err)
		}
		total, err := store.gaps.CountDocuments(t.Context(), bson.D{})
		if err != nil {
			t.Fatal(err)
		}
		documents = nil
		var dropping sync.WaitGroup
		for range droppers {
			dropping.Go(func() {
				if err := store.dropGaps(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		dropping.Wait()
		left, err := store.gaps.CountDocuments(t.Context(), bson.D{})
		if err != nil || left != min(total, checkpoint.MaxGaps) {
			t.Fatalf("%d of %d are left, %v", left, total, err)
		}
	}
}
