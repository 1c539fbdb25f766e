package expr

import (
	"bytes"
	"math"
	"math/big"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"pgregory.net/rapid"

	"github.com/mongostream/streamer/change"
)

// value encodes one value as BSON does.
func value(t testing.TB, v any) change.Value {
	t.Helper()
	kind, data, err := bson.MarshalValue(v)
	if err != nil {
		t.Fatal(err)
	}
	return change.Value{Type: byte(kind), Data: data}
}

func bsonDecimal(t testing.TB, text string) bson.Decimal128 {
	t.Helper()
	d, err := bson.ParseDecimal128(text)
	if err != nil {
		t.Fatal(text, err)
	}
	return d
}

// exact returns the number that a value of the driver is.
func exact(v any) *big.Rat {
	switch n := v.(type) {
	case int32:
		return new(big.Rat).SetInt64(int64(n))
	case int64:
		return new(big.Rat).SetInt64(n)
	case float64:
		return new(big.Rat).SetFloat64(n)
	case bson.Decimal128:
		significand, exponent, err := n.BigInt()
		if err != nil {
			panic(err)
		}
		power := new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(max(exponent, -exponent))), nil))
		if exponent < 0 {
			power.Inv(power)
		}
		return power.Mul(power, new(big.Rat).SetInt(significand))
	}
	panic("no number")
}

// drawNumber draws numbers of every type that lie close to each other, around the places where
// types round.
func drawNumber(r *rapid.T) any {
	near := rapid.SampledFrom([]float64{0, 1, -1, 1 << 53, -(1 << 53), 1 << 62, 1 << 63, -(1 << 63), 0.1, 1e300, -1e300, 5e-324, math.MaxFloat64}).Draw(r, "near")
	step := rapid.Int64Range(-2, 2).Draw(r, "step")
	switch rapid.IntRange(0, 3).Draw(r, "type") {
	case 0:
		return int32(step)
	case 1:
		if math.Abs(near) < 1<<63 {
			return int64(near) + step
		}
		return int64(math.MaxInt64) + min(step, 0)
	case 2:
		for ; step > 0; step-- {
			near = math.Nextafter(near, math.Inf(1))
		}
		if math.IsInf(near, 0) {
			return 1.0
		}
		return near
	}
	text := rapid.SampledFrom([]string{"0", "-0", "0E+6000", "1", "1.0", "-1", "0.1", "9007199254740993", "9007199254740992.5", "9223372036854775807", "9223372036854775808", "1E+300",
		"1.000000000000000052504760255204421E+300", "1E+400", "1E+401", "-1E+400", "1E-400", "-1E-400", "1E-6176", "9.999999999999999999999999999999999E+6144", "10E+399", "4.9E-324"}).Draw(r, "decimal")
	d, err := bson.ParseDecimal128(text)
	if err != nil {
		panic(err)
	}
	return d
}

func TestNumbersCompareByTheirExactValue(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		a, b := drawNumber(r), drawNumber(r)
		x, y := value(t, a), value(t, b)
		s, u := ScalarOf(x), ScalarOf(y)
		want := exact(a).Cmp(exact(b))
		if got := s.Compare(u); got != want || u.Compare(s) != -want {
			r.Fatalf("%v and %v: %d, want %d", a, b, got, want)
		}
		if s.Equal(u) != (want == 0) || bytes.Equal(AppendKey(nil, x), AppendKey(nil, y)) != (want == 0) {
			r.Fatalf("%v and %v: equality and keys disagree with the order", a, b)
		}
		if want < 0 && s.Prefix() > u.Prefix() || want > 0 && s.Prefix() < u.Prefix() {
			r.Fatalf("%v and %v: prefixes %x, %x", a, b, s.Prefix(), u.Prefix())
		}
	})
}

func TestInfinitiesLieBeyondAllNumbers(t *testing.T) {
	up := []any{bsonDecimal(t, "-Infinity"), bsonDecimal(t, "-1E+6000"), -math.MaxFloat64, 0, math.MaxFloat64, bsonDecimal(t, "1E+6000"), bsonDecimal(t, "Infinity")}
	for i, a := range up {
		for j, b := range up {
			if got, want := ScalarOf(value(t, a)).Compare(ScalarOf(value(t, b))), compareInts(i, j); got != want {
				t.Errorf("%v and %v: %d, want %d", a, b, got, want)
			}
		}
	}
	for _, pair := range [][2]any{{math.Inf(1), up[6]}, {math.Inf(-1), up[0]}} {
		if !ScalarOf(value(t, pair[0])).Equal(ScalarOf(value(t, pair[1]))) {
			t.Errorf("%v is not %v", pair[0], pair[1])
		}
	}
}

func compareInts(i, j int) int { return big.NewInt(int64(i)).Cmp(big.NewInt(int64(j))) }

