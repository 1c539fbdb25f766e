package doc

import (
	"encoding/binary"
	"math"
	"math/bits"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mongostream/streamer/internal/devmongo/wire"
)

// Type bytes. Numbers span 30 to 51: the byte says sign, size and magnitude.
const (
	typeMinKey     = 10
	typeUndefined  = 15
	typeNull       = 20
	typeNumber     = 30
	typeString     = 60
	typeObject     = 70
	typeArray      = 80
	typeBinary     = 90
	typeObjectID   = 100
	typeFalse      = 110
	typeTrue       = 111
	typeDate       = 120
	typeTimestamp  = 130
	typeRegex      = 140
	typeDBPointer  = 150
	typeCode       = 160
	typeCodeScoped = 170
	typeMaxKey     = 240

	end = 4
)

const (
	numberNaN           = typeNumber
	numberNegativeLarge = typeNumber + 1 // ≤ -2^63
	numberNegative8     = typeNumber + 2 // eight bytes down to
	numberNegative1     = typeNumber + 9 // one byte
	numberNegativeSmall = typeNumber + 10
	numberZero          = typeNumber + 11
	numberPositiveSmall = typeNumber + 12 // < 1
	numberPositive1     = typeNumber + 13
	numberPositive8     = typeNumber + 20
	numberPositiveLarge = typeNumber + 21 // ≥ 2^63
)

// maxDepth bounds the nesting that Encoder and Decode follow.
const maxDepth = 200

// KeyEncoder builds one KeyString. The zero value is ready; Reset makes it ready again.
type KeyEncoder struct {
	buf  []byte
	bits bitWriter
}

// Reset forgets what was appended and keeps the memory.
func (e *KeyEncoder) Reset() {
	e.buf = e.buf[:0]
	e.bits.reset()
}

// Append adds one value.
func (e *KeyEncoder) Append(v bsoncore.Value) error { return e.value(v, 0) }

// Timestamp adds a timestamp.
func (e *KeyEncoder) Timestamp(ts uint64) {
	e.buf = binary.BigEndian.AppendUint64(append(e.buf, typeTimestamp), ts)
}

// Int32 adds a 32-bit integer.
func (e *KeyEncoder) Int32(n int32) { e.integer(int64(n), bitsInt) }

// Bool adds a bool.
func (e *KeyEncoder) Bool(b bool) {
	if b {
		e.buf = append(e.buf, typeTrue)
		return
	}
	e.buf = append(e.buf, typeFalse)
}

// Null adds a null.
func (e *KeyEncoder) Null() { e.buf = append(e.buf, typeNull) }

// Binary adds binary data.
func (e *KeyEncoder) Binary(subtype byte, data []byte) {
	e.buf = append(e.buf, typeBinary)
	if len(data) < 0xff {
		e.buf = append(e.buf, byte(len(data)))
	} else {
		e.buf = binary.BigEndian.AppendUint32(append(e.buf, 0xff), uint32(len(data)))
	}
	e.buf = append(e.buf, subtype)
	e.buf = append(e.buf, data...)
}

// End closes the key.
func (e *KeyEncoder) End() { e.buf = append(e.buf, end) }

// Bytes is the key so far; it is valid until the next call.
func (e *KeyEncoder) Bytes() []byte { return e.buf }

// TypeBits are the encoded type bits, nil when they are all zero.
func (e *KeyEncoder) TypeBits() []byte { return e.bits.encode() }

// SortKey encodes one value without the closing byte: equal values, whatever their number types, have equal
// keys, and keys sort as values do.
func SortKey(v bsoncore.Value) (string, error) {
	var e KeyEncoder
	if err := e.Append(v); err != nil {
		return "", err
	}
	return string(e.buf), nil
}

func (e *KeyEncoder) value(v bsoncore.Value, depth int) error {
	if depth > maxDepth {
		return wire.Errorf(wire.Overflow, "KeyString encoding exceeded maximum allowable BSON nesting depth")
	}
	switch v.Type {
	case bsoncore.TypeInt32:
		e.integer(int64(v.Int32()), bitsInt)
	case bsoncore.TypeInt64:
		e.integer(v.Int64(), bitsLong)
	case bsoncore.TypeDouble:
		e.double(v.Double())
	case bsoncore.TypeDecimal128:
		h, l := v.Decimal128()
		e.decimal(decimalOf(h, l))
	case bsoncore.TypeString, bsoncore.TypeSymbol:
		e.text(v)
	case bsoncore.TypeEmbeddedDocument:
		e.buf = append(e.buf, typeObject)
		return e.fields(v.Data, depth)
	case bsoncore.TypeArray:
		e.buf = append(e.buf, typeArray)
		for item := range Values(v.Data) {
			if err := e.value(item, depth+1); err != nil {
				return err
			}
		}
		e.buf = append(e.buf, 0)
	case bsoncore.TypeBinary:
		e.Binary(v.Binary())
	default:
		return e.plain(v, depth)
	}
	return nil
}

