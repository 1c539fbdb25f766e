package snapshot_test

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"pgregory.net/rapid"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/change/changetest"
	"github.com/mongostream/streamer/snapshot"
)

// happened returns an event of document 1 at a time.
func happened(t testing.TB, op string, at uint32, field bson.E) *change.Event {
	t.Helper()
	raw, err := bson.Marshal(bson.D{
		{Key: "_id", Value: bson.Raw(changetest.Token(changetest.Event{Time: change.Timestamp{T: at, I: 1}}))},
		{Key: "operationType", Value: op},
		{Key: "clusterTime", Value: bson.Timestamp{T: at, I: 1}},
		{Key: "ns", Value: bson.D{{Key: "db", Value: "shop"}, {Key: "coll", Value: "orders"}}},
		{Key: "documentKey", Value: bson.D{{Key: "_id", Value: 1}}},
		field,
	})
	if err != nil {
		t.Fatal(err)
	}
	e, err := change.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	return &e
}

// Whichever of its changes a document had had when it was read, a replay ends at the document that
// has had those up to a time.
func TestReplayEndsAtTheTime(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		values := rapid.SampledFrom([]any{1, "x", bson.D{}, bson.D{{Key: "b", Value: 2}, {Key: "c", Value: 3}}, bson.A{}, bson.A{4, bson.D{{Key: "b", Value: 5}}, 6}})
		paths := rapid.SampledFrom([]string{"a", "b", "c", "a.b", "a.c", "a.0", "a.1", "a.1.b", "b.b.c", "c.2"})
		first, err := bson.Marshal(bson.D{{Key: "_id", Value: 1}, {Key: "a", Value: 1}})
		if err != nil {
			rt.Fatal(err)
		}
		states := [][]byte{first}
		var changes []*change.Event
		for at := uint32(1); at <= uint32(rapid.IntRange(1, 12).Draw(rt, "changes")); at++ {
			after, event := changed(t, rt, states[len(states)-1], at, paths.Draw(rt, "path"), values)
			states, changes = append(states, after), append(changes, event)
		}
		until := rapid.IntRange(0, len(changes)).Draw(rt, "until")
		for i, read := range states {
			of := snapshot.NewReplay(change.Namespace{DB: "shop", Coll: "orders"}, []change.Value{change.IDOf(first)})
			for _, event := range changes {
				of.Note(event)
			}
			if i > until { // it was read before that time
				continue
			}
			if read != nil {
				of.Read([][]byte{read})
			}
			got, told := of.At([]change.Value{change.IDOf(first)}, change.Timestamp{T: uint32(until), I: 1})
			if want := states[until]; !told || want == nil && len(got) > 0 || want != nil && (len(got) != 1 || !change.IsAlike(got[0], want)) {
				rt.Fatalf("told %t: from %s: %s, want %s", told, bson.Raw(read), got, bson.Raw(want))
			}
		}
	})
}

// changed draws the next change of a document, and returns the document after it, nil if it is
// gone.
func changed(t *testing.T, rt *rapid.T, doc []byte, at uint32, path string, values *rapid.Generator[any]) (after []byte, event *change.Event) {
	t.Helper()
	what := rapid.IntRange(0, 9).Draw(rt, "what")
	if doc == nil || what == 0 {
		op := "replace"
		if doc == nil {
			op = "insert"
		}
		event = happened(t, op, at, bson.E{Key: "fullDocument", Value: bson.D{{Key: "_id", Value: 1}, {Key: "c", Value: int64(at)}}})
		return event.Lookup("fullDocument").Document(), event
	}
	if what == 1 {
		return nil, happened(t, "delete", at, bson.E{Key: "x", Value: 1})
	}
	var description bson.D
	paths := bson.E{Key: "disambiguatedPaths", Value: bson.D{}}
	switch {
	case what < 4 || !accepts(doc, path): // MongoDB would refuse to set it
		description = bson.D{{Key: "removedFields", Value: bson.A{path}}}
	case what == 4:
		description = bson.D{{Key: "truncatedArrays", Value: bson.A{bson.D{{Key: "field", Value: path}, {Key: "newSize", Value: int32(1)}}}}, paths}
	default:
		description = bson.D{{Key: "updatedFields", Value: bson.D{{Key: path, Value: values.Draw(rt, "value")}}}}
	}
	event = happened(t, "update", at, bson.E{Key: "updateDescription", Value: description})
	after, told := change.Updated(doc, event.Lookup("updateDescription").Document())
	if err := bson.Raw(after).Validate(); !told || err != nil {
		rt.Fatalf("%s after %s: %v", bson.Raw(after), description, err)
	}
	return after, event
}

