package doc_test

import (
	"bytes"
	"encoding/hex"
	"math"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
	"pgregory.net/rapid"

	"github.com/mongostream/streamer/dev/mongo/doc"
	"github.com/mongostream/streamer/dev/mongo/wire"
)

// golden are keys of recorded resume tokens (recordings 4.4/14): the part that encodes {_id:
// <value>}, and the type bits of the whole token, whose first three numbers are 32-bit integers.
func TestGoldenVectors(t *testing.T) {
	long := strings.Repeat("k", 600)
	for _, tc := range []struct{ name, id, key, bits string }{
		{"int32 zero", `{"$numberInt":"0"}`, "461E5F696400290004", ""},
		{"int32", `{"$numberInt":"1"}`, "461E5F6964002B020004", ""},
		{"int32 two bytes", `{"$numberInt":"1000"}`, "461E5F6964002C07D00004", ""},
		{"objectid", `{"$oid":"0102030405060708090a0b0c"}`, "46645F696400640102030405060708090A0B0C0004", ""},
		{"string", `"up"`, "463C5F6964003C7570000004", ""},
		{"document", `{"b":{"$numberInt":"1"},"a":"x"}`, "46465F696400461E62002B023C61003C7800000004", ""},
		{"uuid", `{"$binary":{"base64":"MDEyMzQ1Njc4OWFiY2RlZg==","subType":"04"}}`, "465A5F6964005A1004303132333435363738396162636465660004", ""},
		{"decimal", `{"$numberDecimal":"12.345"}`, "461E5F6964002B195851EB851EB8020004", "82C02E"},
		{"double", `{"$numberDouble":"1.5"}`, "461E5F6964002B03800000000000000004", "40"},
		{"int64", `{"$numberLong":"7"}`, "461E5F6964002B0E0004", "8180"},
		{"true", `true`, "466E5F6964006F0004", ""},
		{"date", `{"$date":{"$numberLong":"1700000000000"}}`, "46785F696400788000018BCFE568000004", ""},
		{"timestamp", `{"$timestamp":{"t":5,"i":6}}`, "46825F6964008200000005000000060004", ""},
		{"null", `null`, "46145F696400140004", ""},
		{"min key", `{"$minKey":1}`, "460A5F6964000A0004", ""},
		{"max key", `{"$maxKey":1}`, "46F05F696400F00004", ""},
		{"string with NUL", `"ünï©ode\u0000zero"`, "463C5F6964003CC3BC6EC3AFC2A96F646500FF7A65726F000004", ""},
		{"long string", `"` + long + `"`, "463C5F6964003C" + strings.Repeat("6B", 600) + "000004", ""},
		{"nested double", `{"n":{"$numberDouble":"1.0"}}`, "46465F696400461E6E002B02000004", "40"},
		{"nested int64", `{"n":{"$numberLong":"2"}}`, "46465F696400461E6E002B04000004", "8180"},
		{"nested decimal", `{"d":{"$numberDecimal":"12.345"}}`, "46465F696400461E64002B195851EB851EB802000004", "82C02E"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			id := parse(t, tc.id)
			var e doc.KeyEncoder
			for range 3 {
				e.Int32(0) // version, token type and txnOpIndex of a token
			}
			prefix := len(e.Bytes())
			key := doc.New().Value("_id", id).Document()
			if err := e.Append(bsoncore.Value{Type: bsoncore.TypeEmbeddedDocument, Data: key}); err != nil {
				t.Fatal(err)
			}
			e.End()
			if got := strings.ToUpper(hex.EncodeToString(e.Bytes()[prefix:])); got != tc.key {
				t.Errorf("key\n got %s\nwant %s", got, tc.key)
			}
			if got := strings.ToUpper(hex.EncodeToString(e.TypeBits())); got != tc.bits {
				t.Errorf("type bits: got %s, want %s", got, tc.bits)
			}
			values, err := doc.DecodeKey(e.Bytes(), e.TypeBits())
			if err != nil {
				t.Fatal(err)
			}
			if len(values) != 4 || !bytes.Equal(values[3].Data, key) {
				t.Errorf("decoded %v, want %v", values, key)
			}
		})
	}
}

