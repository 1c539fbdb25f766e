package doc

import (
	"math"
	"math/big"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// maxBiasedExponent is the largest biased exponent.
const maxBiasedExponent = 12287

const (
	minExponent   = -6176
	decimalDigits = 34
)

// decimalKind distinguishes numbers from NaN and infinities.
type decimalKind byte

// The kinds.
const (
	decimalFinite decimalKind = iota
	decimalInfinite
	decimalNaN
)

// decimal is a Decimal128: (-1)^negative · coefficient · 10^exponent.
type decimal struct {
	kind        decimalKind
	negative    bool
	coefficient *big.Int
	exponent    int
}

// decimalOf takes the two halves of a Decimal128.
func decimalOf(h, l uint64) decimal {
	d := bson.NewDecimal128(h, l)
	negative := h>>63 == 1
	if d.IsNaN() {
		return decimal{kind: decimalNaN}
	}
	coefficient, exponent, err := d.BigInt()
	if err != nil {
		return decimal{kind: decimalInfinite, negative: negative}
	}
	if coefficient.CmpAbs(pow10(decimalDigits)) >= 0 { // which is not of the standard: zero
		coefficient.SetInt64(0)
	}
	return decimal{negative: negative, coefficient: coefficient.Abs(coefficient), exponent: exponent}
}

// decimalZeroOf is a zero with a sign and a biased exponent.
func decimalZeroOf(negative bool, biased int) decimal {
	return decimal{negative: negative, coefficient: new(big.Int), exponent: biased + minExponent}
}

// decimalFromInt is an integer.
func decimalFromInt(n uint64) decimal { return decimal{coefficient: new(big.Int).SetUint64(n)} }

// words are the two halves of the Decimal128, of its magnitude where negative is not set.
func (d decimal) words() (uint64, uint64) {
	lo := new(big.Int).And(d.coefficient, new(big.Int).SetUint64(math.MaxUint64)).Uint64()
	hi := new(big.Int).Rsh(d.coefficient, 64).Uint64() | uint64(d.biased())<<49
	return hi, lo
}

// biased is the exponent as it is stored.
func (d decimal) biased() int { return d.exponent - minExponent }

// zero reports whether the number is zero.
func (d decimal) zero() bool { return d.coefficient.Sign() == 0 }

// below reports whether the coefficient is less than n.
func (d decimal) below(n uint64) bool {
	return d.coefficient.Cmp(new(big.Int).SetUint64(n)) < 0
}

func pow10(n int) *big.Int { return new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(n)), nil) }

// rat is the exact magnitude.
func (d decimal) rat() *big.Rat {
	if d.exponent >= 0 {
		return new(big.Rat).SetInt(new(big.Int).Mul(d.coefficient, pow10(d.exponent)))
	}
	return new(big.Rat).SetFrac(d.coefficient, pow10(-d.exponent))
}

// compare compares magnitudes.
func (d decimal) compare(o decimal) int { return d.rat().Cmp(o.rat()) }

// toDouble is the magnitude as a double, rounded toward zero, and whether that is exact.
func (d decimal) toDouble() (float64, bool) {
	exact := d.rat()
	f := new(big.Float).SetPrec(53).SetMode(big.ToZero).SetRat(exact)
	if f.Cmp(big.NewFloat(math.MaxFloat64)) > 0 {
		return math.MaxFloat64, false
	}
	if exponent := f.MantExp(nil); exponent < -1021 { // a subnormal has fewer bits
		precision := 53 - (-1021 - exponent)
		if precision <= 0 {
			return 0, false
		}
		f = new(big.Float).SetPrec(uint(precision)).SetMode(big.ToZero).SetRat(exact)
	}
	bin, _ := f.Float64()
	return bin, new(big.Rat).SetFloat64(bin).Cmp(exact) == 0
}

// decimalFromDouble is a positive double with at most 34 digits, rounded up or down.
func decimalFromDouble(f float64, up bool) decimal {
	return ratToDecimal(new(big.Rat).SetFloat64(f), up)
}

// ratToDecimal keeps at most 34 digits.
func ratToDecimal(r *big.Rat, up bool) decimal {
	exponent := magnitude(r) - decimalDigits
	exponent = max(exponent, minExponent)
	for {
		d := decimal{coefficient: quotient(r, exponent, up), exponent: exponent}
		if d.coefficient.Cmp(pow10(decimalDigits)) < 0 {
			return d
		}
		exponent++
	}
}

