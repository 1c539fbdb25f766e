package doc

import (
	"bytes"
	"encoding/binary"
	"math"
	"strconv"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mongostream/streamer/dev/mongo/wire"
)

// DecodeKey reads a key and its type bits (nil for none) back into values. It stops at the closing
// byte, or at the end of the key. The values do not alias key.
func DecodeKey(key, typeBits []byte) ([]bsoncore.Value, error) {
	bits, err := newBitReader(typeBits)
	if err != nil {
		return nil, err
	}
	d := &keyDecoder{rest: key, bits: bits}
	var values []bsoncore.Value
	for len(d.rest) > 0 && d.rest[0] != end {
		v, err := d.next(0)
		if err != nil {
			return nil, err
		}
		values = append(values, v)
	}
	return values, nil
}

// keyError reports malformed bytes of a KeyString.
func keyError(code wire.Code, text string) error {
	return wire.Errorf(code, "KeyString format error: %s", text)
}

// pastEnd reports missing bytes.
func pastEnd(want, have int) error {
	return wire.Errorf(wire.Overflow, "Invalid advance (%d) past end of buffer[%d] at offset: 0", want, have)
}

type keyDecoder struct {
	rest []byte
	bits *bitReader
}

func (d *keyDecoder) take(n int) ([]byte, error) {
	if n > len(d.rest) {
		return nil, pastEnd(n, len(d.rest))
	}
	out := d.rest[:n]
	d.rest = d.rest[n:]
	return out, nil
}

func (d *keyDecoder) byte() (byte, error) {
	b, err := d.take(1)
	if err != nil {
		return 0, err
	}
	return b[0], nil
}

func (d *keyDecoder) uint64(inverted bool) (uint64, error) {
	b, err := d.take(8)
	if err != nil {
		return 0, err
	}
	v := binary.BigEndian.Uint64(b)
	if inverted {
		v = ^v
	}
	return v, nil
}

// next reads a value with its type byte.
func (d *keyDecoder) next(depth int) (bsoncore.Value, error) {
	kind, err := d.byte()
	if err != nil {
		return bsoncore.Value{}, err
	}
	return d.value(kind, depth)
}

func (d *keyDecoder) value(kind byte, depth int) (bsoncore.Value, error) {
	if depth > maxDepth {
		return bsoncore.Value{}, keyError(wire.Overflow, "KeyString encoding exceeded maximum allowable BSON nesting depth")
	}
	switch kind {
	case typeString:
		return d.text()
	case typeObject:
		b, err := d.fields(depth)
		return value(bsoncore.TypeEmbeddedDocument, b, err)
	case typeArray:
		return d.array(depth)
	case typeBinary:
		return d.binary()
	case typeObjectID:
		b, err := d.take(12)
		return value(bsoncore.TypeObjectID, bytes.Clone(b), err)
	case typeDate:
		v, err := d.uint64(false)
		return value(bsoncore.TypeDateTime, bsoncore.AppendInt64(nil, int64(v^1<<63)), err)
	case typeTimestamp:
		v, err := d.uint64(false)
		return value(bsoncore.TypeTimestamp, bsoncore.AppendTimestamp(nil, uint32(v>>32), uint32(v)), err)
	case typeFalse, typeTrue:
		return value(bsoncore.TypeBoolean, []byte{kind - typeFalse}, nil)
	case typeMinKey:
		return bsoncore.Value{Type: bsoncore.TypeMinKey}, nil
	case typeMaxKey:
		return bsoncore.Value{Type: bsoncore.TypeMaxKey}, nil
	case typeNull:
		return bsoncore.Value{Type: bsoncore.TypeNull}, nil
	case typeUndefined:
		return bsoncore.Value{Type: bsoncore.TypeUndefined}, nil
	default:
		return d.rare(kind, depth)
	}
}

// rare reads the types that few documents have, and the numbers.
func (d *keyDecoder) rare(kind byte, depth int) (bsoncore.Value, error) {
	switch kind {
	case typeRegex:
		pattern, err := d.cstring()
		if err != nil {
			return bsoncore.Value{}, err
		}
		options, err := d.cstring()
		return value(bsoncore.TypeRegex, bsoncore.AppendRegex(nil, pattern, options), err)
	case typeDBPointer:
		return d.pointer()
	case typeCode:
		s, err := d.escaped()
		return value(bsoncore.TypeJavaScript, bsoncore.AppendString(nil, s), err)
	case typeCodeScoped:
		s, err := d.escaped()
		if err != nil {
			return bsoncore.Value{}, err
		}
		scope, err := d.fields(depth + 1)
		return value(bsoncore.TypeCodeWithScope, bsoncore.AppendCodeWithScope(nil, s, scope), err)
	default:
		if kind >= numberNaN && kind <= numberPositiveLarge {
			return d.number(kind)
		}
		return bsoncore.Value{}, keyError(50811, "Unknown type: "+strconv.Itoa(int(kind)))
	}
}

