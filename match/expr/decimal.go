package expr

import (
	"cmp"
	"encoding/binary"
	"errors"
	"math"
	"math/big"
	"strconv"
	"strings"
)

// A decimal128 is an IEEE 754-2008 Decimal128 with binary integer significand.
type decimal128 struct{ hi, lo uint64 }

const (
	decimalBias   = 6176
	decimalDigits = 34
	decimalMaxExp = 6111
)

func decimalOf(data []byte) decimal128 {
	return decimal128{hi: binary.LittleEndian.Uint64(data[8:]), lo: binary.LittleEndian.Uint64(data)}
}

// errDecimal says that a text is not a number that a Decimal128 represents exactly.
var errDecimal = errors.New("not a number of at most 34 digits")

// parseDecimal parses a finite decimal number, such as -12.50 or 1e-7. It never rounds.
func parseDecimal(text string) (decimal128, error) {
	mantissa, power, hasPower := strings.Cut(strings.ToLower(text), "e")
	exponent := 0
	if hasPower {
		var err error
		if exponent, err = strconv.Atoi(power); err != nil || exponent < -2*decimalBias || exponent > 2*decimalBias {
			return decimal128{}, errDecimal
		}
	}
	negative := strings.HasPrefix(mantissa, "-")
	whole, fraction, _ := strings.Cut(strings.TrimPrefix(mantissa, "-"), ".")
	digits := whole + fraction
	if digits == "" || strings.Trim(digits, "0123456789") != "" {
		return decimal128{}, errDecimal
	}
	exponent -= len(fraction)
	digits = strings.TrimLeft(digits, "0")
	for strings.HasSuffix(digits, "0") && (len(digits) > decimalDigits || exponent < -decimalBias) {
		digits = digits[:len(digits)-1]
		exponent++
	}
	if digits == "" {
		digits, exponent = "0", 0
	}
	for exponent > decimalMaxExp && len(digits) < decimalDigits {
		digits += "0"
		exponent--
	}
	if len(digits) > decimalDigits || exponent < -decimalBias || exponent > decimalMaxExp {
		return decimal128{}, errDecimal
	}
	n, _ := new(big.Int).SetString(digits, 10)
	d := decimal128{hi: uint64(exponent+decimalBias) << 49, lo: n.Uint64()}
	d.hi |= n.Rsh(n, 64).Uint64()
	if negative {
		d.hi |= 1 << 63
	}
	return d, nil
}

// append appends the 16 bytes as BSON has them.
func (d decimal128) append(b []byte) []byte {
	return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(b, d.lo), d.hi)
}

func (d decimal128) isNegative() bool { return d.hi>>63 == 1 }
func (d decimal128) isNaN() bool      { return d.hi>>58&0x1F == 0x1F }
func (d decimal128) isInfinite() bool { return d.hi>>58&0x1F == 0x1E }

// parts returns the exponent and the significand of a finite decimal, without its sign. As the
// standard requires, a significand out of range counts as zero.
func (d decimal128) parts() (exponent int, significand *big.Int) {
	if d.hi>>61&3 == 3 {
		return int(d.hi>>47&0x3FFF) - decimalBias, new(big.Int)
	}
	significand = new(big.Int).SetUint64(d.hi & (1<<49 - 1))
	significand.Lsh(significand, 64).Or(significand, new(big.Int).SetUint64(d.lo))
	if len(significand.Text(10)) > decimalDigits {
		significand.SetInt64(0)
	}
	return int(d.hi>>49&0x3FFF) - decimalBias, significand
}

func (d decimal128) sign() int {
	if _, significand := d.parts(); significand.Sign() == 0 && !d.isInfinite() {
		return 0
	}
	return 1 - 2*btoi(d.isNegative())
}

// String returns the number as digits and a power of ten.
func (d decimal128) String() string {
	sign := ""
	if d.isNegative() {
		sign = "-"
	}
	switch {
	case d.isNaN():
		return "NaN"
	case d.isInfinite():
		return sign + "Infinity"
	}
	exponent, significand := d.parts()
	if exponent == 0 {
		return sign + significand.Text(10)
	}
	return sign + significand.Text(10) + "E" + strconv.Itoa(exponent)
}

// near returns the nearest double.
func (d decimal128) near() float64 {
	f, err := strconv.ParseFloat(d.String(), 64)
	if err != nil && !math.IsInf(f, 0) {
		return math.NaN()
	}
	return f
}

// compare orders two finite decimals.
func (d decimal128) compare(e decimal128) int {
	s := d.sign()
	t := e.sign()
	if s != t || s == 0 {
		return cmp.Compare(s, t)
	}
	dExp, dSig := d.parts()
	eExp, eSig := e.parts()
	// The place of the first digit decides, where it differs; where not, the exponents are at most
	// 33 apart.
	if order := cmp.Compare(dExp+len(dSig.Text(10)), eExp+len(eSig.Text(10))); order != 0 {
		return s * order
	}
	scale(dSig, dExp-eExp)
	scale(eSig, eExp-dExp)
	return s * dSig.Cmp(eSig)
}

// scale multiplies n by a non-negative power of ten.
func scale(n *big.Int, exponent int) {
	if exponent > 0 {
		n.Mul(n, new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(exponent)), nil))
	}
}
