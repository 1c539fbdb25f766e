package stream

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// hostile is a document whose texts would end a string, a line and a frame of server-sent events wherever they are written as they are.
func hostile(t testing.TB) []byte {
	t.Helper()
	const text = "x\"}}\n\nid: forged\nevent: forged\ndata: {\"a\":\"\r\n\u2028\x00\x01\xff"
	const name = "n\"\n\ndata: forged"
	pointer := bson.DBPointer{DB: text, Pointer: bson.ObjectID{1}}
	b, err := bson.Marshal(bson.D{
		{Key: name, Value: text}, {Key: "pointer", Value: pointer}, {Key: "symbol", Value: bson.Symbol(text)}, {Key: "code", Value: bson.JavaScript(text)},
		{Key: "scoped", Value: bson.CodeWithScope{Code: bson.JavaScript(text), Scope: bson.D{{Key: name, Value: pointer}}}},
		{Key: "regex", Value: bson.Regex{Pattern: "a\"\n\ndata: forged", Options: "i\"\n\n"}}, {Key: "binary", Value: []byte(text)},
		{Key: "inside", Value: bson.D{{Key: name, Value: bson.A{pointer, bson.D{{Key: "p", Value: pointer}}}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// wantOneLine checks that a text is one JSON value in one line.
func wantOneLine(t *testing.T, text []byte) {
	t.Helper()
	if !json.Valid(text) {
		t.Errorf("not JSON: %q", text)
	}
	for i, c := range text {
		if c < 0x20 {
			t.Fatalf("byte %d is %#x: %q", i, c, text)
		}
	}
}

func TestHostileTextIsEscaped(t *testing.T) {
	raw := hostile(t)
	text, err := DocumentJSON(nil, raw)
	if err != nil {
		t.Fatal(err)
	}
	wantOneLine(t, text)
	var back bson.D
	if err := bson.UnmarshalExtJSON(text, false, &back); err != nil {
		t.Fatal(err)
	}
	want, _ := bson.Raw(raw).Lookup("inside").Document().Elements()
	inner, _ := want[0].Value().Array().Values()
	ns, _ := inner[0].DBPointer()
	for _, e := range back {
		if p, ok := e.Value.(bson.DBPointer); ok && p.DB != strings.ToValidUTF8(ns, "\ufffd") {
			t.Errorf("%q came back as %q", ns, p.DB)
		}
	}
	if len(back) != 8 {
		t.Errorf("%d fields", len(back))
	}
}

// FuzzJSON writes any document that MongoDB could hold in one line of JSON.
func FuzzJSON(f *testing.F) {
	f.Add(hostile(f))
	for _, d := range []bson.D{
		{}, {{Key: "a", Value: bson.DateTime(1 << 62)}}, {{Key: "a", Value: bson.DateTime(-1)}}, {{Key: "a", Value: math.Inf(1)}}, {{Key: "", Value: bson.MinKey{}}},
		{{Key: "_id", Value: bson.D{{Key: "_data", Value: "82"}}}, {Key: "d", Value: bson.NewDecimal128(1<<63, 5)}, {Key: "u", Value: bson.Undefined{}}},
	} {
		b, err := bson.Marshal(d)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		text, err := DocumentJSON([]byte("before"), raw)
		if err != nil {
			if bson.Unmarshal(raw, &bson.D{}) == nil {
				t.Fatalf("a document that can be read is refused: %v", err)
			}
			if string(text) != "before" {
				t.Fatalf("%q with an error", text)
			}
			return
		}
		wantOneLine(t, text[len("before"):])
	})
}
