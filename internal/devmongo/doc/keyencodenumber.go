package doc

import (
	"math"
	"math/bits"
)

// continuation tells how the stored double relates to the number: the last two bits of its encoding, or the
// last bit where only one is free.
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

// mediumDouble writes doubles from 1 to 2^63: the integer part like an integer, then the bytes of the fraction.
func (e *KeyEncoder) mediumDouble(f float64, c continuation) {
	magnitude, negative := math.Abs(f), f < 0
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
	negative, magnitude := f < 0, math.Abs(f)
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

// decimal writes a decimal: as a double where that is exact or exact after rounding up to 15 digits, else with
// a continuation, else (beyond the doubles) as itself.
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

// continuation writes how much the decimal exceeds what was stored, in units of the stored value's last digit.
func (e *KeyEncoder) continuation(d, stored decimal) {
	e.uint64(d.excess(stored.normalize()), d.negative)
}

// hugeDecimal writes decimals beyond the doubles as they are, above every double and below infinity.
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

// tinyStored is the decimal that a scaled tiny double stands for, rounded down at every step.
func tinyStored(scaled float64) decimal {
	return decimalFromDouble(scaled, false).scale(-tinyShift)
}