func parse(t *testing.T, text string) bsoncore.Value {
	t.Helper()
	var raw bson.Raw
	if err := bson.UnmarshalExtJSON([]byte(`{"v":`+text+`}`), true, &raw); err != nil {
		t.Fatal(err)
	}
	v, _ := doc.Field(raw, "v")
	return v
}

func TestNumbersOfAllTypesShareOneKeyAndSort(t *testing.T) {
	// Each row sorts after the one before it; the values of a row are equal.
	rows := [][]string{
		{`{"$numberDouble":"NaN"}`, `{"$numberDecimal":"NaN"}`},
		{`{"$numberDouble":"-Infinity"}`, `{"$numberDecimal":"-Infinity"}`},
		{`{"$numberDecimal":"-1E6000"}`},
		{`{"$numberDouble":"-1e300"}`},
		{`{"$numberLong":"-9223372036854775808"}`, `{"$numberDouble":"-9223372036854775808"}`, `{"$numberDecimal":"-9223372036854775808"}`},
		{`{"$numberLong":"-9007199254740993"}`, `{"$numberDecimal":"-9007199254740993"}`},
		{`{"$numberDouble":"-1.5"}`, `{"$numberDecimal":"-1.5"}`, `{"$numberDecimal":"-1.50"}`},
		{`{"$numberInt":"-1"}`, `{"$numberLong":"-1"}`, `{"$numberDouble":"-1"}`, `{"$numberDecimal":"-1"}`},
		{`{"$numberDecimal":"-1E-6000"}`},
		{`{"$numberInt":"0"}`, `{"$numberDouble":"-0.0"}`, `{"$numberDecimal":"0E+3"}`, `{"$numberDecimal":"-0"}`},
		{`{"$numberDecimal":"1E-6176"}`},
		{`{"$numberDecimal":"1E-320"}`},
		{`{"$numberDouble":"1e-310"}`},
		{`{"$numberDecimal":"1E-100"}`},
		{`{"$numberDouble":"0.1"}`},
		{`{"$numberDecimal":"0.1000000000000000055511151231257828"}`},
		{`{"$numberInt":"1"}`, `{"$numberDecimal":"1.000"}`},
		{`{"$numberDecimal":"1.1"}`},
		{`{"$numberDouble":"1.1"}`},
		{`{"$numberDecimal":"12.345678901234567890123456789"}`},
		{`{"$numberLong":"9007199254740992"}`, `{"$numberDouble":"9007199254740992"}`},
		{`{"$numberDecimal":"9007199254740992.5"}`},
		{`{"$numberLong":"9007199254740993"}`},
		{`{"$numberLong":"9223372036854775807"}`, `{"$numberDecimal":"9223372036854775807"}`},
		{`{"$numberDecimal":"12345678901234567890123456789"}`},
		{`{"$numberDecimal":"1E6000"}`},
		{`{"$numberDouble":"Infinity"}`, `{"$numberDecimal":"Infinity"}`},
	}
	previous := ""
	for _, row := range rows {
		first := ""
		for i, text := range row {
			key, err := doc.SortKey(parse(t, text))
			if err != nil {
				t.Fatal(err)
			}
			if i == 0 {
				first = key
				if key <= previous {
					t.Errorf("%s does not sort after the row before it", text)
				}
			} else if key != first {
				t.Errorf("%s: key %x, want %x like %s", text, key, first, row[0])
			}
		}
		previous = first
	}
}

func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := anyValue(3).Draw(t, "value")
		var e doc.KeyEncoder
		if err := e.Append(v); err != nil {
			t.Fatal(err)
		}
		e.End()
		values, err := doc.DecodeKey(e.Bytes(), e.TypeBits())
		if err != nil {
			t.Fatalf("decode %x (bits %x): %v", e.Bytes(), e.TypeBits(), err)
		}
		if len(values) != 1 || values[0].Type != v.Type || !bytes.Equal(values[0].Data, v.Data) {
			t.Fatalf("got %v, want %v (key %x)", values, v, e.Bytes())
		}
	})
}

