package change

import (
	"encoding/binary"
	"math"
	"math/big"
)

// A Number is the exact value of a number, the same for all numbers that MongoDB considers equal,
// whatever their types.
type Number struct {
	// Type is TypeInt64 for a whole number that fits 64 bits, TypeDouble for another one that a
	// double holds exactly, and for infinities and NaN, and TypeDecimal128 for all others.
	Type   byte
	Int    int64
	Double float64
	// Digits × 10^Exponent is the value of a TypeDecimal128. Digits are decimal digits, perhaps
	// after a minus, and do not end in a zero.
	Digits   string
	Exponent int
}

// Number returns the value of a number; ok is false for other types.
func (v Value) Number() (n Number, ok bool) {
	switch v.Type {
	case TypeInt32, TypeInt64:
		whole, _ := v.Int64()
		return Number{Type: TypeInt64, Int: whole}, true
	case TypeDouble:
		return numberOf(math.Float64frombits(binary.LittleEndian.Uint64(v.Data))), true
	case TypeDecimal128:
		return decimalNumber(v.Data), true
	}
	return Number{}, false
}

func numberOf(f float64) Number {
	// Doubles from -2^63 up to, but without, 2^63 that have no fraction are int64s.
	if f == math.Trunc(f) && f >= -(1<<63) && f < 1<<63 {
		return Number{Type: TypeInt64, Int: int64(f)}
	}
	if math.IsNaN(f) { // it has many representations
		f = math.NaN()
	}
	return Number{Type: TypeDouble, Double: f}
}

// decimalNumber returns the value of a Decimal128 (IEEE 754-2008, binary integer significand,
// little endian).
func decimalNumber(data []byte) Number {
	lo, hi := binary.LittleEndian.Uint64(data), binary.LittleEndian.Uint64(data[8:])
	negative := hi>>63 == 1
	switch {
	case hi>>58&0x1F == 0x1F:
		return numberOf(math.NaN())
	case hi>>58&0x1F == 0x1E && negative:
		return numberOf(math.Inf(-1))
	case hi>>58&0x1F == 0x1E:
		return numberOf(math.Inf(1))
	}
	exponent, significand := decimalParts(hi, lo)
	if significand.Sign() == 0 {
		return Number{Type: TypeInt64}
	}
	if negative {
		significand.Neg(significand)
	}
	ten := big.NewInt(10)
	rest := new(big.Int)
	for {
		quotient, remainder := new(big.Int).QuoRem(significand, ten, rest)
		if remainder.Sign() != 0 {
			return numberOfParts(significand, exponent)
		}
		significand = quotient
		exponent++
	}
}

// decimalParts returns the exponent and the significand of a finite Decimal128. A significand above
// 10^34-1 counts as zero.
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

// numberOfParts returns significand × 10^exponent, which is not zero; the significand has no
// trailing zeros.
func numberOfParts(significand *big.Int, exponent int) Number {
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
			return Number{Type: TypeInt64, Int: value.Num().Int64()}
		}
		if f, exact := value.Float64(); exact {
			return Number{Type: TypeDouble, Double: f}
		}
	}
	return Number{Type: TypeDecimal128, Digits: significand.Text(10), Exponent: exponent}
}