func value(kind bsoncore.Type, data []byte, err error) (bsoncore.Value, error) {
	if err != nil {
		return bsoncore.Value{}, err
	}
	return bsoncore.Value{Type: kind, Data: data}, nil
}

// fields reads a document's elements up to the closing zero.
func (d *keyDecoder) fields(depth int) ([]byte, error) {
	at, out := bsoncore.AppendDocumentStart(nil)
	for {
		more, err := d.byte()
		if err != nil {
			return nil, err
		}
		if more == 0 {
			return bsoncore.AppendDocumentEnd(out, at)
		}
		name, err := d.cstring()
		if err != nil {
			return nil, err
		}
		v, err := d.next(depth + 1)
		if err != nil {
			return nil, err
		}
		out = bsoncore.AppendValueElement(out, name, v)
	}
}

func (d *keyDecoder) array(depth int) (bsoncore.Value, error) {
	at, out := bsoncore.AppendArrayStart(nil)
	for i := 0; ; i++ {
		kind, err := d.byte()
		if err != nil {
			return bsoncore.Value{}, err
		}
		if kind == 0 {
			out, err = bsoncore.AppendArrayEnd(out, at)
			return value(bsoncore.TypeArray, out, err)
		}
		v, err := d.value(kind, depth+1)
		if err != nil {
			return bsoncore.Value{}, err
		}
		out = bsoncore.AppendValueElement(out, strconv.Itoa(i), v)
	}
}

func (d *keyDecoder) text() (bsoncore.Value, error) {
	kind, err := d.bits.get(1)
	if err != nil {
		return bsoncore.Value{}, err
	}
	s, err := d.escaped()
	if kind == 1 {
		return value(bsoncore.TypeSymbol, bsoncore.AppendString(nil, s), err)
	}
	return value(bsoncore.TypeString, bsoncore.AppendString(nil, s), err)
}

// cstring reads up to the next NUL.
func (d *keyDecoder) cstring() (string, error) {
	i := bytes.IndexByte(d.rest, 0)
	if i < 0 {
		return "", keyError(50816, "Failed to find null terminator in string.")
	}
	s := string(d.rest[:i])
	d.rest = d.rest[i+1:]
	return s, nil
}

// escaped reads a string in which NUL 0xff means a NUL.
func (d *keyDecoder) escaped() (string, error) {
	var out string
	for {
		part, err := d.cstring()
		if err != nil {
			return "", err
		}
		out += part
		if len(d.rest) == 0 || d.rest[0] != 0xff {
			return out, nil
		}
		out += "\x00"
		d.rest = d.rest[1:]
	}
}

func (d *keyDecoder) binary() (bsoncore.Value, error) {
	short, err := d.byte()
	if err != nil {
		return bsoncore.Value{}, err
	}
	size := int(short)
	if short == 0xff {
		long, err := d.take(4)
		if err != nil {
			return bsoncore.Value{}, err
		}
		size = int(binary.BigEndian.Uint32(long))
	}
	subtype, err := d.byte()
	if err != nil {
		return bsoncore.Value{}, err
	}
	data, err := d.take(size)
	if err != nil {
		return bsoncore.Value{}, err
	}
	return value(bsoncore.TypeBinary, append(append(binary.LittleEndian.AppendUint32(nil, uint32(len(data))), subtype), data...), nil)
}

func (d *keyDecoder) pointer() (bsoncore.Value, error) {
	size, err := d.take(4)
	if err != nil {
		return bsoncore.Value{}, err
	}
	ns, err := d.take(int(binary.BigEndian.Uint32(size)))
	if err != nil {
		return bsoncore.Value{}, err
	}
	id, err := d.take(12)
	if err != nil {
		return bsoncore.Value{}, err
	}
	return value(bsoncore.TypeDBPointer, bsoncore.AppendDBPointer(nil, string(ns), [12]byte(id)), nil)
}

// number reads a number of any type; negative numbers are stored with all bits flipped.
func (d *keyDecoder) number(kind byte) (bsoncore.Value, error) {
	switch {
	case kind == numberZero:
		return d.zero()
	case kind == numberNaN:
		return d.nan()
	}
	original, err := d.bits.get(2)
	if err != nil {
		return bsoncore.Value{}, err
	}
	n := numberReader{keyDecoder: d, original: original, negative: kind < numberZero}
	switch kind {
	case numberNegativeLarge, numberPositiveLarge:
		return n.large()
	case numberNegativeSmall, numberPositiveSmall:
		return n.small()
	}
	if n.negative {
		return n.medium(int(numberNegative1-kind) + 1)
	}
	return n.medium(int(kind-numberPositive1) + 1)
}

