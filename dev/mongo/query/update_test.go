package query_test

import (
	"slices"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mongostream/streamer/dev/mongo/doc"
	"github.com/mongostream/streamer/dev/mongo/query"
	"github.com/mongostream/streamer/dev/mongo/wire"
)

func parseUpdate(t testing.TB, text string) bsoncore.Value {
	t.Helper()
	var raw bson.Raw
	if err := bson.UnmarshalExtJSON([]byte(`{"v":`+text+`}`), false, &raw); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	v, _ := doc.Field(raw, "v")
	return v
}

func TestWhatChanged(t *testing.T) {
	for _, tc := range []struct {
		name, before, update, after string
		updated                     string
		removed                     []string
		explained                   string
	}{
		{"sorted by path", `{"_id":1,"s":{"t":1},"a":[1,2]}`, `{"$set":{"s.t":2,"a.1":9}}`, `{"_id":1,"s":{"t":2},"a":[1,9]}`, `{"a.1":9,"s.t":2}`, nil, ""},
		{"indexes as numbers", `{"l":[0,0,0,0,0,0,0,0,0,0,0]}`, `{"$set":{"l.10":1,"l.9":1}}`, `{"l":[0,0,0,0,0,0,0,0,0,1,1]}`, `{"l.9":1,"l.10":1}`, nil, ""},
		{"the same again", `{"a":1,"b":2}`, `{"$set":{"a":1,"b":3}}`, `{"a":1,"b":3}`, `{"b":3}`, nil, ""},
		{"nothing", `{"a":1}`, `{"$set":{"a":1},"$unset":{"b":""}}`, `{"a":1}`, "", nil, ""},
		{"push logs the element", `{"l":[1]}`, `{"$push":{"l":2}}`, `{"l":[1,2]}`, `{"l.1":2}`, nil, ""},
		{"unset", `{"n":{"x":1,"y":2}}`, `{"$set":{"n.x":5},"$unset":{"n.y":""}}`, `{"n":{"x":5}}`, `{"n.x":5}`, []string{"n.y"}, ""},
		{"created path", `{}`, `{"$set":{"a.b.c":1}}`, `{"a":{"b":{"c":1}}}`, `{"a.b.c":1}`, nil, ""},
		{"a number is a name", `{"m":{"5":1}}`, `{"$set":{"m.5":2}}`, `{"m":{"5":2}}`, `{"m.5":2}`, nil, `{"m.5":["m","5"]}`},
		{"a number below an index", `{"l":[{"0":1}]}`, `{"$set":{"l.0.0":2}}`, `{"l":[{"0":2}]}`, `{"l.0.0":2}`, nil, `{"l.0.0":["l",0,"0"]}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			u, err := query.ParseUpdate(parseUpdate(t, tc.update))
			if err != nil {
				t.Fatal(err)
			}
			r, err := u.Apply(parseUpdate(t, tc.before).Data, query.UpdateContext{})
			if err != nil {
				t.Fatal(err)
			}
			same(t, "document", r.Doc, tc.after)
			if r.Changed != (tc.updated != "") {
				t.Error("changed:", r.Changed)
			}
			if tc.updated != "" {
				same(t, "updated", r.Updated, tc.updated)
			}
			if !slices.Equal(r.Removed, tc.removed) {
				t.Error("removed", r.Removed)
			}
			if tc.explained == "" && r.Disambiguated != nil {
				t.Error("explained", r.Disambiguated)
			}
			if tc.explained != "" {
				same(t, "explained", r.Disambiguated, tc.explained)
			}
		})
	}
}

func same(t *testing.T, what string, got bsoncore.Document, want string) {
	t.Helper()
	if w := parseUpdate(t, want).Data; string(got) != string(w) {
		t.Errorf("%s: %s, want %s", what, got, want)
	}
}

func TestDescribe(t *testing.T) {
	old := parseUpdate(t, `{"_id":1,"a":1,"n":{"x":1,"y":2},"l":[1,{"k":1},3,4],"gone":1,"same":[1,2]}`).Data
	r := query.UpdateResult{Whole: true, Doc: parseUpdate(t, `{"_id":1,"a":2,"n":{"x":1,"z":3},"l":[1,{"k":2}],"new":true,"same":[1,2]}`).Data}
	truncated := r.Describe(old)
	same(t, "updated", r.Updated, `{"a":2,"n.z":3,"l.1.k":2,"new":true}`)
	if !slices.Equal(r.Removed, []string{"n.y", "gone"}) || r.Whole {
		t.Error(r.Removed)
	}
	if !slices.Equal(truncated, []query.Truncation{{Field: "l", NewSize: 2}}) {
		t.Error(truncated)
	}
}

func FuzzApply(f *testing.F) {
	bytes := func(s string) []byte { return parseUpdate(f, s).Data }
	f.Add(bytes(`{"$set":{"a.1.b":2},"$inc":{"c":1},"$push":{"l":1},"$unset":{"d.e":""}}`), bytes(`{"_id":1,"a":[1,{"b":1}],"c":2,"l":[]}`), false)
	f.Add(bytes(`{"0":{"$set":{"a":"$b.c","d":{"$add":["$c",1]}}}}`), bytes(`{"_id":1,"b":[{"c":1}],"c":2}`), true)
	f.Fuzz(func(t *testing.T, spec, old []byte, pipeline bool) {
		if wire.Validate(spec) != nil || wire.Validate(old) != nil {
			return
		}
		v := bsoncore.Value{Type: bsoncore.TypeEmbeddedDocument, Data: spec}
		if pipeline {
			v.Type = bsoncore.TypeArray
		}
		u, err := query.ParseUpdate(v)
		if err != nil {
			return
		}
		r, err := u.Apply(old, query.UpdateContext{})
		if err != nil {
			return
		}
		if err := wire.Validate(r.Doc); err != nil {
			t.Error(err)
		}
		if r.Whole {
			r.Describe(old)
		}
	})
}
