package query_test

import (
	"cmp"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
	"pgregory.net/rapid"

	"github.com/mongostream/streamer/dev/mongo/doc"
	"github.com/mongostream/streamer/dev/mongo/query"
	"github.com/mongostream/streamer/dev/mongo/wire"
)

// parse reads relaxed Extended JSON.
func parse(t testing.TB, text string) bsoncore.Document {
	t.Helper()
	var raw bson.Raw
	if err := bson.UnmarshalExtJSON([]byte(text), false, &raw); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return bsoncore.Document(raw)
}

func TestCompareAgreesWithKeys(t *testing.T) {
	values := []string{
		`{"v":{"$minKey":1}}`, `{"v":null}`, `{"v":{"$numberDouble":"NaN"}}`, `{"v":-3}`, `{"v":{"$numberLong":"9007199254740993"}}`,
		`{"v":1}`, `{"v":{"$numberDouble":"1.5"}}`, `{"v":{"$numberDecimal":"1.25"}}`, `{"v":{"$numberDouble":"9007199254740992"}}`,
		`{"v":""}`, `{"v":"a"}`, `{"v":"ab"}`, `{"v":{}}`, `{"v":{"a":1}}`, `{"v":{"a":2}}`, `{"v":{"b":1}}`, `{"v":[]}`, `{"v":[1]}`, `{"v":[1,2]}`,
		`{"v":{"$binary":{"base64":"AA==","subType":"00"}}}`, `{"v":{"$oid":"0102030405060708090a0b0c"}}`, `{"v":false}`, `{"v":true}`,
		`{"v":{"$date":{"$numberLong":"-5"}}}`, `{"v":{"$date":{"$numberLong":"5"}}}`, `{"v":{"$timestamp":{"t":1,"i":2}}}`, `{"v":{"$maxKey":1}}`,
	}
	rapid.Check(t, func(rt *rapid.T) {
		a, _ := doc.Field(parse(t, rapid.SampledFrom(values).Draw(rt, "a")), "v")
		b, _ := doc.Field(parse(t, rapid.SampledFrom(values).Draw(rt, "b")), "v")
		ka, errA := doc.SortKey(a)
		kb, errB := doc.SortKey(b)
		if errA != nil || errB != nil {
			rt.Fatal(errA, errB)
		}
		if got, want := query.Compare(a, b), strings.Compare(ka, kb); cmp.Compare(got, 0) != want || query.Compare(b, a) != -got {
			rt.Fatalf("%s and %s compare as %d, their keys as %d", a, b, got, want)
		}
	})
}

func TestFilterSaysWhatItReads(t *testing.T) {
	f, err := query.ParseFilter(parse(t, `{"$or":[{"ns.db":{"$in":["a"]},"ns.coll":"x"},{"operationType":"drop"}],"ns.db":{"$ne":"b"}}`))
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(f.Fields(), " "); got != "ns.coll ns.db operationType" {
		t.Error(got)
	}
	byID, _ := query.ParseFilter(parse(t, `{"x":1,"_id":{"$in":[1,2]}}`))
	if ids, ok := byID.IDs(); !ok || len(ids) != 2 {
		t.Error(ids, ok)
	}
	from, _ := query.ParseFilter(parse(t, `{"_id":{"$gt":5},"x":1}`))
	if v, ok := from.Floor("_id"); !ok || v.Int32() != 5 {
		t.Error(v, ok)
	}
	if _, ok := from.IDs(); ok {
		t.Error("a range names no _id")
	}
}

func TestProjections(t *testing.T) {
	const whole = `{"_id":1,"a":{"b":1,"c":2},"l":[{"x":1,"y":2},7],"z":3}`
	for spec, want := range map[string]string{
		`{}`:              whole,
		`{"a":1}`:         `{"_id":1,"a":{"b":1,"c":2}}`,
		`{"a.b":1}`:       `{"_id":1,"a":{"b":1}}`,
		`{"a":{"b":1}}`:   `{"_id":1,"a":{"b":1}}`,
		`{"a":1,"_id":0}`: `{"a":{"b":1,"c":2}}`,
		`{"_id":1}`:       `{"_id":1}`,
		`{"_id":0}`:       `{"a":{"b":1,"c":2},"l":[{"x":1,"y":2},7],"z":3}`,
		`{"a":0,"z":0}`:   `{"_id":1,"l":[{"x":1,"y":2},7]}`,
		`{"l.x":1}`:       `{"_id":1,"l":[{"x":1}]}`,
		`{"l.x":0}`:       `{"_id":1,"a":{"b":1,"c":2},"l":[{"y":2},7],"z":3}`,
	} {
		p, err := query.ParseProjection(parse(t, spec))
		if err != nil {
			t.Errorf("%s: %v", spec, err)
			continue
		}
		if got := p.Apply(parse(t, whole)); string(got) != string(parse(t, want)) {
			t.Errorf("%s: %s, want %s", spec, got, want)
		}
	}
	for _, spec := range []string{`{"a":1,"b":0}`, `{"a":1,"a.b":1}`, `{"a":"$b"}`, `{"a":{"$slice":1}}`} {
		if _, err := query.ParseProjection(parse(t, spec)); err == nil {
			t.Errorf("%s is taken", spec)
		}
	}
}

func FuzzFilter(f *testing.F) {
	f.Add([]byte(parse(f, `{"a.b":{"$gt":1,"$in":[1,null]},"$or":[{"x":{"$not":{"$eq":2}}}]}`)), []byte(parse(f, `{"a":[{"b":2}],"x":1}`)))
	f.Fuzz(func(t *testing.T, spec, d []byte) {
		if wire.Validate(spec) != nil || wire.Validate(d) != nil {
			return
		}
		if filter, err := query.ParseFilter(spec); err == nil {
			filter.Match(d)
			filter.IDs()
			filter.Equalities()
		}
		if s, err := query.ParseSort(spec); err == nil {
			s.Apply([]bsoncore.Document{d, spec})
		}
		if p, err := query.ParseProjection(spec); err == nil {
			if err := wire.Validate(p.Apply(d)); err != nil {
				t.Error(err)
			}
		}
		v := bsoncore.Value{Type: bsoncore.TypeEmbeddedDocument, Data: spec}
		_, _ = query.Evaluate(v, d, query.Scope{})
	})
}
