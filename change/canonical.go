package change

import (
	"encoding/binary"
	"math"
	"math/big"
	"strings"
)

// MongoDB considers two _ids the same when they compare equal: 1, NumberLong(1), 1.0 and NumberDecimal("1") are one _id, also
// inside an embedded document, and so are a string and a symbol with the same text. The canonical form of equal values has the
// same bytes, that of different values different bytes. (MongoDB manual, "Comparison/Sort Order".)

// Tags of the canonical form. They never change, because the partition of every checkpoint depends on them.
const (
	canonicalInt     = 0x01 // a whole number that fits 64 bits, big endian two's complement
	canonicalDouble  = 0x02 // a number that a double holds exactly, its IEEE bits big endian
	canonicalDecimal = 0x03 // any other number: its shortest decimal text, 0-terminated
	canonicalText    = 0x04 // string or symbol: length, bytes
	canonicalOther   = 0x05 // BSON type, length, bytes
	canonicalDoc     = 0x06 // BSON type, then name, 0, value per element, then 0xFF
)

// maxCanonicalDepth bounds the recursion; MongoDB stores at most 100 levels.
const maxCanonicalDepth = 200

// AppendCanonical appends the canonical form of a value: the same bytes for values that MongoDB considers equal, and different bytes for
// others. Unlike in arithmetic, NaN equals NaN.
func AppendCanonical(b []byte, v Value) []byte { return appendNested(b, v, 0) }

func appendNested(b []byte, v Value, depth int) []byte {
	if v.isNested() && depth < maxCanonicalDepth {
		return appendDocument(b, v, depth)
	}
	return appendScalar(b, v)
}

// isNested reports whether the value contains values.
func (v Value) isNested() bool { return v.Type == TypeDocument || v.Type == TypeArray }

// appendScalar appends the canonical form of a value that is not nested. It is not recursive, so that the caller's buffer stays on the
// stack.
func appendScalar(b []byte, v Value) []byte {
	switch v.Type {
	case TypeInt32:
		return appendInt(b, int64(int32(binary.LittleEndian.Uint32(v.Data))))
	case TypeInt64:
		return appendInt(b, int64(binary.LittleEndian.Uint64(v.Data)))
	case TypeDouble:
		return appendDouble(b, math.Float64frombits(binary.LittleEndian.Uint64(v.Data)))
	case TypeDecimal128:
		return appendDecimal(b, v.Data)
	case TypeString, TypeSymbol:
		text := v.Data[4 : len(v.Data)-1]
		b = binary.BigEndian.AppendUint32(append(b, canonicalText), uint32(len(text)))
		return append(b, text...)
	}
	b = binary.BigEndian.AppendUint32(append(b, canonicalOther, v.Type), uint32(len(v.Data)))
	return append(b, v.Data...)
}

func appendInt(b []byte, n int64) []byte {
	return binary.BigEndian.AppendUint64(append(b, canonicalInt), uint64(n))
}

func appendDouble(b []byte, f float64) []byte {
	// Doubles from -2^63 up to, but without, 2^63 that have no fraction are int64s.
	if f == math.Trunc(f) && f >= -(1<<63) && f < 1<<63 {
		return appendInt(b, int64(f))
	}
	if math.IsNaN(f) {
		f = math.NaN()
	}
	return binary.BigEndian.AppendUint64(append(b, canonicalDouble), math.Float64bits(f))
}

func appendDocument(b []byte, v Value, depth int) []byte {
	b = append(b, canonicalDoc, v.Type)
	for at := 4; ; {
		name, inner, next, err := element(v.Data, at)
		if err != nil || name == nil {
			return append(b, 0xFF)
		}
		b = append(append(b, name...), 0)
		b = appendNested(b, inner, depth+1)
		at = next
	}
}

// appendDecimal appends a Decimal128 (IEEE 754-2008, binary integer significand, little endian) in the form of the equal int64 or double,
// if there is one.
func appendDecimal(b, data []byte) []byte {
	lo, hi := binary.LittleEndian.Uint64(data), binary.LittleEndian.Uint64(data[8:])
	negative := hi>>63 == 1
	switch {
	case hi>>58&0x1F == 0x1F:
		return appendDouble(b, math.NaN())
	case hi>>58&0x1F == 0x1E && negative:
		return appendDouble(b, math.Inf(-1))
	case hi>>58&0x1F == 0x1E:
		return appendDouble(b, math.Inf(1))
	}
	exponent, significand := decimalParts(hi, lo)
	if significand.Sign() == 0 {
		return appendInt(b, 0)
	}
	if negative {
		significand.Neg(significand)
	}
	ten, rest := big.NewInt(10), new(big.Int)
	for {
		quotient, remainder := new(big.Int).QuoRem(significand, ten, rest)
		if remainder.Sign() != 0 {
			break
		}
		significand, exponent = quotient, exponent+1
	}
	return appendNumber(b, significand, exponent)
}

// decimalParts returns the exponent and the significand of a finite Decimal128. A significand above 10^34-1 counts as zero.
func decimalParts(hi, lo uint64) (exponent int, significand *big.Int) {
	const bias = 6176
	if hi>>61&3 == 3 {
		return int(hi>>47&0x3FFF) - bias, new(big.Int)
	}
	significand = new(big.Int).SetUint64(hi & (1<<49 - 1))
	significand.Lsh(significand, 64).Or(significand, new(big.Int).SetUint64(lo))
	if len(significand.Text(10)) > 34 {
		significand.SetInt64(0)
	}
	return int(hi>>49&0x3FFF) - bias, significand
}

// appendNumber appends significand × 10^exponent, which is not zero; the significand has no trailing zeros.
func appendNumber(b []byte, significand *big.Int, exponent int) []byte {
	// Beyond these powers no double and no int64 is near.
	if exponent >= -1100 && exponent <= 310 {
		value := new(big.Rat).SetInt(significand)
		power := new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(max(exponent, -exponent))), nil))
		if exponent < 0 {
			value.Quo(value, power)
		} else {
			value.Mul(value, power)
		}
		if value.IsInt() && value.Num().IsInt64() {
			return appendInt(b, value.Num().Int64())
		}
		if f, exact := value.Float64(); exact {
			return appendDouble(b, f)
		}
	}
	var text strings.Builder
	text.WriteString(significand.Text(10))
	text.WriteByte('e')
	text.WriteString(big.NewInt(int64(exponent)).Text(10))
	return append(append(append(b, canonicalDecimal), text.String()...), 0)
}
