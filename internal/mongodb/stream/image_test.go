package stream

import (
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongostream/change"
	"mongostream/fault"
	"mongostream/internal/devmongo"
	"mongostream/internal/devmongo/devmongotest"
	"mongostream/internal/mongodb/mongodbtest"
)

// An event whose required document is missing comes without it and says so; the stream goes on, opened anew once for all of them.
func TestMissingImageIsToldInItsEvent(t *testing.T) {
	server := devmongotest.Start(t, devmongo.Config{Release: "7.0"})
	s := newScene(t, server.URI(), SourceConfig{Watch: Watch{FullDocument: "required"}})
	kept := s.coll.Database().Collection("kept")
	create := bson.D{{Key: "create", Value: "kept"}, {Key: "changeStreamPreAndPostImages", Value: bson.D{{Key: "enabled", Value: true}}}}
	if err := s.coll.Database().RunCommand(t.Context(), create).Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := kept.InsertOne(t.Context(), bson.D{{Key: "_id", Value: "kept"}}); err != nil {
		t.Fatal(err)
	}
	stream := s.open(change.Position{})
	before := server.Stats().ChangeStreamsOpened
	s.insert("before")
	for v := range 5 {
		update := bson.D{{Key: "$set", Value: bson.D{{Key: "v", Value: v}}}}
		if _, err := s.coll.UpdateByID(t.Context(), "first", update); err != nil {
			t.Fatal(err)
		}
		if _, err := kept.UpdateByID(t.Context(), "kept", update); err != nil {
			t.Fatal(err)
		}
	}
	var last change.Position
	seen := map[string]int{}
	for len(seen) < 3 || seen["first"] < 5 || seen["kept"] < 5 {
		for _, e := range s.read(stream, 1) {
			if !e.Position().After(last) {
				continue
			}
			last = e.Position().Clone()
			id := string(e.ID().Text())
			seen[id]++
			incomplete := bson.Raw(e.Raw()).Lookup(Incomplete)
			if missing := id == "first"; missing != (e.Lookup("fullDocument").Type == byte(bson.TypeNull)) || missing != (incomplete.Type == bson.TypeBoolean && incomplete.Boolean()) {
				t.Errorf("%s: document %v, mark %v", id, e.Lookup("fullDocument"), incomplete)
			}
			if err := bson.Raw(e.Raw()).Validate(); err != nil {
				t.Error(err)
			}
		}
	}
	if seen["before"] != 1 || seen["first"] != 5 || seen["kept"] != 5 {
		t.Errorf("saw %v", seen)
	}
	if n := server.Stats().ChangeStreamsOpened - before; n != 1 {
		t.Errorf("opened anew %d times", n)
	}
}

// Where the server cannot do what is asked for, that is found before anything is read.
func TestProbeFindsAnImageThatCannotBeHad(t *testing.T) {
	c := mongodbtest.Dial(t, devmongotest.Start(t, devmongo.Config{Release: "4.4"}).URI())
	source, err := NewSource(SourceConfig{Watch: Watch{FullDocument: "required"}}, c)
	if err != nil {
		t.Fatal(err)
	}
	if err := source.Probe(t.Context()); fault.Of(err) != fault.MongoRefused {
		t.Errorf("%v", err)
	}
}
