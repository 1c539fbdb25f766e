package change

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"flag"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files anew")

func int32Value(n int32) Value {
	return Value{TypeInt32, binary.LittleEndian.AppendUint32(nil, uint32(n))}
}

func int64Value(n int64) Value {
	return Value{TypeInt64, binary.LittleEndian.AppendUint64(nil, uint64(n))}
}

func doubleValue(f float64) Value {
	return Value{TypeDouble, binary.LittleEndian.AppendUint64(nil, math.Float64bits(f))}
}

func textValue(s string) Value {
	return Value{TypeString, append(append(binary.LittleEndian.AppendUint32(nil, uint32(len(s)+1)), s...), 0)}
}

// decimalValue makes significand × 10^exponent, exact for significands of up to 63 bits.
func decimalValue(significand int64, exponent int) Value {
	hi := uint64(exponent+6176) << 49
	if significand < 0 {
		hi |= 1 << 63
		significand = -significand
	}
	b := binary.LittleEndian.AppendUint64(nil, uint64(significand))
	return Value{TypeDecimal128, binary.LittleEndian.AppendUint64(b, hi)}
}

func documentValue(kind byte, elements ...any) Value {
	var body []byte
	for i := 0; i < len(elements); i += 2 {
		name, v := elements[i].(string), elements[i+1].(Value)
		body = append(append(append(append(body, v.Type), name...), 0), v.Data...)
	}
	b := binary.LittleEndian.AppendUint32(nil, uint32(len(body)+5))
	return Value{kind, append(append(b, body...), 0)}
}

// scopeValue makes a code with scope.
func scopeValue(code string, scope Value) Value {
	body := append(textValue(code).Data, scope.Data...)
	return Value{TypeCodeScope, append(binary.LittleEndian.AppendUint32(nil, uint32(len(body)+4)), body...)}
}

// Values in one row are one _id to MongoDB, values of different rows are not.
func canonicalRows() [][]Value {
	return [][]Value{
		{int32Value(1), int64Value(1), doubleValue(1), decimalValue(1, 0), decimalValue(10, -1), decimalValue(1000, -3)},
		{int32Value(0), int64Value(0), doubleValue(0), doubleValue(math.Copysign(0, -1)), decimalValue(0, 0), decimalValue(0, 17), decimalValue(0, -6176)},
		{int32Value(-7), int64Value(-7), doubleValue(-7), decimalValue(-7, 0), decimalValue(-700, -2)},
		{doubleValue(0.5), decimalValue(5, -1), decimalValue(50, -2)},
		{doubleValue(0.1)},
		{decimalValue(1, -1)},
		{doubleValue(math.NaN()), doubleValue(math.Float64frombits(0x7FF8000000000123)), {TypeDecimal128, append(make([]byte, 15), 0x7C)}},
		{doubleValue(math.Inf(1)), {TypeDecimal128, append(make([]byte, 15), 0x78)}},
		{doubleValue(math.Inf(-1)), {TypeDecimal128, append(make([]byte, 15), 0xF8)}},
		{int64Value(math.MaxInt64), decimalValue(math.MaxInt64, 0)},
		{int64Value(math.MinInt64), doubleValue(-(1 << 63))},
		{doubleValue(1 << 63)},
		{int64Value(1 << 53), doubleValue(1 << 53)},
		{int64Value(1<<53 + 1), decimalValue(1<<53+1, 0)},
		{decimalValue(1, 300)},
		{decimalValue(1, 6000)},
		{decimalValue(1, -6000)},
		{decimalValue(12345, -3)},
		{textValue("text"), {TypeSymbol, textValue("text").Data}},
		{textValue("")},
		{{TypeObjectID, []byte("0123456789ab")}},
		{{TypeObjectID, []byte("0123456789ac")}},
		{{TypeBool, []byte{0}}},
		{{TypeBool, []byte{1}}},
		{{TypeNull, nil}},
		{{TypeMinKey, nil}},
		{{TypeMaxKey, nil}},
		{{TypeDateTime, int64Value(1).Data}},
		{{TypeTimestamp, int64Value(1).Data}},
		{{TypeBinary, append([]byte{16, 0, 0, 0, 4}, "0123456789abcdef"...)}},
		{{TypeBinary, append([]byte{16, 0, 0, 0, 0}, "0123456789abcdef"...)}},
		{{TypeRegex, []byte("a.*\x00i\x00")}},
		{
			documentValue(TypeDocument, "a", int32Value(1), "b", textValue("x")), documentValue(TypeDocument, "a", doubleValue(1), "b", textValue("x")),
			documentValue(TypeDocument, "a", decimalValue(10, -1), "b", textValue("x")),
		},
		{documentValue(TypeDocument, "b", textValue("x"), "a", int32Value(1))},
		{documentValue(TypeArray, "0", int32Value(1)), documentValue(TypeArray, "0", int64Value(1))},
		{documentValue(TypeDocument)},
		{documentValue(TypeDocument, "n", documentValue(TypeDocument, "m", int64Value(3))), documentValue(TypeDocument, "n", documentValue(TypeDocument, "m", doubleValue(3)))},
	}
}

