package client

import (
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