func TestIntegersSortAsNumbers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := rapid.Int64().Draw(t, "a"), rapid.Int64().Draw(t, "b")
		ka, _ := doc.SortKey(bsoncore.Value{Type: bsoncore.TypeInt64, Data: bsoncore.AppendInt64(nil, a)})
		kb, _ := doc.SortKey(bsoncore.Value{Type: bsoncore.TypeInt64, Data: bsoncore.AppendInt64(nil, b)})
		if (a < b) != (ka < kb) || (a == b) != (ka == kb) {
			t.Fatalf("%d, %d: keys %x, %x", a, b, ka, kb)
		}
	})
}

func TestTruncatedKey(t *testing.T) {
	key, _ := hex.DecodeString("826B012B89000000062B")
	_, err := doc.DecodeKey(key, nil)
	if got := wire.ErrorOf(err); got.Code != wire.Overflow || got.Message != "Invalid advance (1) past end of buffer[0] at offset: 0" {
		t.Errorf("got %v", err)
	}
}

func FuzzDecode(f *testing.F) {
	for _, s := range []string{"826B012B9E000000092B022C0100296E5A1004C8E9744962984614B97ED182F926713046465F696400461E62002B023C61003C7800000004", "2B03800000000000000004"} {
		key, _ := hex.DecodeString(s)
		f.Add(key, []byte{0x82, 0xc0, 0x2e})
	}
	f.Fuzz(func(t *testing.T, key, bits []byte) {
		values, err := doc.DecodeKey(key, bits)
		if err != nil {
			return
		}
		for _, v := range values {
			var e doc.KeyEncoder
			if err := e.Append(v); err != nil {
				t.Fatalf("decoded what cannot be encoded: %v: %v", v, err)
			}
		}
	})
}

// anyValue generates every type that may be an _id, nested up to depth.
func anyValue(depth int) *rapid.Generator[bsoncore.Value] {
	return rapid.Custom(func(t *rapid.T) bsoncore.Value {
		kinds := []bsoncore.Type{
			bsoncore.TypeInt32, bsoncore.TypeInt64, bsoncore.TypeDouble, bsoncore.TypeDecimal128, bsoncore.TypeString,
			bsoncore.TypeObjectID, bsoncore.TypeBinary, bsoncore.TypeBoolean, bsoncore.TypeDateTime, bsoncore.TypeTimestamp,
			bsoncore.TypeNull, bsoncore.TypeMinKey, bsoncore.TypeMaxKey, bsoncore.TypeRegex, bsoncore.TypeSymbol,
		}
		if depth > 0 {
			kinds = append(kinds, bsoncore.TypeEmbeddedDocument, bsoncore.TypeArray)
		}
		kind := rapid.SampledFrom(kinds).Draw(t, "type")
		return bsoncore.Value{Type: kind, Data: data(t, kind, depth)}
	})
}

