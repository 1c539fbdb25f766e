package extjson

import (
	"math"
	"math/bits"
	"strconv"
)

// appendDouble appends the double of the bits, in the shortest form that reads as the same one; it
// always looks like no integer.
func (o Options) appendDouble(b []byte, ieee uint64) []byte {
	f := math.Float64frombits(ieee)
	switch {
	case math.IsNaN(f):
		return append(b, `{"$numberDouble":"NaN"}`...)
	case math.IsInf(f, 1):
		return append(b, `{"$numberDouble":"Infinity"}`...)
	case math.IsInf(f, -1):
		return append(b, `{"$numberDouble":"-Infinity"}`...)
	case !o.Canonical:
		return appendFloat(b, f)
	}
	return append(appendFloat(append(b, `{"$numberDouble":"`...), f), `"}`...)
}

func appendFloat(b []byte, f float64) []byte {
	begun := len(b)
	b = strconv.AppendFloat(b, f, 'G', -1, 64)
	for _, c := range b[begun:] {
		if c == '.' || c == 'E' {
			return b
		}
	}
	return append(b, ".0"...)
}

const (
	decimalBias   = 6176
	decimalDigits = 34
)

// appendDecimal appends a Decimal128 (IEEE 754-2008, binary integer significand) as text; encodings
// that are not of the standard are zeros. (source/bson-decimal128, "To String Representation".)
func appendDecimal(b []byte, hi, lo uint64) []byte {
	special := hi >> 58 & 0x1F
	if special == 0x1F {
		return append(b, "NaN"...)
	}
	if hi>>63 == 1 {
		b = append(b, '-')
	}
	if special == 0x1E {
		return append(b, "Infinity"...)
	}
	var stack [decimalDigits + 1]byte
	exponent := int(hi >> 49 & 0x3FFF)
	digits := appendDigits(stack[:0], hi&(1<<49-1), lo)
	if hi>>61&3 == 3 {
		exponent = int(hi >> 47 & 0x3FFF)
		digits = stack[:0]
	}
	if len(digits) == 0 || len(digits) > decimalDigits {
		digits = append(digits[:0], '0')
	}
	return appendScientific(b, digits, exponent-decimalBias)
}

// appendScientific appends digits × 10^exponent.
func appendScientific(b, digits []byte, exponent int) []byte {
	adjusted := exponent + len(digits) - 1
	switch point := len(digits) + exponent; {
	case exponent > 0 || adjusted < -6:
		b = append(b, digits[0])
		if len(digits) > 1 {
			b = append(append(b, '.'), digits[1:]...)
		}
		b = append(b, 'E')
		if adjusted >= 0 {
			b = append(b, '+')
		}
		return strconv.AppendInt(b, int64(adjusted), 10)
	case exponent == 0:
		return append(b, digits...)
	case point > 0:
		return append(append(append(b, digits[:point]...), '.'), digits[point:]...)
	default:
		b = append(b, "0.000000"[:2-point]...)
		return append(b, digits...)
	}
}

// appendDigits appends the digits of a number below 2^113.
func appendDigits(b []byte, hi, lo uint64) []byte {
	above, rest := bits.Div64(hi, lo, 1e17) // the digits before the last 17 fit 64 bits
	if above == 0 {
		return strconv.AppendUint(b, rest, 10)
	}
	b = strconv.AppendUint(b, above, 10)
	b = append(b, "00000000000000000"...)
	for i := 1; rest > 0; i++ {
		b[len(b)-i] = byte('0' + rest%10)
		rest /= 10
	}
	return b
}