// plain encodes the types without type bits.
func (e *KeyEncoder) plain(v bsoncore.Value, depth int) error {
	kind, ok := typeByte(v)
	if !ok {
		return wire.Errorf(wire.BadValue, "cannot encode a value of type %s", v.Type)
	}
	e.buf = append(e.buf, kind)
	switch v.Type {
	case bsoncore.TypeBoolean:
		e.buf[len(e.buf)-1] += v.Data[0]
	case bsoncore.TypeObjectID:
		e.buf = append(e.buf, v.Data...)
	case bsoncore.TypeDateTime:
		e.buf = binary.BigEndian.AppendUint64(e.buf, uint64(v.DateTime())^1<<63)
	case bsoncore.TypeTimestamp:
		t, i := v.Timestamp()
		e.buf = binary.BigEndian.AppendUint64(e.buf, uint64(t)<<32|uint64(i))
	case bsoncore.TypeRegex:
		e.buf = append(e.buf, v.Data...)
	case bsoncore.TypeDBPointer:
		ns, id := v.DBPointer()
		e.buf = binary.BigEndian.AppendUint32(e.buf, uint32(len(ns)))
		e.buf = append(append(e.buf, ns...), id[:]...)
	case bsoncore.TypeJavaScript:
		e.stringLike(v.JavaScript())
	case bsoncore.TypeCodeWithScope:
		code, scope := v.CodeWithScope()
		e.stringLike(code)
		return e.fields(scope, depth)
	default:
		// The type byte says it all: null, the smallest and the largest key.
	}
	return nil
}

func (e *KeyEncoder) text(v bsoncore.Value) {
	e.buf = append(e.buf, typeString)
	if v.Type == bsoncore.TypeSymbol {
		e.bits.put(1, 1)
		e.stringLike(v.Symbol())
		return
	}
	e.bits.put(0, 1)
	e.stringLike(v.StringValue())
}

// stringLike ends a string with NUL; a NUL inside becomes NUL 0xff.
func (e *KeyEncoder) stringLike(s string) {
	for i := range len(s) {
		e.buf = append(e.buf, s[i])
		if s[i] == 0 {
			e.buf = append(e.buf, 0xff)
		}
	}
	e.buf = append(e.buf, 0)
}

// fields encodes a document: for each element its type byte, its name, and the value with its own type byte.
func (e *KeyEncoder) fields(d []byte, depth int) error {
	for name, v := range All(d) {
		kind, ok := typeByte(v)
		if !ok {
			return wire.Errorf(wire.BadValue, "cannot encode a value of type %s", v.Type)
		}
		e.buf = append(append(append(e.buf, kind), name...), 0)
		if err := e.value(v, depth+1); err != nil {
			return err
		}
	}
	e.buf = append(e.buf, 0)
	return nil
}

// typeByte is the type byte in front of a field's name: all numbers share one, and both bools.
func typeByte(v bsoncore.Value) (byte, bool) {
	switch v.Type {
	case bsoncore.TypeMinKey:
		return typeMinKey, true
	case bsoncore.TypeUndefined:
		return typeUndefined, true
	case bsoncore.TypeNull:
		return typeNull, true
	case bsoncore.TypeInt32, bsoncore.TypeInt64, bsoncore.TypeDouble, bsoncore.TypeDecimal128:
		return typeNumber, true
	case bsoncore.TypeString, bsoncore.TypeSymbol:
		return typeString, true
	case bsoncore.TypeEmbeddedDocument:
		return typeObject, true
	case bsoncore.TypeArray:
		return typeArray, true
	case bsoncore.TypeBinary:
		return typeBinary, true
	case bsoncore.TypeObjectID:
		return typeObjectID, true
	case bsoncore.TypeBoolean:
		return typeFalse, true
	case bsoncore.TypeDateTime:
		return typeDate, true
	case bsoncore.TypeTimestamp:
		return typeTimestamp, true
	case bsoncore.TypeRegex:
		return typeRegex, true
	case bsoncore.TypeDBPointer:
		return typeDBPointer, true
	case bsoncore.TypeJavaScript:
		return typeCode, true
	case bsoncore.TypeCodeWithScope:
		return typeCodeScoped, true
	case bsoncore.TypeMaxKey:
		return typeMaxKey, true
	default:
		return 0, false
	}
}

func (e *KeyEncoder) integer(n int64, kind uint32) {
	e.bits.put(kind, 2)
	switch {
	case n == 0:
		e.buf = append(e.buf, numberZero)
	case n == math.MinInt64: // exact as a double, but has no positive twin
		e.largeDouble(float64(n), exactDouble)
	case n < 0:
		e.preshifted(uint64(-n)<<1, true)
	default:
		e.preshifted(uint64(n)<<1, false)
	}
}

// preshifted writes an integer part shifted left by one: the lowest bit says whether a fraction follows.
func (e *KeyEncoder) preshifted(v uint64, negative bool) {
	n := (bits.Len64(v) + 7) / 8
	if negative {
		e.buf = append(e.buf, byte(numberNegative1-(n-1)))
	} else {
		e.buf = append(e.buf, byte(numberPositive1+(n-1)))
	}
	for i := n - 1; i >= 0; i-- {
		e.buf = append(e.buf, flip(byte(v>>(8*i)), negative))
	}
}

func (e *KeyEncoder) uint64(v uint64, invert bool) {
	if invert {
		v = ^v
	}
	e.buf = binary.BigEndian.AppendUint64(e.buf, v)
}

func flip(b byte, invert bool) byte {
	if invert {
		return ^b
	}
	return b
}
