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
			u, err := query.ParseUpdate(parseUpdate(t, tc.update), bsoncore.Value{})
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
	f.Add(bytes(`{"$push":{"l":{"$each":[2,1],"$sort":1,"$slice":2}},"$pull":{"k":{"$gt":1}},"$rename":{"a":"b"},"$inc":{"m.$[].n":1},"$bit":{"i":{"xor":3}}}`),
		bytes(`{"_id":1,"a":1,"l":[3],"k":[1,2],"m":[{"n":1}],"i":1}`), false)
	f.Add(bytes(`{"0":{"$replaceWith":{"$setField":{"field":"a.b","input":"$$ROOT","value":1}}},"1":{"$unset":["b","c.d"]}}`), bytes(`{"_id":1,"b":1,"c":[{"d":1}]}`), true)
	f.Add(bytes(`{"0":{"$set":{"a":"$b.c","d":{"$add":["$c",1]}}}}`), bytes(`{"_id":1,"b":[{"c":1}],"c":2}`), true)
	f.Fuzz(func(t *testing.T, spec, old []byte, pipeline bool) {
		if wire.Validate(spec) != nil || wire.Validate(old) != nil {
			return
		}
		v := bsoncore.Value{Type: bsoncore.TypeEmbeddedDocument, Data: spec}
		if pipeline {
			v.Type = bsoncore.TypeArray
		}
		u, err := query.ParseUpdate(v, bsoncore.Value{})
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

// The results are those of the examples and rules on the pages of MongoDB's manual that are about
// each operator.
func TestOperators(t *testing.T) {
	for _, tc := range []struct {
		name, before, filter, update, arrayFilters string
		after, updated                             string // updated: as the oplog names it
	}{
		{"$mul", `{"p":3,"q":{"$numberLong":"2"}}`, `{}`, `{"$mul":{"p":1.5,"q":2,"r":7}}`, ``, `{"p":4.5,"q":{"$numberLong":"4"},"r":0}`, `{"p":4.5,"q":{"$numberLong":"4"},"r":0}`},
		{"$bit", `{"a":13,"b":3,"c":1}`, `{}`, `{"$bit":{"a":{"and":10},"b":{"or":5},"c":{"xor":5},"d":{"or":4}}}`, ``, `{"a":8,"b":7,"c":4,"d":4}`, `{"a":8,"b":7,"c":4,"d":4}`},
		{"$rename", `{"name":{"first":"g"},"x":1}`, `{}`, `{"$rename":{"name.first":"name.fname","x":"y","none":"z"}}`, ``, `{"name":{"fname":"g"},"y":1}`, `{"name.fname":"g","y":1}`},
		{"$push each", `{"l":[1]}`, `{}`, `{"$push":{"l":{"$each":[2,3]}}}`, ``, `{"l":[1,2,3]}`, `{"l.1":2,"l.2":3}`},
		{"$push sort and slice", `{"l":[{"s":5},{"s":2}]}`, `{}`, `{"$push":{"l":{"$each":[{"s":8},{"s":6}],"$sort":{"s":-1},"$slice":3}}}`, ``, `{"l":[{"s":8},{"s":6},{"s":5}]}`, `{"l":[{"s":8},{"s":6},{"s":5}]}`},
		{"$push slice from the end", `{"l":[40,50]}`, `{}`, `{"$push":{"l":{"$each":[80,78],"$slice":-3}}}`, ``, `{"l":[50,80,78]}`, `{"l":[50,80,78]}`},
		{"$push position", `{"l":[100,50]}`, `{}`, `{"$push":{"l":{"$each":[20,30],"$position":-1}}}`, ``, `{"l":[100,20,30,50]}`, `{"l":[100,20,30,50]}`},
		{"$push into nothing", `{}`, `{}`, `{"$push":{"a.l":{"$each":[3,1],"$sort":1}}}`, ``, `{"a":{"l":[1,3]}}`, `{"a.l":[1,3]}`},
		{"$addToSet", `{"l":[1,"a"]}`, `{}`, `{"$addToSet":{"l":{"$each":["a","b",1.0,"b"]}}}`, ``, `{"l":[1,"a","b"]}`, `{"l":[1,"a","b"]}`},
		{"$addToSet an array", `{"l":["a"]}`, `{}`, `{"$addToSet":{"l":["c","d"]}}`, ``, `{"l":["a",["c","d"]]}`, `{"l":["a",["c","d"]]}`},
		{"$pop", `{"l":[8,9,10],"k":[1,2]}`, `{}`, `{"$pop":{"l":-1,"k":1,"none":1}}`, ``, `{"l":[9,10],"k":[1]}`, `{"k":[1],"l":[9,10]}`},
		{"$pull in", `{"l":["a","b","c"]}`, `{}`, `{"$pull":{"l":{"$in":["a","c"]}}}`, ``, `{"l":["b"]}`, `{"l":["b"]}`},
		{"$pull documents", `{"r":[{"i":"A","s":5},{"i":"B","s":8,"c":"x"}]}`, `{}`, `{"$pull":{"r":{"s":8,"i":"B"}}}`, ``, `{"r":[{"i":"A","s":5}]}`, `{"r":[{"i":"A","s":5}]}`},
		{"$pull of every element", `{"r":[{"l":[1,2]},{"l":[2,3]}]}`, `{}`, `{"$pull":{"r.$[].l":2}}`, ``, `{"r":[{"l":[1]},{"l":[3]}]}`, `{"r":[{"l":[1]},{"l":[3]}]}`},
		{"$pullAll", `{"l":[0,2,5,5,1,0]}`, `{}`, `{"$pullAll":{"l":[0,5]}}`, ``, `{"l":[2,1]}`, `{"l":[2,1]}`},
		{"$", `{"l":[85,80,80]}`, `{"l":80}`, `{"$set":{"l.$":82}}`, ``, `{"l":[85,82,80]}`, `{"l.1":82}`},
		{"$ of documents", `{"l":[{"g":80,"s":1},{"g":85,"s":2}]}`, `{"l.g":85}`, `{"$set":{"l.$.s":6}}`, ``, `{"l":[{"g":80,"s":1},{"g":85,"s":6}]}`, `{"l.1.s":6}`},
		{"$[]", `{"l":[85,82]}`, `{}`, `{"$inc":{"l.$[]":10}}`, ``, `{"l":[95,92]}`, `{"l":[95,92]}`},
		{"$[] of one", `{"l":[85]}`, `{}`, `{"$inc":{"l.$[]":10}}`, ``, `{"l":[95]}`, `{"l.0":95}`},
		{"$[identifier]", `{"l":[95,102,90,150]}`, `{}`, `{"$set":{"l.$[e]":100}}`, `[{"e":{"$gte":100}}]`, `{"l":[95,100,90,100]}`, `{"l":[95,100,90,100]}`},
		{"$[identifier] of one", `{"l":[{"g":80,"m":75},{"g":85,"m":90}]}`, `{}`, `{"$set":{"l.$[e].m":100}}`, `[{"e.g":{"$gte":85}}]`, `{"l":[{"g":80,"m":75},{"g":85,"m":100}]}`, `{"l.1.m":100}`},
		{"nested arrays", `{"g":[{"t":"q","q":[10,8]},{"t":"e","q":[9]}]}`, `{}`, `{"$inc":{"g.$[t].q.$[s]":1}}`, `[{"t.t":"q"},{"s":{"$gte":8}}]`, `{"g":[{"t":"q","q":[11,9]},{"t":"e","q":[9]}]}`, `{"g.0.q":[11,9]}`},
		{"pipeline", `{"_id":1,"a":1,"l":[{"x":1},{"x":2}]}`, `{}`, `[{"$unset":["a","l.x"]},{"$set":{"b":{"$mergeObjects":[{"c":1},{"d":2}]}}}]`, ``, `{"_id":1,"l":[{},{}],"b":{"c":1,"d":2}}`, ``},
		{"$replaceWith", `{"_id":1,"a":{"b":2}}`, `{}`, `[{"$replaceWith":"$a"}]`, ``, `{"_id":1,"b":2}`, ``},
		{"$setField", `{"_id":1,"a":{"b":2}}`, `{}`, `[{"$replaceWith":{"$setField":{"field":"a.b","input":"$$ROOT","value":3}}}]`, ``, `{"_id":1,"a":{"b":2},"a.b":3}`, ``},
		{"$unsetField", `{"_id":1,"a.b":2}`, `{}`, `[{"$replaceWith":{"$unsetField":{"field":"a.b","input":"$$ROOT"}}}]`, ``, `{"_id":1}`, ``},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, err := applied(t, tc.before, tc.filter, tc.update, tc.arrayFilters, false)
			if err != nil {
				t.Fatal(err)
			}
			same(t, "document", r.Doc, tc.after)
			if tc.updated != "" {
				same(t, "updated", r.Updated, tc.updated)
			}
		})
	}
}

