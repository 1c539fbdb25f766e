package decimal

import (
	"math"
	"math/big"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// MaxBiased is the largest biased exponent.
const MaxBiased = 12287

const (
	minExponent = -6176
	digits      = 34
)

// Kind tells numbers from what is none.
type Kind byte

// The kinds.
const (
	Finite Kind = iota
	Infinite
	NaN
)

// Decimal is a Decimal128: (-1)^negative · coefficient · 10^exponent.
type Decimal struct {
	Kind        Kind
	Negative    bool
	coefficient *big.Int
	exponent    int
}

// Of takes the two halves of a Decimal128.
func Of(h, l uint64) Decimal {
	d := bson.NewDecimal128(h, l)
	negative := h>>63 == 1
	if d.IsNaN() {
		return Decimal{Kind: NaN}
	}
	coefficient, exponent, err := d.BigInt()
	if err != nil {
		return Decimal{Kind: Infinite, Negative: negative}
	}
	return Decimal{Negative: negative, coefficient: coefficient.Abs(coefficient), exponent: exponent}
}

// ZeroOf is a zero with a sign and a biased exponent.
func ZeroOf(negative bool, biased int) Decimal {
	return Decimal{Negative: negative, coefficient: new(big.Int), exponent: biased + minExponent}
}

// FromInt is an integer.
func FromInt(n uint64) Decimal { return Decimal{coefficient: new(big.Int).SetUint64(n)} }

// Words are the two halves of the Decimal128, of its magnitude where negative is not set.
func (d Decimal) Words() (uint64, uint64) {
	lo := new(big.Int).And(d.coefficient, new(big.Int).SetUint64(math.MaxUint64)).Uint64()
	hi := new(big.Int).Rsh(d.coefficient, 64).Uint64() | uint64(d.Biased())<<49
	return hi, lo
}

// Biased is the exponent as it is stored.
func (d Decimal) Biased() int { return d.exponent - minExponent }

// Zero reports whether the number is zero.
func (d Decimal) Zero() bool { return d.coefficient.Sign() == 0 }

// Below reports whether the coefficient is less than n.
func (d Decimal) Below(n uint64) bool {
	return d.coefficient.Cmp(new(big.Int).SetUint64(n)) < 0
}

func pow10(n int) *big.Int { return new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(n)), nil) }

// rat is the exact magnitude.
func (d Decimal) rat() *big.Rat {
	if d.exponent >= 0 {
		return new(big.Rat).SetInt(new(big.Int).Mul(d.coefficient, pow10(d.exponent)))
	}
	return new(big.Rat).SetFrac(d.coefficient, pow10(-d.exponent))
}

// Compare compares magnitudes.
func (d Decimal) Compare(o Decimal) int { return d.rat().Cmp(o.rat()) }

// ToDouble is the magnitude as a double, rounded toward zero, and whether that is exact.
func (d Decimal) ToDouble() (float64, bool) {
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

// FromDouble is a positive double with at most 34 digits, rounded up or down.
func FromDouble(f float64, up bool) Decimal { return ratToDecimal(new(big.Rat).SetFloat64(f), up) }

// ratToDecimal keeps at most 34 digits.
func ratToDecimal(r *big.Rat, up bool) Decimal {
	exponent := magnitude(r) - digits
	exponent = max(exponent, minExponent)
	for {
		d := Decimal{coefficient: quotient(r, exponent, up), exponent: exponent}
		if d.coefficient.Cmp(pow10(digits)) < 0 {
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

// Round keeps n digits.
func (d Decimal) Round(n int, up bool) Decimal {
	surplus := len(d.coefficient.String()) - n
	if surplus <= 0 {
		return d
	}
	q, rest := new(big.Int).QuoRem(d.coefficient, pow10(surplus), new(big.Int))
	if up && rest.Sign() != 0 {
		q.Add(q, big.NewInt(1))
	}
	return Decimal{Negative: d.Negative, coefficient: q, exponent: d.exponent + surplus}
}

// Normalize gives the coefficient as many digits as it can have, 34, or fewer at the smallest exponent.
func (d Decimal) Normalize() Decimal {
	if d.Zero() {
		return d
	}
	shift := min(digits-len(d.coefficient.String()), d.exponent-minExponent)
	if shift <= 0 {
		return d
	}
	return d.shift(shift)
}

// shift adds n zeros to the coefficient; the value stays.
func (d Decimal) shift(n int) Decimal {
	d.coefficient = new(big.Int).Mul(d.coefficient, pow10(n))
	d.exponent -= n
	return d
}

// Excess is how much the magnitude exceeds base, in units of base's last digit.
func (d Decimal) Excess(base Decimal) uint64 {
	diff := new(big.Rat).Sub(d.rat(), base.rat())
	return quotient(diff, base.exponent, false).Uint64()
}

// Plus adds n units of the last digit; the sum must have 34 digits, or 35 of which the last is zero.
func (d Decimal) Plus(n uint64) (Decimal, bool) {
	d.coefficient = new(big.Int).Add(d.coefficient, new(big.Int).SetUint64(n))
	if d.coefficient.Cmp(pow10(digits)) < 0 {
		return d, true
	}
	q, rest := new(big.Int).QuoRem(d.coefficient, big.NewInt(10), new(big.Int))
	d.coefficient, d.exponent = q, d.exponent+1
	return d, rest.Sign() == 0 && q.Cmp(pow10(digits)) < 0
}

// Integer is the integer part of the magnitude, which the caller knows to be below 2^63, and whether a
// fraction is left.
func (d Decimal) Integer() (uint64, bool) {
	r := d.rat()
	q, rest := new(big.Int).QuoRem(r.Num(), r.Denom(), new(big.Int))
	return q.Uint64(), rest.Sign() != 0
}

// Scale multiplies by 2^n as the server does it: the factor and the product have 34 digits, rounded down.
func (d Decimal) Scale(n int) Decimal {
	factor := FromDouble(math.Ldexp(1, n), false)
	product := new(big.Rat).Mul(d.rat(), factor.rat())
	scaled := ratToDecimal(product, false)
	scaled.Negative = d.Negative
	return scaled
}

// Adjust gives the number the exponent whose low six bits are stored; its value stays.
func (d Decimal) Adjust(stored uint32) (Decimal, bool) {
	const span = 1 << 6
	biased := d.Biased()
	high := biased&^(span-1) | int(stored)
	if high < biased {
		high += span
	}
	if high == biased {
		return d, true
	}
	if q, rest := new(big.Int).QuoRem(d.coefficient, pow10(high-biased), new(big.Int)); rest.Sign() == 0 && high <= MaxBiased {
		return Decimal{Negative: d.Negative, coefficient: q, exponent: high + minExponent}, true
	}
	low := high - span
	if low < 0 || biased-low > digits {
		return d, false
	}
	out := d.shift(biased - low)
	return out, out.coefficient.Cmp(pow10(digits)) < 0
}

// Value returns the two halves of the Decimal128 with its sign.
func (d Decimal) Value() (uint64, uint64) {
	hi, lo := d.Words()
	if d.Negative {
		hi |= 1 << 63
	}
	return hi, lo
}