// accepts reports whether a field of a document can be set: what is on the way is a document, an
// array with an index, or missing.
func accepts(doc []byte, path string) bool {
	steps := strings.Split(path, ".")
	in := change.Value{Type: change.TypeDocument, Data: doc}
	for _, step := range steps {
		switch in.Type {
		case 0:
			return true
		case change.TypeDocument:
			in = in.Lookup(step)
		case change.TypeArray:
			if _, err := strconv.Atoi(step); err != nil {
				return false
			}
			in = change.Value{Type: change.TypeDocument, Data: in.Data}.Lookup(step)
		default:
			return false
		}
	}
	return true
}

// What was read is kept as it was where the changes do not differ from it: fields that were removed
// and set again before it was read have their place.
func TestReplayKeepsTheOrderOfFields(t *testing.T) {
	read, err := bson.Marshal(bson.D{{Key: "_id", Value: 1}, {Key: "a", Value: 1}, {Key: "b", Value: 2}})
	if err != nil {
		t.Fatal(err)
	}
	of := snapshot.NewReplay(change.Namespace{DB: "shop", Coll: "orders"}, []change.Value{change.IDOf(read)})
	for i, description := range []bson.D{
		{{Key: "removedFields", Value: bson.A{"a"}}},
		{{Key: "updatedFields", Value: bson.D{{Key: "a", Value: 1}}}},
		{{Key: "updatedFields", Value: bson.D{{Key: "b", Value: 2}}}},
	} {
		of.Note(happened(t, "update", uint32(i+1), bson.E{Key: "updateDescription", Value: description}))
	}
	of.Read([][]byte{read})
	if got, told := of.At([]change.Value{change.IDOf(read)}, change.Timestamp{T: 9}); !told || len(got) != 1 || !bytes.Equal(got[0], read) {
		t.Errorf("told %t: %s", told, got)
	}
}

// Without all that has happened to a document nothing is said of it.
func TestReplayNeedsEveryChange(t *testing.T) {
	ns, id := change.Namespace{DB: "shop", Coll: "orders"}, change.IDOf(change.WrapDocument(change.AppendInt64(nil, "_id", 1)))
	note := func(e changetest.Event) func(*snapshot.Replay) {
		event, err := change.Parse(e.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		return func(r *snapshot.Replay) { r.Note(&event) }
	}
	at := change.Timestamp{T: 1, I: 1}
	for name, c := range map[string]struct {
		note    func(*snapshot.Replay)
		spoiled bool
	}{
		"a loss":                     {(*snapshot.Replay).Spoil, true},
		"a drop":                     {note(changetest.Event{Op: "drop", Keyless: true, Time: at}), true},
		"another drop":               {note(changetest.Event{Op: "drop", Coll: "other", Keyless: true, Time: at}), false},
		"too much":                   {note(changetest.Event{ID: 1, Time: at, Pad: 17 << 20}), true},
		"a large looked-up document": {note(changetest.Event{Op: "update", ID: 1, Time: at, Whole: true, Value: 1, Pad: 17 << 20}), false},
		"much of another document":   {note(changetest.Event{ID: 2, Time: at, Pad: 17 << 20}), false},
	} {
		t.Run(name, func(t *testing.T) {
			r := snapshot.NewReplay(ns, []change.Value{id})
			r.Read(nil)
			if c.note(r); r.IsReady() == c.spoiled {
				t.Error(fmt.Sprint("ready: ", r.IsReady()))
			}
		})
	}
	r := snapshot.NewReplay(ns, []change.Value{id})
	if r.IsReady() {
		t.Error("it is ready before the documents are read")
	}
	r.Note(happened(t, "update", 1, bson.E{Key: "incomplete", Value: true}))
	r.Read([][]byte{change.WrapDocument(change.AppendInt64(nil, "_id", 1))})
	if _, told := r.At([]change.Value{id}, at); told {
		t.Error("it is told what an update without a description has done")
	}
}