func applied(t *testing.T, before, filter, update, arrayFilters string, deltas bool) (query.UpdateResult, error) {
	t.Helper()
	var filters bsoncore.Value
	if arrayFilters != "" {
		filters = parseUpdate(t, arrayFilters)
	}
	u, err := query.ParseUpdate(parseUpdate(t, update), filters)
	if err != nil {
		return query.UpdateResult{}, err
	}
	f, err := query.ParseFilter(parseUpdate(t, filter).Data)
	if err != nil {
		t.Fatal(err)
	}
	return u.Apply(parseUpdate(t, before).Data, query.UpdateContext{Filter: f, Deltas: deltas})
}

func TestOperatorsAreRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		before, update, arrayFilters string
		code                         wire.Code
	}{
		"not a number":         {`{"a":"x"}`, `{"$mul":{"a":2}}`, ``, wire.TypeMismatch},
		"not an integer":       {`{"a":1.5}`, `{"$bit":{"a":{"or":1}}}`, ``, wire.BadValue},
		"not an array":         {`{"a":1}`, `{"$pull":{"a":1}}`, ``, wire.BadValue},
		"no match":             {`{"a":[1]}`, `{"$set":{"a.$":2}}`, ``, wire.BadValue},
		"no array":             {`{}`, `{"$set":{"a.$[]":2}}`, ``, wire.BadValue},
		"no filter":            {`{"a":[1]}`, `{"$set":{"a.$[e]":2}}`, ``, wire.BadValue},
		"a filter too many":    {`{"a":[1]}`, `{"$set":{"a":2}}`, `[{"e":1}]`, wire.FailedToParse},
		"two filters":          {`{"a":[1]}`, `{"$set":{"a.$[e]":2}}`, `[{"e":1},{"e":2}]`, wire.FailedToParse},
		"filters of pipelines": {`{}`, `[{"$set":{"a":1}}]`, `[{"e":1}]`, wire.FailedToParse},
		"a name twice":         {`{"a":1}`, `{"$rename":{"a":"b"},"$set":{"b":1}}`, ``, wire.ConflictingUpdateOperators},
		"another _id":          {`{"_id":1}`, `[{"$replaceWith":{"_id":2}}]`, ``, wire.ImmutableField},
	} {
		if _, err := applied(t, tc.before, `{}`, tc.update, tc.arrayFilters, false); !wire.HasCode(err, tc.code) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Since 5.0 a path that an update creates is logged as the topmost new field.
func TestCreatedPathsOfDeltas(t *testing.T) {
	r, err := applied(t, `{"_id":1,"l":[1]}`, `{}`, `{"$set":{"a.0.c":1,"l.3.x":2}}`, ``, true)
	if err != nil {
		t.Fatal(err)
	}
	same(t, "document", r.Doc, `{"_id":1,"l":[1,null,null,{"x":2}],"a":{"0":{"c":1}}}`)
	same(t, "updated", r.Updated, `{"a":{"0":{"c":1}},"l.3":{"x":2}}`)
	if r.Disambiguated != nil {
		t.Error(r.Disambiguated)
	}
}
