package expr

import (
	"encoding/hex"
	"errors"
	"fmt"
	"reflect"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"

	"github.com/mongostream/streamer/change"
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

// toCEL converts a BSON value to a CEL value. Documents and arrays become views; their cost and
// that of strings is charged to the meter.
func toCEL(v change.Value, meter *costMeter) ref.Val {
	switch v.Type {
	case change.TypeDocument:
		return &docView{raw: v.Data, meter: meter}
	case change.TypeArray:
		return &listView{raw: v.Data, meter: meter}
	}
	s := ScalarOf(v)
	if s.Class == Text {
		meter.ChargeBytes(len(s.Text()))
	}
	return scalar(s)
}

// scalar converts a scalar to a CEL value, of CEL's own type if there is one.
func scalar(s Scalar) ref.Val {
	switch s.Class {
	case Absent:
		return absent{}
	case Number:
		if i, ok := s.Int(); ok {
			return types.Int(i)
		}
		if f, ok := s.Double(); ok {
			return types.Double(f)
		}
	case Text:
		return types.String(s.Text())
	case Bytes:
		return types.Bytes(s.Text())
	case Bool:
		return types.Bool(s.Bool())
	case Date:
		return types.Timestamp{Time: s.Time()}
	default: // CEL has none
	}
	return scalarVal{s}
}

// fromCEL converts a CEL value to a scalar; ok is false if there is none. Of maps and lists it
// returns the class only.
func fromCEL(val ref.Val) (s Scalar, ok bool) {
	switch v := val.(type) {
	case absent, types.Null:
		return Scalar{}, true
	case types.Int:
		return IntScalar(int64(v)), true
	case types.Uint:
		return uintScalar(uint64(v)), true
	case types.Double:
		return DoubleScalar(float64(v)), true
	case types.String:
		return textScalar([]byte(v)), true
	case types.Bytes:
		return bytesScalar(v), true
	case types.Bool:
		return boolScalar(bool(v)), true
	case types.Timestamp:
		return dateScalar(v.Time), true
	case scalarVal:
		return v.Scalar, true
	case traits.Mapper:
		return Scalar{Class: Document}, true
	case traits.Lister:
		return Scalar{Class: Array}, true
	}
	return Scalar{}, false
}

// A scalarVal is a value without a CEL type: an ObjectId, a Decimal128, binary data, or an opaque
// value.
type scalarVal struct{ Scalar }

// Type implements ref.Val.
func (s scalarVal) Type() ref.Type {
	switch s.Class {
	case ObjectID:
		return objectIDType
	case Number:
		return decimalType
	case Binary:
		return binaryType
	default:
		return opaqueType
	}
}

// Equal implements ref.Val.
func (s scalarVal) Equal(other ref.Val) ref.Val { return equals(s, other) }

// Value implements ref.Val.
func (s scalarVal) Value() any {
	if s.Class == Number {
		return s.decimalText()
	}
	return s.Text()
}

// ConvertToNative implements ref.Val.
func (s scalarVal) ConvertToNative(reflect.Type) (any, error) { return nil, errConversion }

// ConvertToType implements ref.Val: string(ObjectId) is its hex form; decimals convert to the
// nearest number.
func (s scalarVal) ConvertToType(t ref.Type) ref.Val {
	switch {
	case t == types.StringType && s.Class == ObjectID:
		return types.String(hex.EncodeToString(s.Text()))
	case t == types.StringType && s.isUUID():
		text := s.Text()
		return types.String(fmt.Sprintf("%x-%x-%x-%x-%x", text[:4], text[4:6], text[6:8], text[8:10], text[10:]))
	case t == types.StringType && s.Class == Number:
		return types.String(s.decimalText())
	case t == types.DoubleType && s.Class == Number:
		return types.Double(s.nearest())
	case t == types.IntType && s.Class == Number:
		return types.Double(s.nearest()).ConvertToType(t)
	case t == types.BytesType && s.Class != Number:
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

// absent is null or a missing field: its fields are absent, it has no elements, and it equals null.
type absent struct{}

// Equal implements ref.Val.
func (absent) Equal(other ref.Val) ref.Val { return equals(absent{}, other) }

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
