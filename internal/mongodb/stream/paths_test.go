package stream

import (
	"fmt"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongostream/streamer/change"
	devmongo "github.com/mongostream/streamer/dev/mongo"
	"github.com/mongostream/streamer/dev/mongo/devmongotest"
)

// Where the server can say which fields an update means, it is asked to. Nothing else comes of
// that: the events are those of a plain stream.
func TestUpdatesSayWhichFieldsTheyMean(t *testing.T) {
	for release, says := range map[string]bool{"4.4": false, "6.0": false, "7.0": true, "8.0": true} {
		t.Run(release, func(t *testing.T) {
			s := newScene(t, devmongotest.Start(t, devmongo.Config{Release: release}).URI(), SourceConfig{})
			stream := s.open(change.Position{})
			db := s.coll.Database()
			if err := db.RunCommand(t.Context(), bson.D{{Key: "create", Value: "other"}}).Err(); err != nil {
				t.Fatal(err)
			}
			for _, update := range []any{
				bson.D{{Key: "$set", Value: bson.D{{Key: "m", Value: bson.D{{Key: "5", Value: 0}}}}}}, bson.D{{Key: "$set", Value: bson.D{{Key: "m.5", Value: 1}}}},
			} {
				if _, err := s.coll.UpdateByID(t.Context(), "first", update); err != nil {
					t.Fatal(err)
				}
			}
			if err := db.Collection("other").Drop(t.Context()); err != nil {
				t.Fatal(err)
			}
			events := s.read(stream, 3)
			if ops := fmt.Sprintf("%s %s %s", events[0].OpName(), events[1].OpName(), events[2].OpName()); ops != "update update drop" {
				t.Errorf("saw %s", ops)
			}
			paths := bson.Raw(events[1].Raw()).Lookup("updateDescription", "disambiguatedPaths")
			if path := fmt.Sprint(paths); says != (path == `{"m.5": ["m","5"]}`) || says == paths.IsZero() {
				t.Errorf("the path is explained as %s", path)
			}
		})
	}
}