func (d *keyDecoder) nan() (bsoncore.Value, error) {
	original, err := d.bits.get(2)
	switch {
	case err != nil:
		return bsoncore.Value{}, err
	case original == bitsDouble:
		return value(bsoncore.TypeDouble, bsoncore.AppendDouble(nil, math.NaN()), nil)
	case original == bitsDecimal:
		return value(bsoncore.TypeDecimal128, bsoncore.AppendDecimal128(nil, 0x1f<<58, 0), nil)
	default:
		return bsoncore.Value{}, keyError(50819, "Invalid type bits for numeric NaN")
	}
}

func (d *keyDecoder) zero() (bsoncore.Value, error) {
	kind, err := d.bits.get(2)
	if err != nil {
		return bsoncore.Value{}, err
	}
	switch kind {
	case bitsInt:
		return value(bsoncore.TypeInt32, bsoncore.AppendInt32(nil, 0), nil)
	case bitsLong:
		return value(bsoncore.TypeInt64, bsoncore.AppendInt64(nil, 0), nil)
	case bitsDouble:
		return value(bsoncore.TypeDouble, bsoncore.AppendDouble(nil, 0), nil)
	}
	more, err := d.bits.get(3)
	if err != nil {
		return bsoncore.Value{}, err
	}
	switch special := kind<<3 | more; {
	case special == bitsNegativeZero:
		return value(bsoncore.TypeDouble, bsoncore.AppendDouble(nil, math.Copysign(0, -1)), nil)
	case special < bitsDecimalZero:
		return bsoncore.Value{}, keyError(50846, "Invalid numeric zero decimal.")
	default:
		return d.decimalZero(special - bitsDecimalZero)
	}
}

func (d *keyDecoder) decimalZero(which uint32) (bsoncore.Value, error) {
	low, err := d.bits.get(12)
	if err != nil {
		return bsoncore.Value{}, err
	}
	biased := int(which<<12 | low)
	negative := biased > maxBiasedExponent
	if negative {
		biased -= maxBiasedExponent + 1
	}
	hi, lo := decimalZeroOf(negative, biased).value()
	return value(bsoncore.TypeDecimal128, bsoncore.AppendDecimal128(nil, hi, lo), nil)
}

// numberReader reads one number whose type bits are known.
type numberReader struct {
	*keyDecoder
	original uint32
	negative bool
}

func (n numberReader) double(f float64) (bsoncore.Value, error) {
	if n.negative {
		f = -f
	}
	return value(bsoncore.TypeDouble, bsoncore.AppendDouble(nil, f), nil)
}

// decimal gives the number the exponent that the type bits name.
func (n numberReader) decimal(d decimal) (bsoncore.Value, error) {
	stored, err := n.bits.get(exponentBits)
	if err != nil {
		return bsoncore.Value{}, err
	}
	if d.zero() {
		return bsoncore.Value{}, keyError(50829, "Expected non-zero number for decimal.")
	}
	d.negative = n.negative
	d, ok := d.adjust(stored)
	if !ok {
		return bsoncore.Value{}, keyError(50814, "Unexpected exponent values after adjusting Decimal.")
	}
	hi, lo := d.value()
	return value(bsoncore.TypeDecimal128, bsoncore.AppendDecimal128(nil, hi, lo), nil)
}

// continued adds the eight bytes that follow to the stored value.
func (n numberReader) continued(stored decimal) (bsoncore.Value, error) {
	excess, err := n.uint64(n.negative)
	if err != nil {
		return bsoncore.Value{}, err
	}
	d, ok := stored.normalize().plus(excess)
	if !ok {
		return bsoncore.Value{}, keyError(50850, "Invalid decimal continuation.")
	}
	return n.decimal(d)
}

func (n numberReader) large() (bsoncore.Value, error) {
	v, err := n.uint64(n.negative)
	if err != nil {
		return bsoncore.Value{}, err
	}
	if v>>63 == 1 {
		return n.beyondDoubles(v)
	}
	bin := math.Float64frombits(v>>1 | 1<<62)
	switch {
	case n.original == bitsDouble:
		return n.double(bin)
	case n.original == bitsLong && bin == largeDouble:
		return value(bsoncore.TypeInt64, bsoncore.AppendInt64(nil, math.MinInt64), nil)
	case n.original != bitsDecimal || math.IsInf(bin, 0) || math.IsNaN(bin):
		return bsoncore.Value{}, keyError(50826, "Unexpected type of large number.")
	case v&1 == 1:
		return n.continued(decimalFromDouble(bin, true))
	default:
		return n.decimal(decimalFromDouble(bin, true))
	}
}

