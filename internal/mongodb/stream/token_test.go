package stream

import (
	"context"
	"math"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongostream/streamer/change"
	devmongo "github.com/mongostream/streamer/dev/mongo"
	"github.com/mongostream/streamer/dev/mongo/devmongotest"
)

// A server of another release gives the same changes tokens of another version. Their positions are
// those of the same changes, whatever the type of the _id, and of no others.
func TestPositionsOfTwoVersionsAreOfTheSameChanges(t *testing.T) {
	server := devmongotest.Start(t, devmongo.Config{Release: "7.0"})
	s := newScene(t, server.URI(), SourceConfig{})
	var begin change.Timestamp
	begin.T, begin.I = uint32(server.ClusterTime()>>32), uint32(server.ClusterTime())
	begin = begin.Next()
	ids := []any{
		1, int64(1) << 40, 2.5, math.Inf(1), math.NaN(), "a", "", "a\x00b", "004600", bson.D{{Key: "a", Value: 1}, {Key: "b", Value: bson.A{1, "x", nil}}}, bson.D{},
		bson.D{{Key: "operationType", Value: "insert"}}, bson.NewObjectID(), true, false, bson.DateTime(5), bson.Timestamp{T: 4, I: 2}, bson.Binary{Subtype: 4, Data: make([]byte, 16)},
		bson.Binary{Data: []byte{0, 0xFF, 0}}, bson.MinKey{}, bson.MaxKey{}, nil, bson.NewDecimal128(3, 7), bson.JavaScript("x"), bson.D{{Key: "documentKey", Value: bson.D{{Key: "_id", Value: 1}}}},
	}
	for _, id := range ids {
		if _, err := s.coll.InsertOne(t.Context(), bson.D{{Key: "_id", Value: id}}); err != nil {
			t.Fatalf("%v: %v", id, err)
		}
	}
	session, err := s.client.Driver().StartSession()
	if err != nil {
		t.Fatal(err)
	}
	defer session.EndSession(context.Background())
	_, err = session.WithTransaction(t.Context(), func(ctx context.Context) (any, error) {
		for v := range 3 {
			if _, err := s.coll.UpdateOne(ctx, bson.D{{Key: "_id", Value: "a"}}, bson.D{{Key: "$set", Value: bson.D{{Key: "v", Value: v}}}}); err != nil {
				return nil, err
			}
		}
		return nil, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.coll.Drop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.coll.Database().Drop(t.Context()); err != nil {
		t.Fatal(err)
	}
	n := len(ids) + 3 + 2
	events := make(map[int][]change.Event)
	for _, version := range []int{1, 2} {
		server.SetTokenVersion(version)
		events[version] = s.read(s.open(change.At(begin)), n)
	}
	known := make(map[change.Ref]int)
	for i := range n {
		one, two := events[1][i].Position(), events[2][i].Position()
		if one.Ref() != two.Ref() || one.Form() == two.Form() || one.Comparable(two) {
			t.Errorf("event %d, %s: its tokens are of two changes", i, events[1][i].OpName())
		}
		if before, there := known[one.Ref()]; there {
			t.Errorf("events %d and %d have one position", before, i)
		}
		known[one.Ref()] = i
	}
}
