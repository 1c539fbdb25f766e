package expr

import (
	"errors"
	"math/big"
	"testing"
	"time"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mongostream/streamer/change"
)

// FuzzBSONAccess reads any bytes as a document, field by field, and compares with the driver's own
// decoder where that accepts them.
func FuzzBSONAccess(f *testing.F) {
	for _, doc := range []bson.D{
		{},
		{{Key: "a", Value: 1}, {Key: "b", Value: "x"}, {Key: "c", Value: 1.5}, {Key: "d", Value: nil}, {Key: "e", Value: true}, {Key: "f", Value: int64(1) << 60}},
		{{Key: "a", Value: bson.D{{Key: "b", Value: bson.A{1, "2", bson.D{{Key: "c", Value: 3}}}}}}, {Key: "", Value: bson.A{}}},
		{{Key: "a", Value: bson.ObjectID{1}}, {Key: "b", Value: time.UnixMilli(5)}, {Key: "c", Value: bson.Binary{Subtype: 4, Data: []byte("x")}}, {Key: "d", Value: bson.Binary{Subtype: 2, Data: []byte("x")}}},
		{{Key: "a", Value: bson.Regex{Pattern: "x"}}, {Key: "b", Value: bson.CodeWithScope{Code: "x", Scope: bson.D{{Key: "y", Value: 1}}}}, {Key: "c", Value: bson.NewDecimal128(0x3040000000000000, 7)}},
		{{Key: "a", Value: bson.Timestamp{T: 1}}, {Key: "b", Value: bson.MinKey{}}, {Key: "c", Value: bson.Symbol("s")}, {Key: "d", Value: bson.Undefined{}}, {Key: "e", Value: bson.DBPointer{DB: "d"}}},
	} {
		raw, err := bson.Marshal(doc)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
		f.Add(raw[:len(raw)-1])
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		// Nothing hands the views a document whose length was not checked.
		wrapped := append([]byte{byte(len(raw) + 8), byte((len(raw) + 8) >> 8), byte((len(raw) + 8) >> 16), 0, change.TypeDocument, 'd', 0}, raw...)
		_, v, _, err := change.Element(append(wrapped, 0), First)
		if err != nil {
			return
		}
		view := toCEL(v, nil).(traits.Mapper)
		var decoded bson.D
		valid := len(v.Data) == len(raw) && bson.Unmarshal(raw, &decoded) == nil
		compareView(t, view, bson.Raw(v.Data), valid)
	})
}

// compareView walks a view in every way. Where the driver finds the bytes valid, it must hold what
// the driver holds.
func compareView(t *testing.T, view traits.Mapper, raw bson.Raw, valid bool) {
	defer func() {
		// The interpreter recovers from this: malformed bytes.
		if stopped := recover(); stopped != nil && valid {
			t.Fatalf("%x: %v", []byte(raw), stopped)
		}
	}()
	elements, err := raw.Elements()
	if valid && err != nil {
		return
	}
	if got := view.Size(); valid && got != types.Int(len(elements)) {
		t.Fatalf("%x: %v fields, want %d", []byte(raw), got, len(elements))
	}
	for it := view.Iterator(); it.HasNext() == types.True; {
		key := it.Next()
		got := view.Get(key)
		if !valid {
			continue
		}
		want, err := raw.LookupErr(string(key.(types.String)))
		if errors.Is(err, bsoncore.ErrElementNotFound) || view.Contains(key) != types.True {
			t.Fatalf("%x: %q: %v", []byte(raw), key, err)
		}
		if err != nil {
			// The driver's lookup reads binary data of the old subtype 2 otherwise than its
			// decoder.
			return
		}
		compareValue(t, got, want)
	}
	if missing := view.Get(types.String("no such field, and never one")); valid && missing.Type() != types.NullType {
		t.Fatalf("%x: %v for a field that is not there", []byte(raw), missing)
	}
}

