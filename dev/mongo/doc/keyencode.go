package doc

import (
	"encoding/binary"
	"math"
	"math/bits"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mongostream/streamer/dev/mongo/wire"
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

// Reset empties the buffer and keeps the memory.
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

// SortKey encodes one value without the closing byte: equal values, whatever their number types,
// have equal keys, and keys sort as values do.
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
		e.Binary(v.Data[4], v.Data[5:]) // old binary data with its inner length
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

// fields encodes a document: for each element its type byte, its name, and the value with its own
// type byte.
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

// preshifted writes an integer part shifted left by one: the lowest bit says whether a fraction
// follows.
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

// continuation tells how the stored double relates to the number: the last two bits of its
// encoding, or the last bit where only one is free.
type continuation uint64

const (
	exactDouble    continuation = 0 // the double is the number
	belowRounded   continuation = 1 // less than the double rounded up to 15 digits; eight bytes follow
	roundedDouble  continuation = 2 // the double rounded up to 15 digits is the number
	beyondRounded  continuation = 3 // more than that; eight bytes follow
	infinity                    = ^uint64(0)
	largeDouble                 = 1 << 63 // first double that is no int64
	exactIntegers               = 1 << 53
	tinyShift                   = 256 // tiny doubles are scaled by 2^256, so that none is subnormal
	tinyPrefix                  = uint64(1) << 62
	maxFifteenPlus              = 1e15
)

// tiniestTwoBits is the smallest double that leaves two bits for the continuation.
func tiniestTwoBits() float64 { return math.Ldexp(1, -255) }

func (e *KeyEncoder) double(f float64) {
	if f == 0 && math.Signbit(f) {
		e.bits.put(bitsNegativeZero, 5)
	} else {
		e.bits.put(bitsDouble, 2)
	}
	e.doubleValue(f, exactDouble)
}

// doubleValue writes a double of any size with its continuation marker.
func (e *KeyEncoder) doubleValue(f float64, c continuation) {
	magnitude := math.Abs(f)
	switch {
	case math.IsNaN(f):
		e.buf = append(e.buf, numberNaN)
	case f == 0:
		e.buf = append(e.buf, numberZero)
	case magnitude < 1:
		e.smallDouble(f, c)
	case magnitude < largeDouble:
		e.mediumDouble(f, c)
	default:
		e.largeDouble(f, c)
	}
}

// mediumDouble writes doubles from 1 to 2^63: the integer part like an integer, then the bytes of
// the fraction.
func (e *KeyEncoder) mediumDouble(f float64, c continuation) {
	magnitude := math.Abs(f)
	negative := f < 0
	integer := uint64(magnitude)
	if float64(integer) == magnitude && c == exactDouble {
		e.preshifted(integer<<1, negative)
		return
	}
	fraction := bits.LeadingZeros64(integer<<1) / 8
	if negative {
		e.buf = append(e.buf, byte(numberNegative8+fraction))
	} else {
		e.buf = append(e.buf, byte(numberPositive8-fraction))
	}
	v := uint64(magnitude * math.Ldexp(1, 8*fraction))
	v += (integer + 1) << (8 * fraction) // doubles the integer part and sets the bit that says "fraction"
	e.uint64(v|uint64(c), negative)
}

func (e *KeyEncoder) smallDouble(f float64, c continuation) {
	negative := f < 0
	magnitude := math.Abs(f)
	e.buf = append(e.buf, smallType(negative))
	if magnitude >= tiniestTwoBits() {
		e.uint64(math.Float64bits(magnitude)<<2|uint64(c), negative)
		return
	}
	v := math.Float64bits(math.Ldexp(magnitude, tinyShift)) << 1
	if c != exactDouble {
		v |= 1
	}
	e.uint64(v+tinyPrefix, negative)
}

func (e *KeyEncoder) largeDouble(f float64, c continuation) {
	negative := f < 0
	e.buf = append(e.buf, largeType(negative))
	if math.IsInf(f, 0) {
		e.uint64(infinity, negative)
		return
	}
	v := math.Float64bits(f) << 1 &^ (1 << 63)
	if c != exactDouble {
		v |= 1
	}
	e.uint64(v, negative)
}

func smallType(negative bool) byte {
	if negative {
		return numberNegativeSmall
	}
	return numberPositiveSmall
}

func largeType(negative bool) byte {
	if negative {
		return numberNegativeLarge
	}
	return numberPositiveLarge
}

// decimal writes a decimal: as a double where that is exact or exact after rounding up to 15
// digits, else with a continuation, else (beyond the doubles) as itself.
func (e *KeyEncoder) decimal(d decimal) {
	switch {
	case d.kind == decimalNaN:
		e.bits.put(bitsDecimal, 2)
		e.buf = append(e.buf, numberNaN)
		return
	case d.kind == decimalInfinite:
		e.bits.put(bitsDecimal, 2)
		e.buf = append(e.buf, largeType(d.negative))
		e.uint64(infinity, d.negative)
		return
	case d.zero():
		e.decimalZero(d)
		return
	}
	e.bits.put(bitsDecimal, 2)
	e.bits.put(uint32(d.biased())&(1<<exponentBits-1), exponentBits)
	bin, exact := d.toDouble()
	if d.negative {
		bin = -bin
	}
	switch magnitude := math.Abs(bin); {
	case exact:
		e.doubleValue(bin, exactDouble)
	case magnitude < 0x1p-1022:
		e.tinyDecimal(d, magnitude)
	case magnitude >= math.MaxFloat64:
		e.hugeDecimal(d)
	case magnitude >= largeDouble:
		e.largeDouble(bin, beyondRounded)
		e.continuation(d, decimalFromDouble(magnitude, true))
	case magnitude < tiniestTwoBits():
		e.smallDouble(bin, beyondRounded)
		e.continuation(d, decimalFromDouble(magnitude, true))
	case magnitude >= exactIntegers:
		e.wideDecimal(d)
	default:
		e.commonDecimal(d, bin)
	}
}

func (e *KeyEncoder) decimalZero(d decimal) {
	which := uint32(d.biased())
	if d.negative {
		which += maxBiasedExponent + 1
	}
	e.bits.put(bitsDecimalZero+which>>12, 5)
	e.bits.put(which&0xfff, 12)
	e.buf = append(e.buf, numberZero)
}

func (e *KeyEncoder) commonDecimal(d decimal, bin float64) {
	magnitude := math.Abs(bin)
	if d.below(maxFifteenPlus) {
		e.doubleValue(bin, roundedDouble)
		return
	}
	switch rounded := decimalFromDouble(magnitude, true).round(15, true); d.compare(rounded) {
	case 0:
		e.doubleValue(bin, roundedDouble)
		return
	case -1:
		e.doubleValue(bin, belowRounded)
	default:
		e.doubleValue(bin, beyondRounded)
	}
	e.continuation(d, decimalFromDouble(magnitude, true))
}

// wideDecimal writes decimals from 2^53 to 2^63, whose integer part a double would blur.
func (e *KeyEncoder) wideDecimal(d decimal) {
	integer, fraction := d.integer()
	v := integer << 1
	if fraction {
		v |= 1
	}
	e.preshifted(v, d.negative)
	if !fraction {
		return
	}
	if integer < 1<<55 { // seven bytes: the eighth holds the marker
		e.buf = append(e.buf, flip(byte(beyondRounded), d.negative))
	}
	e.continuation(d, decimalFromInt(integer))
}

// continuation writes how much the decimal exceeds the stored value, in units of that value's last
// digit.
func (e *KeyEncoder) continuation(d, stored decimal) {
	e.uint64(d.excess(stored.normalize()), d.negative)
}

// hugeDecimal writes decimals beyond the doubles as they are, above every double and below
// infinity.
func (e *KeyEncoder) hugeDecimal(d decimal) {
	hi, lo := d.normalize().words()
	e.buf = append(e.buf, largeType(d.negative))
	e.uint64(hi|1<<63, d.negative)
	e.uint64(lo, d.negative)
}

// tinyDecimal writes decimals below the normal doubles.
func (e *KeyEncoder) tinyDecimal(d decimal, magnitude float64) {
	e.buf = append(e.buf, smallType(d.negative))
	if magnitude == 0 {
		hi, lo := d.normalize().words()
		e.uint64(hi, d.negative)
		e.uint64(lo, d.negative)
		return
	}
	scaled, _ := d.scale(tinyShift).toDouble()
	scaled = max(scaled, math.Ldexp(magnitude, tinyShift))
	e.uint64(math.Float64bits(scaled)<<1|1+tinyPrefix, d.negative)
	e.uint64(d.excess(tinyStored(scaled).normalize()), d.negative)
}

// tinyStored is the decimal value of a scaled tiny double, rounded down at every step.
func tinyStored(scaled float64) decimal {
	return decimalFromDouble(scaled, false).scale(-tinyShift)
}
