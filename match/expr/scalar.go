package expr

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"math"

	"github.com/mongostream/streamer/change"
)

// A Class is a kind of value within which values may be equal and, for some, have an order. Across classes nothing is equal.
type Class uint8

// The classes; the ordered ones come first.
const (
	Absent Class = iota // null, undefined, and a field that is not there
	Number
	Text
	Bytes // binary data of subtype 0
	Bool
	Date
	ObjectID
	lastOrdered = ObjectID
	Binary      = lastOrdered + 1 // binary data of other subtypes
	Opaque      = lastOrdered + 2 // regular expressions, code, timestamps of the log, …: equal to themselves only
	Document    = lastOrdered + 3
	Array       = lastOrdered + 4
)

// Classes is the number of classes.
const Classes = int(Array) + 1

var classNames = [Classes]string{"null", "number", "string", "bytes", "bool", "date", "ObjectId", "binary", "other", "document", "array"} //nolint:gochecknoglobals // a constant table

// String returns the name that people see in errors.
func (c Class) String() string { return classNames[c] }

// IsOrdered reports whether values of the class have an order.
func (c Class) IsOrdered() bool { return c > Absent && c <= lastOrdered }

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

// A Scalar is a value taken apart for comparisons. It aliases what it was made of. The zero Scalar is absent.
type Scalar struct {
	Class Class
	num   number // Number; Bool and Date in its integer, a Date's nanoseconds below the millisecond in its double
	text  []byte // Text, Bytes, ObjectID; Binary and Opaque with a first byte that tells subtype or type
	tag   byte
}

// ScalarOf takes a value apart. Documents and arrays stay whole: only their class is known.
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

// IsNaN reports whether the scalar is a number that equals nothing and has no order.
func (s Scalar) IsNaN() bool { return s.Class == Number && s.num.isNaN() }

// Compare orders two scalars of one ordered class, of which none is NaN.
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

// Prefix returns a number that orders scalars of one ordered class as Compare does, as far as 64 bits can: of unequal prefixes the smaller
// belongs to the smaller scalar.
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

// Equal reports whether two scalars are equal. Documents and arrays equal nothing here: who meets two of them compares what is inside.
func (s Scalar) Equal(t Scalar) bool {
	switch {
	case s.Class != t.Class || s.IsNaN() || t.IsNaN() || s.Class >= Document:
		return false
	case s.Class == Absent:
		return true
	case s.Class.IsOrdered():
		return s.Compare(t) == 0
	}
	return s.tag == t.tag && bytes.Equal(s.text, t.text)
}

// Order compares two scalars for <, <=, > and >=. Not ordered: every one of them is false. Not ok: they have no meaning.
func Order(s, t Scalar) (order int, ordered, ok bool) {
	switch {
	case s.Class == Absent || t.Class == Absent:
		return 0, false, true
	case s.Class != t.Class || !s.Class.IsOrdered():
		return 0, false, false
	case s.IsNaN() || t.IsNaN():
		return 0, false, true
	}
	return s.Compare(t), true, true
}
