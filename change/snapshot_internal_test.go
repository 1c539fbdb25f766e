package change

import (
	"bytes"
	"reflect"
	"testing"

	"pgregory.net/rapid"
)

// The events of documents are what Parse finds in their bytes.
func TestDocumentsAreAsParsed(t *testing.T) {
	s := NewSnapshotter(Namespace{DB: "shop", Coll: "orders"}, Timestamp{T: 9, I: 1})
	rapid.Check(t, func(t *rapid.T) {
		doc := BeginDocument(nil)
		for range rapid.IntRange(0, 3).Draw(t, "fields before") {
			doc = AppendString(doc, rapid.StringMatching(`[a-z]{1,5}`).Draw(t, "name"), rapid.String().Draw(t, "text"))
		}
		switch rapid.IntRange(0, 3).Draw(t, "type of _id") {
		case 0:
			doc = AppendString(doc, "_id", rapid.StringMatching(`[a-z]{0,40}`).Draw(t, "_id"))
		case 1:
			doc = AppendDocument(doc, "_id", WrapDocument(AppendString(nil, "_id", "inner")))
		case 2:
			doc = AppendElement(doc, TypeObjectID, "_id", bytes.Repeat([]byte{7}, 12))
		case 3:
			doc = AppendElement(doc, TypeNull, "_id", nil)
		}
		doc = EndDocument(AppendString(doc, "last", "x"), 0)
		e, err := s.Event(doc)
		if err != nil {
			t.Fatal(err)
		}
		parsed, err := Parse(e.Raw())
		if err != nil || !reflect.DeepEqual(e, parsed) {
			t.Fatalf("%+v\nparsed: %+v, %v", e, parsed, err)
		}
		if !bytes.Equal(e.Lookup("fullDocument").Data, doc) {
			t.Fatalf("%x", e.Lookup("fullDocument").Data)
		}
	})
}

// What is no document, or has no _id, is none.
func TestUnreadableDocumentsAreRefused(t *testing.T) {
	s := NewSnapshotter(Namespace{DB: "shop", Coll: "orders"}, Timestamp{T: 9, I: 1})
	whole := EndDocument(AppendString(BeginDocument(nil), "_id", "a"), 0)
	for _, doc := range [][]byte{nil, whole[:len(whole)-1], append(bytes.Clone(whole), 0), emptyDocument} {
		if e, err := s.Event(doc); err == nil {
			t.Errorf("%x: %x", doc, e.Raw())
		}
	}
}
