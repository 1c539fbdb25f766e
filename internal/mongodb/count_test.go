package mongodb_test

import (
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongostream/streamer/change"
	devmongo "github.com/mongostream/streamer/dev/mongo"
	"github.com/mongostream/streamer/dev/mongo/devmongotest"
	"github.com/mongostream/streamer/internal/mongodb/mongodbtest"
)

// Everything in the log is counted, so nobody else may write; entries that only keep the log going
// may come.
func TestEntriesOfASpanAreCounted(t *testing.T) {
	server := devmongotest.Start(t, devmongo.Config{NoopEvery: time.Millisecond, Adjust: func(p *devmongo.Profile) { p.StrangerEvery = 0 }})
	c := mongodbtest.Dial(t, server.URI())
	coll := c.Driver().Database(mongodbtest.Database(t, c)).Collection("orders")
	insert := func(n int) change.Timestamp {
		t.Helper()
		for i := range n {
			if _, err := coll.InsertOne(t.Context(), bson.D{{Key: "n", Value: i}}); err != nil {
				t.Fatal(err)
			}
		}
		now, err := c.Now(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return now
	}
	first := insert(1)
	second := insert(7)
	third := insert(5)
	for name, span := range map[string]struct {
		from, to change.Timestamp
		want     int64
	}{
		"both":     {first, third, 12},
		"one":      {first, second, 7},
		"none":     {third, third, 0},
		"the end":  {second, change.Timestamp{T: third.T + 1000}, 5},
		"backward": {third, first, 0},
	} {
		if n, known, err := c.CountEntries(t.Context(), span.from, span.to); n != span.want || !known || err != nil {
			t.Errorf("%s: %d, %t, %v; want %d", name, n, known, err, span.want)
		}
	}
}
