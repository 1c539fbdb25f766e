package celval

import (
	"encoding/hex"
	"errors"
	"fmt"
	"reflect"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/match/bsonval"
)

var errConversion = errors.New("no such conversion")

// Types of values that CEL has none of its own for. Their names are what type() shows.
//
//nolint:gochecknoglobals // constants
var (
	objectIDType = types.NewOpaqueType("ObjectId")
	decimalType  = types.NewOpaqueType("decimal")
	binaryType   = types.NewOpaqueType("binary")
	opaqueType   = types.NewOpaqueType("bson")
)

// Val makes a value for CEL. Documents and arrays are views; what they and strings cost is charged to the meter.
func Val(v change.Value, meter *Meter) ref.Val {
	switch v.Type {
	case change.TypeDocument:
		return &View{raw: v.Data, meter: meter}
	case change.TypeArray:
		return &ListView{raw: v.Data, meter: meter}
	}
	s := bsonval.ScalarOf(v)
	if s.Class == bsonval.Text {
		meter.ChargeBytes(len(s.Text()))
	}
	return scalar(s)
}

// scalar makes a value of a scalar: of CEL's own types where there is one.
func scalar(s bsonval.Scalar) ref.Val {
	switch s.Class {
	case bsonval.Absent:
		return absent{}
	case bsonval.Number:
		if i, ok := s.Int(); ok {
			return types.Int(i)
		}
		if f, ok := s.Double(); ok {
			return types.Double(f)
		}
	case bsonval.Text:
		return types.String(s.Text())
	case bsonval.Bytes:
		return types.Bytes(s.Text())
	case bsonval.Bool:
		return types.Bool(s.Bool())
	case bsonval.Date:
		return types.Timestamp{Time: s.Time()}
	default: // CEL has none
	}
	return scalarVal{s}
}

// Scalar takes a value of CEL apart; ok is false for what BSON has no scalar for. Of maps and lists it tells the class only.
func Scalar(val ref.Val) (s bsonval.Scalar, ok bool) {
	switch v := val.(type) {
	case absent, types.Null:
		return bsonval.Scalar{}, true
	case types.Int:
		return bsonval.IntScalar(int64(v)), true
	case types.Uint:
		return bsonval.UintScalar(uint64(v)), true
	case types.Double:
		return bsonval.DoubleScalar(float64(v)), true
	case types.String:
		return bsonval.TextScalar([]byte(v)), true
	case types.Bytes:
		return bsonval.BytesScalar(v), true
	case types.Bool:
		return bsonval.BoolScalar(bool(v)), true
	case types.Timestamp:
		return bsonval.DateScalar(v.Time), true
	case scalarVal:
		return v.Scalar, true
	case traits.Mapper:
		return bsonval.Scalar{Class: bsonval.Document}, true
	case traits.Lister:
		return bsonval.Scalar{Class: bsonval.Array}, true
	}
	return bsonval.Scalar{}, false
}

// A scalarVal is a value that CEL has no type for: an ObjectId, a Decimal128, binary data, or something opaque.
type scalarVal struct{ bsonval.Scalar }

// Type implements ref.Val.
func (s scalarVal) Type() ref.Type {
	switch s.Class {
	case bsonval.ObjectID:
		return objectIDType
	case bsonval.Number:
		return decimalType
	case bsonval.Binary:
		return binaryType
	default:
		return opaqueType
	}
}

// Equal implements ref.Val.
func (s scalarVal) Equal(other ref.Val) ref.Val { return Equal(s, other) }

// Value implements ref.Val.
func (s scalarVal) Value() any {
	if s.Class == bsonval.Number {
		return s.DecimalText()
	}
	return s.Text()
}

// ConvertToNative implements ref.Val.
func (s scalarVal) ConvertToNative(reflect.Type) (any, error) { return nil, errConversion }

// ConvertToType implements ref.Val: string(ObjectId) is its hex form; decimals convert to the numbers next to them.
func (s scalarVal) ConvertToType(t ref.Type) ref.Val {
	switch {
	case t == types.StringType && s.Class == bsonval.ObjectID:
		return types.String(hex.EncodeToString(s.Text()))
	case t == types.StringType && s.IsUUID():
		text := s.Text()
		return types.String(fmt.Sprintf("%x-%x-%x-%x-%x", text[:4], text[4:6], text[6:8], text[8:10], text[10:]))
	case t == types.StringType && s.Class == bsonval.Number:
		return types.String(s.DecimalText())
	case t == types.DoubleType && s.Class == bsonval.Number:
		return types.Double(s.Nearest())
	case t == types.IntType && s.Class == bsonval.Number:
		return types.Double(s.Nearest()).ConvertToType(t)
	case t == types.BytesType && s.Class != bsonval.Number:
		return types.Bytes(s.Text())
	}
	return convert(s, t)
}

func convert(v ref.Val, t ref.Type) ref.Val {
	switch t {
	case types.TypeType:
		return v.Type().(*types.Type)
	case v.Type():
		return v
	}
	return types.NewErr("type conversion error from '%s' to '%s'", v.Type(), t)
}

// absent is null and a field that is not there: its fields are absent, it has no elements, and it equals null.
type absent struct{}

// Equal implements ref.Val.
func (absent) Equal(other ref.Val) ref.Val { return Equal(absent{}, other) }

// Type implements ref.Val.
func (absent) Type() ref.Type { return types.NullType }

// Value implements ref.Val.
func (absent) Value() any { return types.NullValue.Value() }

// ConvertToNative implements ref.Val.
func (absent) ConvertToNative(t reflect.Type) (any, error) { return types.NullValue.ConvertToNative(t) }

// ConvertToType implements ref.Val.
func (absent) ConvertToType(t ref.Type) ref.Val { return types.NullValue.ConvertToType(t) }

// Contains implements traits.Container.
func (absent) Contains(ref.Val) ref.Val { return types.False }

// Get implements traits.Indexer.
func (absent) Get(ref.Val) ref.Val { return absent{} }

// Find implements traits.Mapper.
func (absent) Find(ref.Val) (ref.Val, bool) { return absent{}, true }

// Iterator implements traits.Iterable.
func (absent) Iterator() traits.Iterator { return iterate(nil) }

// Size implements traits.Sizer.
func (absent) Size() ref.Val { return types.IntZero }

// isAbsent reports whether a value of CEL is null in any form.
func isAbsent(v ref.Val) bool {
	switch v.(type) {
	case absent, types.Null:
		return true
	}
	return false
}