func compareValue(t *testing.T, got ref.Val, want bson.RawValue) {
	if d, ok := want.DocumentOK(); ok {
		compareView(t, got.(traits.Mapper), d, true)
		return
	}
	if a, ok := want.ArrayOK(); ok {
		values, err := a.Values()
		list := got.(traits.Lister)
		if err != nil || list.Size() != types.Int(len(values)) {
			t.Fatalf("%v: %d values, want %d (%v)", want, list.Size(), len(values), err)
		}
		for i, v := range values {
			compareValue(t, list.Get(types.Int(i)), v)
		}
		return
	}
	if expected := plain(want); expected != nil && equals(got, expected) != types.True && equals(expected, expected) == types.True {
		t.Fatalf("%v: %v (%v), want %v", want, got.Value(), got.Type(), expected)
	}
}

// plain is the value that the driver decodes, as CEL's own, nil where CEL has none.
func plain(v bson.RawValue) ref.Val {
	switch v.Type {
	case bson.TypeDouble:
		return types.Double(v.Double())
	case bson.TypeString:
		return types.String(v.StringValue())
	case bson.TypeSymbol:
		return types.String(v.Symbol())
	case bson.TypeBinary:
		if subtype, data, ok := v.BinaryOK(); ok && subtype == 0 {
			return types.Bytes(data)
		}
	case bson.TypeObjectID:
		id, _, err := convertText("ObjectId", v.ObjectID().Hex())
		if err == nil {
			return id
		}
	case bson.TypeBoolean:
		return types.Bool(v.Boolean())
	case bson.TypeDateTime:
		return types.Timestamp{Time: time.UnixMilli(v.DateTime())}
	case bson.TypeNull, bson.TypeUndefined:
		return types.NullValue
	case bson.TypeInt32:
		return types.Int(v.Int32())
	case bson.TypeInt64:
		return types.Int(v.Int64())
	case bson.TypeDecimal128:
		// A significand of more than 34 digits is zero by the standard, and the driver prints it as
		// it is.
		significand, _, err := v.Decimal128().BigInt()
		if err != nil || len(new(big.Int).Abs(significand).Text(10)) > 34 {
			return nil
		}
		if d, _, err := convertText("decimal", v.Decimal128().String()); err == nil {
			return d
		}
	}
	return nil
}

// A comparison of values that CEL would get wrong, as a program.
func TestOperatorsAreOurs(t *testing.T) {
	env, err := cel.NewCustomEnv(append([]cel.EnvOption{cel.StdLib()}, celOptions()...)...)
	if err != nil {
		t.Fatal(err)
	}
	for source, want := range map[string]bool{
		`9007199254740993 == dyn(9007199254740992.0)`:                                false,
		`[dyn(9007199254740993)] == [9007199254740992.0]`:                            false,
		`9007199254740993 in [dyn(9007199254740992.0)]`:                              false,
		`decimal("0.5") == 0.5 && decimal("0.5") < 1 && 1 > decimal("0.5")`:          true,
		`{"a": 1}.a == decimal("1") && has({"a": 1}.a) && !has({"a": 1}.b)`:          true,
		`"a" in {"a": 1} && !(dyn(1) in {"a": 1})`:                                   true,
		`duration("1s") < duration("2s") && duration("1s") == duration("1000ms")`:    true,
		`null == null && [null] == [null]`:                                           true,
		`string(ObjectId("0A0000000000000000000000")) == "0a0000000000000000000000"`: true,
		`type(decimal("1")) != type(1)`:                                              true,
	} {
		checked, issues := env.Compile(source)
		if issues.Err() != nil {
			t.Errorf("%s: %v", source, issues.Err())
			continue
		}
		program, err := env.Program(checked, operatorOptions(), cel.EvalOptions(cel.OptOptimize))
		if err != nil {
			t.Errorf("%s: %v", source, err)
			continue
		}
		if got, _, err := program.Eval(cel.NoVars()); err != nil || got != types.Bool(want) {
			t.Errorf("%s: %v, %v", source, got, err)
		}
	}
}
