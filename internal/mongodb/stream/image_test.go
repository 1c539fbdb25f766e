package stream

import (
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongostream/streamer/change"
	devmongo "github.com/mongostream/streamer/dev/mongo"
	"github.com/mongostream/streamer/dev/mongo/devmongotest"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/internal/mongodb/mongodbtest"
)

// An event whose required document is missing comes without it and says so; the stream goes on,
// opened anew once for all of them.
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

// Changes carry the document as it was before where that is asked for and kept; what lacks it while
// it is required says so.
func TestImagesBeforeChanges(t *testing.T) {
	server := devmongotest.Start(t, devmongo.Config{Release: "7.0"})
	for _, mode := range []string{"", "whenAvailable", "required"} {
		s := newScene(t, server.URI(), SourceConfig{Watch: Watch{BeforeChange: mode, FullDocument: "updateLookup"}})
		db := s.coll.Database()
		kept := db.Collection("kept" + mode)
		create := bson.D{{Key: "create", Value: kept.Name()}, {Key: "changeStreamPreAndPostImages", Value: bson.D{{Key: "enabled", Value: true}}}}
		if err := db.RunCommand(t.Context(), create).Err(); err != nil {
			t.Fatal(err)
		}
		for _, coll := range []*mongo.Collection{kept, s.coll} {
			if _, err := coll.InsertOne(t.Context(), bson.D{{Key: "_id", Value: "x" + mode}, {Key: "v", Value: 1}}); err != nil {
				t.Fatal(err)
			}
		}
		stream := s.open(change.Position{})
		for _, coll := range []*mongo.Collection{kept, s.coll} {
			if _, err := coll.UpdateByID(t.Context(), "x"+mode, bson.D{{Key: "$set", Value: bson.D{{Key: "v", Value: 2}}}}); err != nil {
				t.Fatal(err)
			}
			if _, err := coll.DeleteOne(t.Context(), bson.D{{Key: "_id", Value: "x" + mode}}); err != nil {
				t.Fatal(err)
			}
		}
		var last change.Position
		for seen := 0; seen < 4; {
			for _, e := range s.read(stream, 1) {
				if !e.Position().After(last) {
					continue
				}
				last = e.Position().Clone()
				seen++
				image, incomplete := bson.Raw(e.Raw()).Lookup("fullDocumentBeforeChange"), bson.Raw(e.Raw()).Lookup(Incomplete).Type != 0
				there := mode != "" && string(e.Coll()) == kept.Name()
				if _, is := image.DocumentOK(); is != there || incomplete != (mode == "required" && !there) {
					t.Errorf("%q: %s of %s: image %v, incomplete %t", mode, e.OpName(), e.Coll(), image, incomplete)
				}
			}
		}
	}
}

// Who asks for other images opens the log at the times of its marks, not at tokens; marks from
// before there was a choice stay good.
func TestImagesBeforeChangesHaveAFingerprintOfTheirOwn(t *testing.T) {
	prints := map[string]string{}
	for _, w := range []Watch{{}, {FullDocument: "required"}, {BeforeChange: "whenAvailable"}, {BeforeChange: "required"}} {
		prints[w.BeforeChange] = w.fingerprint(abilities{split: true})
	}
	if len(prints) != 3 || prints[""] == prints["required"] || prints["required"] == prints["whenAvailable"] || prints[""] == prints["whenAvailable"] {
		t.Errorf("%v", prints)
	}
	if got := (Watch{}).fingerprint(abilities{}); got != "fca0e27a048da72e" {
		t.Errorf("marks without images before changes were made with another fingerprint than %s", got)
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