// rareRows are those of which the first form took equal values for different ones, or different
// ones for equal ones.
func rareRows() [][]Value {
	number := func(v Value) Value { return documentValue(TypeDocument, "n", v) }
	deep := func(v Value) Value {
		for range 220 {
			v = documentValue(TypeDocument, "a", v)
		}
		return v
	}
	return [][]Value{
		{scopeValue("f", number(int32Value(1))), scopeValue("f", number(doubleValue(1))), scopeValue("f", number(decimalValue(10, -1)))},
		{scopeValue("f", number(int32Value(2)))},
		{scopeValue("g", number(int32Value(1)))},
		{documentValue(TypeArray, "0", textValue("a")), documentValue(TypeArray, "7", textValue("a")), documentValue(TypeArray, "", textValue("a"))},
		{documentValue(TypeArray, "0", textValue("a"), "1", textValue("a")), documentValue(TypeArray, "1", textValue("a"), "0", textValue("a"))},
		{deep(int32Value(1)), deep(int64Value(1))},
		{documentValue(TypeDocument, "a", documentValue(TypeDocument, "\xffb", int32Value(1)), "c", int32Value(2))},
		{documentValue(TypeDocument, "a", documentValue(TypeDocument), "b", int32Value(1), "\xffc", int32Value(2))},
		{documentValue(TypeDocument, "\xff", int32Value(1))},
		{documentValue(TypeDocument, "\xfe\xff", int32Value(1))},
	}
}

func TestEqualIDsHaveOneCanonicalForm(t *testing.T) {
	seen := make(map[string]string)
	for row, values := range append(canonicalRows(), rareRows()...) {
		want := AppendCanonical(nil, values[0])
		if at, twice := seen[string(want)]; twice {
			t.Errorf("rows %s and %d have one form", at, row)
		}
		seen[string(want)] = fmt.Sprint(row)
		for i, v := range values[1:] {
			if got := AppendCanonical(nil, v); !bytes.Equal(got, want) {
				t.Errorf("row %d, value %d: %x, want %x", row, i+1, got, want)
			}
		}
	}
}

// A Decimal128 whose significand is out of range is zero, and the second encoding of large ones
// always is (IEEE 754-2008, 3.5.2).
func TestNonCanonicalDecimalsAreZero(t *testing.T) {
	zero := AppendCanonical(nil, int32Value(0))
	large := bytes.Repeat([]byte{0xFF}, 16)
	large[15], large[14] = 0x31, 0xFF
	for _, data := range [][]byte{large, append(make([]byte, 15), 0x6C)} {
		if got := AppendCanonical(nil, Value{TypeDecimal128, data}); !bytes.Equal(got, zero) {
			t.Errorf("%x became %x", data, got)
		}
	}
}

// The golden files hold the partitions of known documents, by each format. They may grow, but no
// line of them may ever change: checkpoints depend on it.
func TestPartitionsAreTheSameForEver(t *testing.T) {
	for name, c := range map[string]struct {
		format IDFormat
		rows   [][]Value
	}{
		"testdata/partition.golden":       {LatestIDFormat, canonicalRows()},
		"testdata/partition.rare.golden":  {LatestIDFormat, rareRows()},
		"testdata/partition.first.golden": {FirstIDFormat, rareRows()},
	} {
		var b strings.Builder
		for row, values := range c.rows {
			for _, n := range []int{1, 7, 64, 1024} {
				for i, v := range values {
					e := eventOf("shop", "orders", v)
					p, keyed := c.format.Partitioner(n).Of(&e)
					if !keyed {
						t.Fatalf("row %d has no partition", row)
					}
					if i == 0 {
						fmt.Fprintf(&b, "shop.orders type=%02x value=%s n=%d partition=%d\n", v.Type, hex.EncodeToString(v.Data), n, p)
					}
					first := eventOf("shop", "orders", values[0])
					if want, _ := c.format.Partitioner(n).Of(&first); p != want && c.format == LatestIDFormat {
						t.Errorf("row %d: equal _ids are in the partitions %d and %d", row, want, p)
					}
				}
			}
		}
		if *rewrite {
			if err := os.WriteFile(name, []byte(b.String()), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if b.String() != string(want) {
			t.Errorf("partitions differ from %s", name)
		}
	}
}

// The formats differ in nothing but what is rare.
func TestFormatsAgree(t *testing.T) {
	for row, values := range canonicalRows() {
		for _, v := range values {
			e := eventOf("shop", "orders", v)
			first, _ := FirstIDFormat.Partitioner(MaxPartitions).Of(&e)
			if latest, _ := NewPartitioner(MaxPartitions).Of(&e); latest != first {
				t.Errorf("row %d: partition %d, was %d", row, latest, first)
			}
		}
	}
}

// eventOf makes an event of a document with the _id.
func eventOf(db, coll string, id Value) Event {
	raw := documentValue(TypeDocument,
		"_id", documentValue(TypeDocument, "_data", textValue("826B012B84000000052B0229296E04")),
		"ns", documentValue(TypeDocument, "db", textValue(db), "coll", textValue(coll)),
		"documentKey", documentValue(TypeDocument, "shard", textValue("key"), "_id", id))
	e, err := Parse(raw.Data)
	if err != nil {
		panic(err)
	}
	return e
}
