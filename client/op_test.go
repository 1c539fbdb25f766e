package client

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// everything has a value of every type before the operationType.
func everything(op any) bson.D {
	return bson.D{
		{Key: "double", Value: 1.5}, {Key: "string", Value: "operationType"}, {Key: "doc", Value: bson.D{{Key: "operationType", Value: "inner"}}},
		{Key: "array", Value: bson.A{"operationType"}}, {Key: "binary", Value: bson.Binary{Subtype: 4, Data: []byte{1, 2}}}, {Key: "undefined", Value: bson.Undefined{}},
		{Key: "oid", Value: bson.NewObjectID()}, {Key: "bool", Value: true}, {Key: "date", Value: time.Unix(1, 0)}, {Key: "null", Value: nil},
		{Key: "regex", Value: bson.Regex{Pattern: "a", Options: "i"}}, {Key: "pointer", Value: bson.DBPointer{DB: "a"}}, {Key: "code", Value: bson.JavaScript("x")},
		{Key: "symbol", Value: bson.Symbol("x")}, {Key: "scope", Value: bson.CodeWithScope{Code: "x", Scope: bson.D{}}}, {Key: "int", Value: int32(1)},
		{Key: "ts", Value: bson.Timestamp{T: 1}}, {Key: "long", Value: int64(1)}, {Key: "decimal", Value: bson.NewDecimal128(1, 1)},
		{Key: "min", Value: bson.MinKey{}}, {Key: "max", Value: bson.MaxKey{}}, {Key: "operationType", Value: op}, {Key: "after", Value: 1},
	}
}

func TestOperationTypeIsFoundAfterAnything(t *testing.T) {
	for _, tt := range []struct {
		op   any
		want string
	}{{"drop", "drop"}, {"", ""}, {int32(1), ""}} {
		doc, err := bson.Marshal(everything(tt.op))
		if err != nil {
			t.Fatal(err)
		}
		if got := opOfBSON(doc); got != tt.want {
			t.Errorf("BSON: %q, want %q", got, tt.want)
		}
		text, err := bson.MarshalExtJSON(everything(tt.op), false, false)
		if err != nil {
			t.Fatal(err)
		}
		if got := opOfJSON(text); got != tt.want {
			t.Errorf("JSON: %q, want %q", got, tt.want)
		}
	}
}

// FuzzOpOfBSON reads anything without panic, and whatever the driver can read as the driver does.
func FuzzOpOfBSON(f *testing.F) {
	doc, err := bson.Marshal(everything("drop"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(doc)
	f.Add([]byte{})
	f.Add(doc[:40])
	f.Fuzz(func(t *testing.T, b []byte) {
		got := opOfBSON(b)
		raw := bson.Raw(b)
		if raw.Validate() != nil || len(raw) != len(b) {
			return
		}
		want, _ := raw.Lookup("operationType").StringValueOK()
		if got != want {
			t.Errorf("%q, the driver says %q", got, want)
		}
	})
}

func FuzzOpOfJSON(f *testing.F) {
	f.Add([]byte(`{"_id":{"a":1},"operationType":"drop"}`))
	f.Add([]byte(`{"operationType":{"drop":1}}`))
	f.Add([]byte(`[1,{`))
	f.Fuzz(func(_ *testing.T, b []byte) { opOfJSON(b) })
}

// What a change tells of itself is the same in both formats.
func TestChangeTellsItsFields(t *testing.T) {
	at := time.Unix(1795407361, 0)
	event := bson.D{
		{Key: "_id", Value: bson.D{{Key: "_data", Value: "82"}}}, {Key: "operationType", Value: "update"}, {Key: "clusterTime", Value: bson.Timestamp{T: uint32(at.Unix()), I: 6}},
		{Key: "ns", Value: bson.D{{Key: "db", Value: "shop"}, {Key: "coll", Value: "orders"}}}, {Key: "documentKey", Value: bson.D{{Key: "_id", Value: int64(1121)}}},
		{Key: "fullDocument", Value: bson.D{{Key: "_id", Value: int64(1121)}, {Key: "total", Value: 149.9}, {Key: "number", Value: int64(9007199254740993)}}},
	}
	doc, err := bson.Marshal(event)
	if err != nil {
		t.Fatal(err)
	}
	text, err := bson.MarshalExtJSON(append(bson.D{{Key: "key", Value: "1121"}}, event...), false, false)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []Change{{Format: BSON, Data: doc}, {Format: JSON, Data: text}} {
		if db, coll := c.Namespace(); db != "shop" || coll != "orders" || c.Op() != "update" || !c.ClusterTime().Equal(at) {
			t.Errorf("%v: %q.%q, %q, %v", c.Format, db, coll, c.Op(), c.ClusterTime())
		}
	}
	c := Change{Format: JSON, Data: text}
	var order struct {
		Total float64
		Rest  any `json:"number"`
	}
	if err := c.Decode(&order); err != nil || order.Total != 149.9 || order.Rest != json.Number("9007199254740993") || c.Key() != "1121" {
		t.Errorf("%+v, %v; key %q", order, err, c.Key())
	}
	for name, c := range map[string]Change{
		"a delete":         {Format: JSON, Data: []byte(`{"operationType":"delete","documentKey":{"_id":1}}`)},
		"a vanished order": {Format: JSON, Data: []byte(`{"operationType":"update","fullDocument":null}`)},
	} {
		if err := c.Decode(&order); !errors.Is(err, ErrNoDocument) {
			t.Errorf("%s: %v", name, err)
		}
	}
	c = Change{Format: BSON, Data: doc}
	if err := c.Decode(&order); err == nil || c.Key() != "" {
		t.Errorf("BSON is decoded: %v, %q", err, c.Key())
	}
	for _, bad := range [][]byte{nil, {}, {5, 0, 0, 0, 0}, []byte("{"), []byte("[]"), doc[:40], text[:60]} {
		for _, f := range []Format{BSON, JSON} {
			c := Change{Format: f, Data: bad}
			_, _ = c.Namespace()
			if at, err := c.ClusterTime(), c.Decode(&order); err == nil || !at.IsZero() && len(bad) < 60 && f == JSON {
				t.Errorf("%v %q: %v, %v", f, bad, at, err)
			}
		}
	}
}

// What a person sees of an error says what to do.
func TestErrorsShowTheirRemedy(t *testing.T) {
	err := &Error{Code: "STRM-FILTER-NEEDS-DOCUMENT", Message: "the filter reads doc", Remedy: "set mongodb.full_document to updateLookup."}
	const want = "STRM-FILTER-NEEDS-DOCUMENT: the filter reads doc. Set mongodb.full_document to updateLookup. See https://github.com/mongostream/streamer/blob/main/docs/codes.md#strm-filter-needs-document"
	if err.Error() != want {
		t.Errorf("%s", err)
	}
	if err := (&Error{Code: "STRM-X", Message: "m"}).Error(); err != "STRM-X: m. See "+codesURL+"strm-x" {
		t.Errorf("%s", err)
	}
}
