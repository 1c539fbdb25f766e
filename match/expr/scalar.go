package expr

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"math"

	"github.com/mongostream/streamer/change"
)

// A Class is a kind of values that may be equal and, for some classes, are ordered. Values of
// different classes are never equal.
type Class uint8

// The classes; ordered ones first.
const (
	Absent Class = iota // null, undefined, or a missing field
	Number
	Text
	Bytes // binary data of subtype 0
	Bool
	Date
	ObjectID
	lastOrdered = ObjectID
	Binary      = lastOrdered + 1 // binary data of other subtypes
	Opaque      = lastOrdered + 2 // regular expressions, code, timestamps, …: only equal to themselves
	Document    = lastOrdered + 3
	Array       = lastOrdered + 4
)

// Classes is the number of classes.
const Classes = int(Array) + 1

var classNames = [Classes]string{"null", "number", "string", "bytes", "bool", "date", "ObjectId", "binary", "other", "document", "array"} //nolint:gochecknoglobals // a constant table

// String returns the name in error messages.
func (c Class) String() string { return classNames[c] }

// isOrdered reports whether values of the class are ordered.
func (c Class) isOrdered() bool { return c > Absent && c <= lastOrdered }

// ClassOf returns the class of a value; the zero Value is absent.
func ClassOf(v change.Value) Class {
	switch v.Type {
	case 0, change.TypeNull, change.TypeUndefined:
		return Absent
	case change.TypeDouble, change.TypeInt32, change.TypeInt64, change.TypeDecimal128:
		return Number
	case change.TypeString, change.TypeSymbol:
		return Text
	case change.TypeBinary:
		if v.Data[4] == 0 {
			return Bytes
		}
		return Binary
	case change.TypeBool:
		return Bool
	case change.TypeDateTime:
		return Date
	case change.TypeObjectID:
		return ObjectID
	case change.TypeDocument:
		return Document
	case change.TypeArray:
		return Array
	}
	return Opaque
}

// A Scalar is a value prepared for comparison. It aliases the value. The zero Scalar is absent.
type Scalar struct {
	Class Class
	num   number // Number; an integer for Bool and Date, with a Date's nanoseconds below the millisecond in near
	text  []byte // Text, Bytes, ObjectID; Binary and Opaque with a first byte for subtype or type
	tag   byte
}

// ScalarOf returns the scalar of a value. Of documents and arrays it has only the class.
func ScalarOf(v change.Value) Scalar {
	s := Scalar{Class: ClassOf(v)}
	switch s.Class {
	case Number:
		s.num = numberOf(v)
	case Text:
		s.text = v.Data[4 : len(v.Data)-1]
	case Bytes:
		s.text = v.Data[5:]
	case Binary:
		s.text, s.tag = v.Data[5:], v.Data[4]
		if s.tag == oldUUIDSubtype && len(s.text) == 16 {
			s.tag = uuidSubtype
		}
	case Bool:
		s.num.i = int64(btoi(v.Data[0] != 0))
	case Date:
		s.num.i = int64(binary.LittleEndian.Uint64(v.Data))
	case ObjectID:
		s.text = v.Data
	case Opaque:
		s.text, s.tag = v.Data, v.Type
	case Absent, Document, Array:
	}
	return s
}

func numberOf(v change.Value) number {
	switch v.Type {
	case change.TypeInt32:
		return intNumber(int64(int32(binary.LittleEndian.Uint32(v.Data))))
	case change.TypeInt64:
		return intNumber(int64(binary.LittleEndian.Uint64(v.Data)))
	case change.TypeDouble:
		return doubleNumber(math.Float64frombits(binary.LittleEndian.Uint64(v.Data)))
	}
	return decimalNumber(decimalOf(v.Data))
}

// IsNaN reports whether the scalar is NaN.
func (s Scalar) IsNaN() bool { return s.Class == Number && s.num.isNaN() }

// Compare orders two scalars of one ordered class. Neither is NaN.
func (s Scalar) Compare(t Scalar) int {
	switch s.Class {
	case Number:
		return s.num.compare(t.num)
	case Bool, Date:
		return cmp.Or(cmp.Compare(s.num.i, t.num.i), cmp.Compare(s.num.near, t.num.near))
	default:
		return bytes.Compare(s.text, t.text)
	}
}

// Prefix returns a 64-bit approximation of the order of Compare: if prefixes differ, the smaller
// one belongs to the smaller scalar.
func (s Scalar) Prefix() uint64 {
	const sign = 1 << 63
	switch s.Class {
	case Number:
		if s.num.near == 0 {
			return sign // of either sign
		}
		if bits := math.Float64bits(s.num.near); bits&sign == 0 {
			return bits | sign
		}
		return ^math.Float64bits(s.num.near)
	case Bool, Date:
		return uint64(s.num.i) ^ sign
	default:
		var head [8]byte
		copy(head[:], s.text)
		return binary.BigEndian.Uint64(head[:])
	}
}

// Equal reports whether two scalars are equal. Documents and arrays are never equal here; the
// caller compares their contents.
func (s Scalar) Equal(t Scalar) bool {
	switch {
	case s.Class != t.Class, s.IsNaN(), t.IsNaN(), s.Class >= Document:
		return false
	case s.Class == Absent:
		return true
	case s.Class.isOrdered():
		return s.Compare(t) == 0
	}
	return s.tag == t.tag && bytes.Equal(s.text, t.text)
}

// orderOf compares two scalars for <, <=, > and >=. If ordered is false, all of these are false; if
// ok is false, they are errors.
func orderOf(s, t Scalar) (order int, ordered, ok bool) {
	switch {
	case s.Class == Absent || t.Class == Absent:
		return 0, false, true
	case s.Class != t.Class || !s.Class.isOrdered():
		return 0, false, false
	case s.IsNaN() || t.IsNaN():
		return 0, false, true
	}
	return s.Compare(t), true, true
}