func TestNaNEqualsNothing(t *testing.T) {
	for _, nan := range []any{math.NaN(), bsonDecimal(t, "NaN")} {
		s := ScalarOf(value(t, nan))
		_, ordered, ok := orderOf(s, IntScalar(1))
		_, constant := newConstant(s)
		if !s.IsNaN() || s.Equal(s) || ordered || !ok || constant {
			t.Errorf("%v: equal to itself %v, ordered %v, meaning %v, a constant %v", nan, s.Equal(s), ordered, ok, constant)
		}
	}
}

func TestClassesDoNotMix(t *testing.T) {
	classes := [][]any{
		{bson.Null{}, bson.Undefined{}}, {1, int64(1), 1.0, bsonDecimal(t, "1")}, {"x", bson.Symbol("x")}, {bson.Binary{Data: []byte("x")}}, {true}, {time.UnixMilli(1)}, {bson.ObjectID{1}},
		{bson.Binary{Subtype: 4, Data: []byte("x")}}, {bson.Binary{Subtype: 5, Data: []byte("x")}}, {bson.Regex{Pattern: "x"}}, {bson.JavaScript("x")}, {bson.Timestamp{T: 1}}, {bson.MinKey{}}, {bson.MaxKey{}},
		{bson.D{}}, {bson.A{}},
	}
	for i, class := range classes {
		for j, other := range classes {
			for _, a := range class {
				for _, b := range other {
					s, u := ScalarOf(value(t, a)), ScalarOf(value(t, b))
					want := i == j && s.Class < Document
					if s.Equal(u) != want {
						t.Errorf("%T and %T equal: %v, want %v", a, b, s.Equal(u), want)
					}
					_, ordered, ok := orderOf(s, u)
					absent := i == 0 || j == 0
					if meaning := absent || i == j && s.Class.isOrdered(); ok != meaning || ordered && !meaning || absent && ordered {
						t.Errorf("%T and %T ordered: %v, %v, want meaning %v", a, b, ordered, ok, meaning)
					}
				}
			}
		}
	}
}

// A constant's key is the key of the fields that it equals.
func TestConstantsHaveTheKeysOfFields(t *testing.T) {
	objectID, _ := parseObjectID("0a0000000000000000000000")
	uuid, _ := parseUUID("75757575-7575-7575-7575-757575757575")
	number, _ := parseNumber("1.50")
	for _, c := range []struct {
		constant Scalar
		field    any
	}{
		{IntScalar(3), int32(3)}, {uintScalar(3), 3.0}, {uintScalar(math.MaxUint64), bsonDecimal(t, "18446744073709551615")}, {DoubleScalar(math.Copysign(0, -1)), 0},
		{DoubleScalar(1.5), bsonDecimal(t, "1.5")}, {number, 1.5}, {textScalar([]byte("é")), "é"}, {textScalar(nil), ""}, {bytesScalar([]byte{0}), []byte{0}},
		{boolScalar(true), true}, {boolScalar(false), false}, {dateScalar(time.UnixMilli(-1)), time.UnixMilli(-1)}, {objectID, bson.ObjectID{10}},
		{uuid, bson.Binary{Subtype: 4, Data: bytes.Repeat([]byte("u"), 16)}},
	} {
		field := value(t, c.field)
		constant, ok := newConstant(c.constant)
		if !ok || !constant.Equal(ScalarOf(field)) || !bytes.Equal(constant.Key, AppendKey(nil, field)) {
			t.Errorf("%v: %+v (%v), field %x", c.field, constant, ok, AppendKey(nil, field))
		}
	}
	for _, none := range []Scalar{{}, {Class: Document}, {Class: Array}, dateScalar(time.Unix(0, 1)), ScalarOf(value(t, bson.MinKey{}))} {
		if _, ok := newConstant(none); ok {
			t.Errorf("%v became a constant", none.Class)
		}
	}
}

func TestDecimalsAreReadAsTheDriverReadsThem(t *testing.T) {
	for _, text := range []string{"0", "-0", "1", "-12.50", "1e5", "1E-7", ".5", "5.", "00012", "9999999999999999999999999999999999", "1e6144", "1e-6176", "10000000000000000000000000000000000000",
		"0.00000000000000000000000000000000000001234", "123456789012345678901234567890.1234"} {
		s, err := parseNumber(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if want := ScalarOf(value(t, bsonDecimal(t, text))); !s.Equal(want) {
			t.Errorf("%s: %s, want %s", text, s.decimalText(), want.decimalText())
		}
	}
	for _, text := range []string{"", "-", ".", "e5", "1e", "1,5", "0x1", "NaN", "Infinity", " 1", "1 ", "+1", "--1", "12345678901234567890123456789012345", "1e6145", "1e-6177", "1e99999999999", "1e13000"} {
		if _, err := parseNumber(text); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}