// magnitude is a power of ten at or just above r.
func magnitude(r *big.Rat) int {
	bits := r.Num().BitLen() - r.Denom().BitLen()
	return int(math.Ceil(float64(bits)*math.Log10(2))) + 1
}

// quotient is r / 10^exponent as an integer.
func quotient(r *big.Rat, exponent int, up bool) *big.Int {
	num, den := new(big.Int).Set(r.Num()), new(big.Int).Set(r.Denom())
	if exponent >= 0 {
		den.Mul(den, pow10(exponent))
	} else {
		num.Mul(num, pow10(-exponent))
	}
	q, rest := new(big.Int).QuoRem(num, den, new(big.Int))
	if up && rest.Sign() != 0 {
		q.Add(q, big.NewInt(1))
	}
	return q
}

// round keeps n digits.
func (d decimal) round(n int, up bool) decimal {
	surplus := len(d.coefficient.String()) - n
	if surplus <= 0 {
		return d
	}
	q, rest := new(big.Int).QuoRem(d.coefficient, pow10(surplus), new(big.Int))
	if up && rest.Sign() != 0 {
		q.Add(q, big.NewInt(1))
	}
	return decimal{negative: d.negative, coefficient: q, exponent: d.exponent + surplus}
}

// normalize gives the coefficient as many digits as it can have, 34, or fewer at the smallest
// exponent.
func (d decimal) normalize() decimal {
	if d.zero() {
		return d
	}
	shift := min(decimalDigits-len(d.coefficient.String()), d.exponent-minExponent)
	if shift <= 0 {
		return d
	}
	return d.shift(shift)
}

// shift adds n zeros to the coefficient; the value stays.
func (d decimal) shift(n int) decimal {
	d.coefficient = new(big.Int).Mul(d.coefficient, pow10(n))
	d.exponent -= n
	return d
}

// excess is how much the magnitude exceeds base, in units of base's last digit.
func (d decimal) excess(base decimal) uint64 {
	diff := new(big.Rat).Sub(d.rat(), base.rat())
	return quotient(diff, base.exponent, false).Uint64()
}

// plus adds n units of the last digit; the sum must have 34 digits, or 35 with a zero at the end.
func (d decimal) plus(n uint64) (decimal, bool) {
	d.coefficient = new(big.Int).Add(d.coefficient, new(big.Int).SetUint64(n))
	if d.coefficient.Cmp(pow10(decimalDigits)) < 0 {
		return d, true
	}
	q, rest := new(big.Int).QuoRem(d.coefficient, big.NewInt(10), new(big.Int))
	d.coefficient = q
	d.exponent++
	return d, rest.Sign() == 0 && q.Cmp(pow10(decimalDigits)) < 0
}

// integer is the integer part of the magnitude, which the caller knows to be below 2^63, and
// whether a fraction is left.
func (d decimal) integer() (uint64, bool) {
	r := d.rat()
	q, rest := new(big.Int).QuoRem(r.Num(), r.Denom(), new(big.Int))
	return q.Uint64(), rest.Sign() != 0
}

// scale multiplies by 2^n as the server does it: the factor and the product have 34 digits, rounded
// down.
func (d decimal) scale(n int) decimal {
	factor := decimalFromDouble(math.Ldexp(1, n), false)
	product := new(big.Rat).Mul(d.rat(), factor.rat())
	scaled := ratToDecimal(product, false)
	scaled.negative = d.negative
	return scaled
}

// adjust gives the number the exponent whose low six bits are stored; its value stays.
func (d decimal) adjust(stored uint32) (decimal, bool) {
	const span = 1 << 6
	biased := d.biased()
	high := biased&^(span-1) | int(stored)
	if high < biased {
		high += span
	}
	if high == biased {
		return d, true
	}
	if q, rest := new(big.Int).QuoRem(d.coefficient, pow10(high-biased), new(big.Int)); rest.Sign() == 0 && high <= maxBiasedExponent {
		return decimal{negative: d.negative, coefficient: q, exponent: high + minExponent}, true
	}
	low := high - span
	if low < 0 || biased-low > decimalDigits {
		return d, false
	}
	out := d.shift(biased - low)
	return out, out.coefficient.Cmp(pow10(decimalDigits)) < 0
}

// value returns the two halves of the Decimal128 with its sign.
func (d decimal) value() (uint64, uint64) {
	hi, lo := d.words()
	if d.negative {
		hi |= 1 << 63
	}
	return hi, lo
}