func data(t *rapid.T, kind bsoncore.Type, depth int) []byte {
	name := rapid.StringMatching(`[a-z$.]{0,5}`)
	switch kind {
	case bsoncore.TypeInt32:
		return bsoncore.AppendInt32(nil, rapid.Int32().Draw(t, "n"))
	case bsoncore.TypeInt64, bsoncore.TypeDateTime:
		return bsoncore.AppendInt64(nil, rapid.Int64().Draw(t, "n"))
	case bsoncore.TypeTimestamp:
		return bsoncore.AppendTimestamp(nil, rapid.Uint32().Draw(t, "t"), rapid.Uint32().Draw(t, "i"))
	case bsoncore.TypeDouble:
		f := rapid.Float64().Draw(t, "f")
		if math.IsNaN(f) {
			f = math.NaN()
		}
		return bsoncore.AppendDouble(nil, f)
	case bsoncore.TypeDecimal128:
		return decimal(t)
	case bsoncore.TypeString, bsoncore.TypeSymbol:
		return bsoncore.AppendString(nil, string(rapid.SliceOfN(rapid.Byte(), 0, 8).Draw(t, "s")))
	case bsoncore.TypeObjectID:
		return rapid.SliceOfN(rapid.Byte(), 12, 12).Draw(t, "id")
	case bsoncore.TypeBinary:
		n := rapid.SampledFrom([]int{0, 1, 254, 255, 256}).Draw(t, "length")
		return bsoncore.AppendBinary(nil, 0, bytes.Repeat([]byte{rapid.Byte().Draw(t, "b")}, n))
	case bsoncore.TypeBoolean:
		return bsoncore.AppendBoolean(nil, rapid.Bool().Draw(t, "bool"))
	case bsoncore.TypeRegex:
		return bsoncore.AppendRegex(nil, name.Draw(t, "pattern"), "i")
	case bsoncore.TypeEmbeddedDocument, bsoncore.TypeArray:
		b := doc.New()
		for i := range rapid.IntRange(0, 3).Draw(t, "fields") {
			key := doc.Index(i)
			if kind == bsoncore.TypeEmbeddedDocument {
				key = name.Draw(t, "name")
			}
			b.Value(key, anyValue(depth-1).Draw(t, "field"))
		}
		return b.Document()
	default:
		return nil
	}
}

func decimal(t *rapid.T) []byte {
	if text := rapid.SampledFrom([]string{"", "", "", "NaN", "Infinity", "-Infinity"}).Draw(t, "special"); text != "" {
		d, err := bson.ParseDecimal128(text)
		if err != nil {
			t.Fatal(err)
		}
		return bsoncore.AppendDecimal128(nil, first(d.GetBytes()), second(d.GetBytes()))
	}
	digits := rapid.StringMatching(`-?[0-9]{1,34}`).Draw(t, "digits")
	exponent := rapid.OneOf(rapid.IntRange(-40, 40), rapid.IntRange(-360, -300), rapid.IntRange(-6176, 6111)).Draw(t, "exponent")
	d, err := bson.ParseDecimal128(digits + "E" + itoa(exponent))
	if err != nil {
		t.Skip(err)
	}
	return bsoncore.AppendDecimal128(nil, first(d.GetBytes()), second(d.GetBytes()))
}

func first(a, _ uint64) uint64  { return a }
func second(_, b uint64) uint64 { return b }

func itoa(n int) string {
	if n < 0 {
		return "-" + doc.Index(-n)
	}
	return doc.Index(n)
}

// The key of old binary data has its inner length, and a decimal of 35 digits, which is not of the
// standard, is a zero.
func TestKeysOfOldBinaryDataAndLargeDecimals(t *testing.T) {
	old := bsoncore.Value{Type: bsoncore.TypeBinary, Data: []byte{7, 0, 0, 0, 2, 3, 0, 0, 0, 'a', 'b', 'c'}}
	var e doc.KeyEncoder
	if err := e.Append(old); err != nil {
		t.Fatal(err)
	}
	if got := hex.EncodeToString(e.Bytes()); got != "5a070203000000616263" {
		t.Errorf("key %s", got)
	}
	if back, err := doc.DecodeKey(e.Bytes(), e.TypeBits()); err != nil || len(back) != 1 || !bytes.Equal(back[0].Data, old.Data) {
		t.Errorf("decoded %v, %v", back, err)
	}
	zero, err := doc.SortKey(parse(t, "0"))
	if err != nil {
		t.Fatal(err)
	}
	const high, low = 0x3041ED09BEAD87C0, 0x378D8E6400000000 // 10^34
	if key, err := doc.SortKey(bsoncore.Value{Type: bsoncore.TypeDecimal128, Data: bsoncore.AppendDecimal128(nil, high, low)}); err != nil || key != zero {
		t.Errorf("key %x, %v", key, err)
	}
}
