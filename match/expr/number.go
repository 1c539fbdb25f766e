package expr

import (
	"cmp"
	"math"
	"math/big"
)

// kinds of number.
const (
	integer = iota
	double
	decimal
)

// A number is an int64, a double or a Decimal128, with its nearest double. Rounding is monotonic,
// so different doubles decide a comparison.
type number struct {
	kind uint8
	i    int64
	near float64
	dec  decimal128
}

func intNumber(i int64) number      { return number{kind: integer, i: i, near: float64(i)} }
func doubleNumber(f float64) number { return number{kind: double, near: f} }
func decimalNumber(d decimal128) number {
	return number{kind: decimal, near: d.near(), dec: d}
}

func uintNumber(u uint64) number {
	if u <= math.MaxInt64 {
		return intNumber(int64(u))
	}
	return decimalNumber(decimal128{hi: decimalBias << 49, lo: u})
}

func (n number) isNaN() bool { return math.IsNaN(n.near) }

// compare orders two numbers by their exact values. Neither is NaN.
func (n number) compare(m number) int {
	switch {
	case n.kind == integer && m.kind == integer:
		return cmp.Compare(n.i, m.i)
	case n.near != m.near:
		return cmp.Compare(n.near, m.near)
	case n.kind == double && m.kind == double:
		return 0
	case n.kind == decimal || m.kind == decimal:
		return compareExactly(n, m)
	case n.kind == integer:
		return compareIntDouble(n.i, m.near)
	}
	return -compareIntDouble(m.i, n.near)
}

// compareIntDouble compares an int64 with its nearest double.
func compareIntDouble(i int64, f float64) int {
	if f >= 1<<63 {
		return -1
	}
	return cmp.Compare(i, int64(f))
}

// compareExactly compares two numbers with the same nearest double; at least one is a decimal.
func compareExactly(n, m number) int {
	switch {
	case n.isInfinite() || m.isInfinite():
		// Both are beyond the doubles on the same side.
		far := cmp.Compare(btoi(n.isInfinite()), btoi(m.isInfinite()))
		if n.near < 0 {
			return -far
		}
		return far
	case n.kind == decimal && m.kind == decimal:
		return n.dec.compare(m.dec)
	case n.near == 0:
		// One is zero, the other zero or too small for a double.
		return cmp.Compare(n.sign(), m.sign())
	}
	return n.rat().Cmp(m.rat())
}

// isInfinite reports whether the number is infinite, not just too large for a double.
func (n number) isInfinite() bool {
	return math.IsInf(n.near, 0) && (n.kind == double || n.dec.isInfinite())
}

func (n number) sign() int {
	switch n.kind {
	case integer:
		return cmp.Compare(n.i, 0)
	case double:
		return cmp.Compare(n.near, 0)
	}
	return n.dec.sign()
}

// rat returns the exact value of a finite number within the range of doubles.
func (n number) rat() *big.Rat {
	switch n.kind {
	case integer:
		return new(big.Rat).SetInt64(n.i)
	case double:
		return new(big.Rat).SetFloat64(n.near)
	}
	exponent, digits := n.dec.parts()
	if n.dec.isNegative() {
		digits.Neg(digits)
	}
	power := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(max(exponent, -exponent))), nil)
	if exponent < 0 {
		return new(big.Rat).SetFrac(digits, power)
	}
	return new(big.Rat).SetInt(digits.Mul(digits, power))
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