// beyondDoubles reads infinities and decimals that no double reaches.
func (n numberReader) beyondDoubles(v uint64) (bsoncore.Value, error) {
	if v == infinity {
		if n.original == bitsDouble {
			return n.double(math.Inf(1))
		}
		hi := uint64(0x1e) << 58
		if n.negative {
			hi |= 1 << 63
		}
		return value(bsoncore.TypeDecimal128, bsoncore.AppendDecimal128(nil, hi, 0), nil)
	}
	lo, err := n.uint64(n.negative)
	if err != nil {
		return bsoncore.Value{}, err
	}
	return n.whole(v&^(1<<63), lo)
}

// whole reads a decimal that was stored as it is.
func (n numberReader) whole(hi, lo uint64) (bsoncore.Value, error) {
	if n.original != bitsDecimal {
		return bsoncore.Value{}, keyError(50818, "Invalid type bits for decimal number.")
	}
	d := decimalOf(hi, lo)
	if d.kind != decimalFinite {
		return bsoncore.Value{}, keyError(50818, "Invalid type bits for decimal number.")
	}
	return n.decimal(d)
}

func (n numberReader) small() (bsoncore.Value, error) {
	v, err := n.uint64(n.negative)
	if err != nil {
		return bsoncore.Value{}, err
	}
	switch v >> 62 {
	case 0:
		lo, err := n.uint64(n.negative)
		if err != nil {
			return bsoncore.Value{}, err
		}
		return n.whole(v, lo)
	case 1, 2:
		return n.tiny(v)
	}
	bin := math.Float64frombits(v >> 2)
	c := continuation(v & 3)
	if n.original == bitsDouble && c == exactDouble {
		return n.double(bin)
	}
	return n.fromDouble(bin, c)
}

func (n numberReader) tiny(v uint64) (bsoncore.Value, error) {
	scaled := math.Float64frombits((v - tinyPrefix) >> 1)
	bin := math.Ldexp(scaled, -tinyShift)
	switch continues := v&1 == 1; {
	case n.original == bitsDouble && !continues:
		return n.double(bin)
	case n.original != bitsDecimal || !continues || scaled == 0:
		return bsoncore.Value{}, keyError(50823, "Expected decimal continuation.")
	case scaled < math.Ldexp(0x1p-1022, tinyShift):
		return n.continued(tinyStored(scaled))
	default:
		return n.continued(decimalFromDouble(bin, true))
	}
}

// fromDouble reads a decimal that was stored as a double.
func (n numberReader) fromDouble(bin float64, c continuation) (bsoncore.Value, error) {
	if n.original != bitsDecimal || bin == 0 {
		return bsoncore.Value{}, keyError(50810, "Expected type Decimal.")
	}
	switch d := decimalFromDouble(bin, true); c {
	case roundedDouble:
		return n.decimal(d.round(15, true))
	case exactDouble:
		return n.decimal(d)
	default:
		return n.continued(d)
	}
}

// medium reads numbers from 1 to 2^63, the integer part in size bytes.
func (n numberReader) medium(size int) (bsoncore.Value, error) {
	part, err := n.bigEndian(0, size)
	if err != nil {
		return bsoncore.Value{}, err
	}
	integer := part >> 1
	if part&1 == 0 {
		return n.integer(integer)
	}
	missing := 8 - size
	whole, err := n.bigEndian(integer, missing)
	if err != nil {
		return bsoncore.Value{}, err
	}
	bin := math.Ldexp(float64(whole&^3), -8*missing)
	c := continuation(whole & 3)
	if missing == 0 {
		c = beyondRounded
	}
	switch {
	case n.original == bitsDouble:
		return n.double(bin)
	case n.original == bitsDecimal && c&1 == 1 && integer >= exactIntegers:
		return n.continued(decimalFromInt(integer))
	default:
		return n.fromDouble(bin, c)
	}
}

func (n numberReader) bigEndian(v uint64, size int) (uint64, error) {
	b, err := n.take(size)
	if err != nil {
		return 0, err
	}
	for _, x := range b {
		v = v<<8 | uint64(flip(x, n.negative))
	}
	return v, nil
}

func (n numberReader) integer(v uint64) (bsoncore.Value, error) {
	signed := int64(v)
	if n.negative {
		signed = -signed
	}
	switch n.original {
	case bitsDouble:
		return value(bsoncore.TypeDouble, bsoncore.AppendDouble(nil, float64(signed)), nil)
	case bitsLong:
		return value(bsoncore.TypeInt64, bsoncore.AppendInt64(nil, signed), nil)
	case bitsDecimal:
		return n.decimal(decimalFromInt(v))
	}
	if signed != int64(int32(signed)) {
		return bsoncore.Value{}, keyError(50831, "Unexpected type for positive int: "+strconv.FormatInt(signed, 10))
	}
	return value(bsoncore.TypeInt32, bsoncore.AppendInt32(nil, int32(signed)), nil)
}
