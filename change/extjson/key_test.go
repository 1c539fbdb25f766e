package extjson_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
	"pgregory.net/rapid"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/change/extjson"
	"github.com/mongostream/streamer/dev/mongo/doc"
)

// valueOf returns a value as the driver writes it.
func valueOf(t interface {
	Helper()
	Fatal(args ...any)
}, v any,
) change.Value {
	t.Helper()
	return change.Value{Type: byte(bson.TypeEmbeddedDocument), Data: marshal(t, bson.D{{Key: "v", Value: v}})}.Lookup("v")
}

// An identity is values that are one _id, and their key.
type identity struct {
	key    string
	values []any
}

// identities are MongoDB's: the values of one are equal, those of two are not.
// (src/mongo/base/compare_numbers.h, src/mongo/bson/bsonelement.cpp,
// src/mongo/db/storage/key_string.)
func identities() []identity {
	const exactly = "0.1000000000000000055511151231257827" // the double 0.1 to 34 digits
	scope := func(n any) bson.CodeWithScope {
		return bson.CodeWithScope{Code: "f", Scope: bson.D{{Key: "n", Value: n}}}
	}
	binary := func(subtype byte, data string) bson.Binary { return bson.Binary{Subtype: subtype, Data: []byte(data)} }
	id := bson.ObjectID{1, 2, 3}
	return []identity{
		{`1`, []any{int32(1), int64(1), 1.0, decimal("1"), decimal("1.0"), decimal("1.00"), decimal("1E0"), decimal("0.1E1"), decimal("1000E-3")}},
		{`"1"`, []any{"1", bson.Symbol("1")}},
		{`0`, []any{int32(0), int64(0), 0.0, math.Copysign(0, -1), decimal("0"), decimal("-0"), decimal("0E+6000"), decimal("0E-6000")}},
		{`-1`, []any{int32(-1), -1.0, decimal("-1.0")}},
		{`1000`, []any{1e3, int32(1000), decimal("1E3"), decimal("1000.000")}},
		{`9007199254740992`, []any{int64(1 << 53), float64(1 << 53), decimal("9007199254740992")}},
		{`9007199254740993`, []any{int64(1<<53 + 1), decimal("9007199254740993"), decimal("9007199254740993.0")}},
		{`9007199254740994`, []any{int64(1<<53 + 2), float64(1<<53 + 2)}},
		{`9223372036854775807`, []any{int64(math.MaxInt64), decimal("9223372036854775807")}},
		{`9.223372036854776E+18`, []any{float64(1 << 63), decimal("9223372036854775808")}},
		{`{"$numberDecimal":"9223372036854775809"}`, []any{decimal("9223372036854775809")}},
		{`-9223372036854775808`, []any{int64(math.MinInt64), -float64(1 << 63), decimal("-9223372036854775808")}},
		{`{"$numberDecimal":"-9223372036854775809"}`, []any{decimal("-9223372036854775809")}},
		{`1E+22`, []any{1e22, decimal("1E22"), decimal("10000000000000000000000")}},
		{`1E+23`, []any{1e23}},
		{`{"$numberDecimal":"1E+23"}`, []any{decimal("1E23"), decimal("1.0E23")}},
		{`0.5`, []any{0.5, decimal("0.5"), decimal("0.50"), decimal("5E-1")}},
		{`0.1`, []any{0.1}},
		{`{"$numberDecimal":"0.1"}`, []any{decimal("0.1"), decimal("0.10"), decimal("1E-1")}},
		{`{"$numberDecimal":"` + exactly + `"}`, []any{decimal(exactly)}},
		{`{"$numberDecimal":"-12.3"}`, []any{decimal("-12.3"), decimal("-12.30")}},
		{`5E-324`, []any{math.SmallestNonzeroFloat64}},
		{`{"$numberDecimal":"1E-6176"}`, []any{decimal("1E-6176")}},
		{`1.7976931348623157E+308`, []any{math.MaxFloat64}},
		{`{"$numberDecimal":"9E+6144"}`, []any{decimal("9E6144"), decimal("9.0E6144")}},
		{`{"$numberDouble":"NaN"}`, []any{math.NaN(), math.Float64frombits(0xFFF8000000000012), decimal("NaN"), bson.NewDecimal128(0xFC00000000000000, 5)}},
		{`{"$numberDouble":"Infinity"}`, []any{math.Inf(1), decimal("Infinity")}},
		{`{"$numberDouble":"-Infinity"}`, []any{math.Inf(-1), decimal("-Infinity")}},
		{`""`, []any{"", bson.Symbol("")}},
		{`"Bücher 世界"`, []any{"Bücher 世界"}},
		{`"\udcff"`, []any{"\xff"}},
		{`"\udcfe"`, []any{"\xfe"}},
		{"\"\ufffd\"", []any{"\ufffd"}},
		{`"\\udcff"`, []any{`\udcff`}},
		{`"\udced\udcb3\udcbf"`, []any{"\xed\xb3\xbf"}}, // the surrogate U+DCFF, which is not UTF-8
		{`"a\u0000b"`, []any{"a\x00b"}},
		{`"a\u007fb\u0085\u2028\ufdd0\uffff\ud83f\udffe"`, []any{"a\x7fb\u0085\u2028\ufdd0\uffff\U0001fffe"}},
		{`"\n\"\\"`, []any{"\n\"\\"}},
		{`{"$oid":"010203000000000000000000"}`, []any{id}},
		{`"010203000000000000000000"`, []any{"010203000000000000000000"}},
		{`true`, []any{true}},
		{`false`, []any{false}},
		{`null`, []any{nil}},
		{`{"$undefined":true}`, []any{bson.Undefined{}}},
		{`{"$minKey":1}`, []any{bson.MinKey{}}},
		{`{"$maxKey":1}`, []any{bson.MaxKey{}}},
		{`{"$date":"1970-01-01T00:00:00.005Z"}`, []any{bson.DateTime(5)}},
		{`{"$date":{"$numberLong":"-5"}}`, []any{bson.DateTime(-5)}},
		{`5`, []any{int64(5)}},
		{`{"$timestamp":{"t":0,"i":5}}`, []any{bson.Timestamp{I: 5}}},
		{`{"$binary":{"base64":"YQ==","subType":"00"}}`, []any{binary(0, "a")}},
		{`{"$binary":{"base64":"YQ==","subType":"04"}}`, []any{binary(4, "a")}},
		{`{"$binary":{"base64":"YQ==","subType":"02"}}`, []any{binary(2, "a")}},
		{`{"$binary":{"base64":"YQ==","subType":"80"}}`, []any{binary(0x80, "a")}},
		{`{"$regularExpression":{"pattern":"a","options":"i"}}`, []any{bson.Regex{Pattern: "a", Options: "i"}}},
		{`{"$regularExpression":{"pattern":"a","options":""}}`, []any{bson.Regex{Pattern: "a"}}},
		{`{"$regularExpression":{"pattern":"ai","options":""}}`, []any{bson.Regex{Pattern: "ai"}}},
		{`{"$code":"f"}`, []any{bson.JavaScript("f")}},
		{`"f"`, []any{"f"}},
		{`{"$code":"f","$scope":{}}`, []any{bson.CodeWithScope{Code: "f", Scope: bson.D{}}}},
		{`{"$code":"f","$scope":{"n":1}}`, []any{scope(int32(1)), scope(1.0), scope(decimal("1.0"))}},
		{`{"$code":"f","$scope":{"n":"1"}}`, []any{scope("1"), scope(bson.Symbol("1"))}},
		{`{"$dbPointer":{"$ref":"a.b","$id":{"$oid":"010203000000000000000000"}}}`, []any{bson.DBPointer{DB: "a.b", Pointer: id}}},
		{`{}`, []any{bson.D{}}},
		{`[]`, []any{bson.A{}}},
		{`[1]`, []any{bson.A{int32(1)}, bson.A{int64(1)}, bson.A{decimal("1.0")}}},
		{`{"0":1}`, []any{bson.D{{Key: "0", Value: 1.0}}}},
		{`{"a":1,"b":"x"}`, []any{
			bson.D{{Key: "a", Value: int32(1)}, {Key: "b", Value: "x"}}, bson.D{{Key: "a", Value: decimal("1.00")}, {Key: "b", Value: bson.Symbol("x")}},
		}},
		{`{"b":"x","a":1}`, []any{bson.D{{Key: "b", Value: "x"}, {Key: "a", Value: int64(1)}}}},
		{`{"a":1,"a":1}`, []any{bson.D{{Key: "a", Value: int32(1)}, {Key: "a", Value: 1.0}}}},
		{`{"a":{"b":[0,{"c":0.5}]}}`, []any{
			bson.D{{Key: "a", Value: bson.D{{Key: "b", Value: bson.A{int32(0), bson.D{{Key: "c", Value: 0.5}}}}}}},
			bson.D{{Key: "a", Value: bson.D{{Key: "b", Value: bson.A{math.Copysign(0, -1), bson.D{{Key: "c", Value: decimal("0.50")}}}}}}},
		}},
		{`{"$$oid":"010203000000000000000000"}`, []any{bson.D{{Key: "$oid", Value: "010203000000000000000000"}}}},
		{`{"$$$oid":"010203000000000000000000"}`, []any{bson.D{{Key: "$$oid", Value: "010203000000000000000000"}}}},
		{`{"$ref":"a","$id":1}`, []any{bson.D{{Key: "$ref", Value: "a"}, {Key: "$id", Value: 1.0}}}},
		{`{"$$numberDouble":"NaN"}`, []any{bson.D{{Key: "$numberDouble", Value: "NaN"}}}},
		{`{"\udcff":1}`, []any{bson.D{{Key: "\xff", Value: int32(1)}}}},
		// Names that begin with what ends a document in the canonical form.
		{`{"a":{"\udcffb":1},"c":2}`, []any{bson.D{{Key: "a", Value: bson.D{{Key: "\xffb", Value: int32(1)}}}, {Key: "c", Value: int32(2)}}}},
		{`{"a":{},"b":1,"\udcffc":2}`, []any{bson.D{{Key: "a", Value: bson.D{}}, {Key: "b", Value: int32(1)}, {Key: "\xffc", Value: int32(2)}}}},
		{`{"a":{},"\udcffb":1}`, []any{bson.D{{Key: "a", Value: bson.D{}}, {Key: "\xffb", Value: int32(1)}}}},
		{`{"a":{},"\udcfe\udcffb":1}`, []any{bson.D{{Key: "a", Value: bson.D{}}, {Key: "\xfe\xffb", Value: int32(1)}}}},
		{`{"$bson":{"type":"05","base64":"AQAAAAIB"}}`, []any{raw(0x05, []byte{1, 0, 0, 0, 2, 1})}},
		{`{"$numberDecimal":"9.223372036854776E+18"}`, []any{decimal("9.223372036854776E18")}},
		{`{"$binary":{"base64":"AQ==","subType":"02"}}`, []any{raw(0x05, []byte{5, 0, 0, 0, 2, 1, 0, 0, 0, 1})}},
		{`["a"]`, []any{raw(0x04, marshal(panics{}, bson.D{{Key: "0", Value: "a"}})), raw(0x04, marshal(panics{}, bson.D{{Key: "7", Value: "a"}}))}},
	}
}

// panics is a test that has none.
type panics struct{}

func (panics) Helper()           {}
func (panics) Fatal(args ...any) { panic(fmt.Sprint(args...)) }

// One identity has one canonical form, one key and one place in the index of the development
// MongoDB; two have two.
func TestKeysAreTheIdentityOfMongoDB(t *testing.T) {
	seen := make(map[string]string)
	for _, of := range identities() {
		var forms []string
		for _, v := range of.values {
			id := valueOf(t, v)
			if key := string(extjson.AppendKey([]byte("before"), id)); key != "before"+of.key {
				t.Errorf("%T %v: key %s, want %s", v, v, key[len("before"):], of.key)
			}
			forms = append(forms, "canonical "+string(change.AppendCanonical(nil, id)), "index "+sortKey(t, id), "key "+of.key)
		}
		for i, form := range forms {
			if form != forms[i%3] {
				t.Errorf("%s: value %d has a form of its own: %q, want %q", of.key, i/3, form, forms[i%3])
			}
		}
		for _, form := range forms[:3] {
			if other, is := seen[form]; is {
				t.Errorf("%s and %s have one form: %q", other, of.key, form)
			}
			seen[form] = of.key
		}
	}
}

// sortKey returns the place of an _id in the index of the development MongoDB.
func sortKey(t interface {
	Helper()
	Fatal(args ...any)
}, id change.Value,
) string {
	t.Helper()
	key, err := doc.SortKey(bsoncore.Value{Type: bsoncore.Type(id.Type), Data: id.Data})
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// A long _id has a key of bounded length, which begins readably and differs from that of every
// other _id.
func TestLongKeysAreCut(t *testing.T) {
	seen := make(map[string]bool)
	for _, s := range []string{strings.Repeat("a", 511), strings.Repeat("a", 512), strings.Repeat("a", 100_000), strings.Repeat("ü", 400), "x" + strings.Repeat("ü", 400)} {
		for _, v := range []any{s, s + "b", bson.D{{Key: "a", Value: s}}, bson.A{s, s}, bson.JavaScript(s), bson.Binary{Data: []byte(s)}, bson.D{{Key: s, Value: 1.0}}} {
			id := valueOf(t, v)
			key := string(extjson.AppendKey(nil, id))
			if len(key) > extjson.MaxKey || len(key) < extjson.MaxKey-utf8.UTFMax || !utf8.ValidString(key) || strings.Count(key, "~") != 1 || seen[key] {
				t.Errorf("%T of %d bytes: %s", v, len(id.Data), key)
			}
			seen[key] = true
		}
		if one, other := extjson.AppendKey(nil, valueOf(t, bson.D{{Key: s, Value: 1.0}})), extjson.AppendKey(nil, valueOf(t, bson.D{{Key: s, Value: int64(1)}})); !bytes.Equal(one, other) {
			t.Errorf("%s and %s", one, other)
		}
	}
	const fits = extjson.MaxKey - 2
	if key := string(extjson.AppendKey(nil, valueOf(t, strings.Repeat("a", fits)))); key != `"`+strings.Repeat("a", fits)+`"` {
		t.Errorf("cut: %s", key)
	}
}

// alike returns values that MongoDB may consider equal to one: with other types of numbers, as
// symbols, with another order, or a little different.
func alike(t *rapid.T, v any) any {
	switch v := v.(type) {
	case int32:
		return alikeNumber(t, decimal(fmt.Sprint(v)))
	case int64:
		return alikeNumber(t, decimal(fmt.Sprint(v)))
	case float64:
		if d, err := bson.ParseDecimal128(fmt.Sprintf("%.34g", v)); err == nil && rapid.Bool().Draw(t, "as decimal") {
			return alikeNumber(t, d)
		}
		return rapid.SampledFrom([]any{v, -v, int64(v), math.Nextafter(v, 0), math.Nextafter(v, math.Inf(1))}).Draw(t, "double")
	case bson.Decimal128:
		return alikeNumber(t, v)
	case string:
		return rapid.SampledFrom([]any{v, bson.Symbol(v), bson.JavaScript(v), bson.Binary{Data: []byte(v)}, v + "\xff", v + "\xfe"}).Draw(t, "text")
	case bson.Symbol:
		return string(v)
	case bson.DateTime:
		return rapid.SampledFrom([]any{v, int64(v), bson.Timestamp{I: uint32(v)}}).Draw(t, "date")
	case bson.Binary:
		return rapid.SampledFrom([]any{v, bson.Binary{Subtype: v.Subtype + 1, Data: v.Data}, string(v.Data)}).Draw(t, "binary")
	case bson.CodeWithScope:
		scope, _ := v.Scope.(bson.D)
		return bson.CodeWithScope{Code: v.Code, Scope: alike(t, scope)}
	case bson.A:
		other := make(bson.A, len(v))
		for i := range v {
			other[i] = alike(t, v[i])
		}
		return other
	case bson.D:
		other := make(bson.D, len(v))
		for i, e := range v {
			other[i] = bson.E{Key: e.Key, Value: alike(t, e.Value)}
		}
		if len(other) > 1 && rapid.IntRange(0, 9).Draw(t, "swap") == 0 {
			other[0], other[1] = other[1], other[0]
		}
		return other
	}
	return v
}

// alikeNumber returns a number about equal to a decimal.
func alikeNumber(t *rapid.T, d bson.Decimal128) any {
	coefficient, exponent, err := d.BigInt()
	if err != nil {
		return rapid.SampledFrom([]any{math.NaN(), math.Inf(1), math.Inf(-1), d}).Draw(t, "special")
	}
	all := []any{d}
	for range 3 { // more zeros
		coefficient.Mul(coefficient, big.NewInt(10))
		exponent--
		if other, ok := bson.ParseDecimal128FromBigInt(coefficient, exponent); ok {
			all = append(all, other)
		}
	}
	if f, err := strconv.ParseFloat(d.String(), 64); err == nil {
		all = append(all, f, int64(f), int32(f))
	}
	return rapid.SampledFrom(all).Draw(t, "number")
}

// numbers are those at which types of numbers differ.
func numbers() *rapid.Generator[any] {
	return rapid.Custom(func(t *rapid.T) any {
		n := rapid.SampledFrom([]int64{0, 1, 5, 10, 1 << 31, 1 << 53, 1e15, 1e17, 1e18, math.MaxInt64, math.MinInt64}).Draw(t, "near") + rapid.Int64Range(-2, 2).Draw(t, "beside")
		switch rapid.IntRange(0, 5).Draw(t, "type") {
		case 0:
			return n
		case 1:
			return float64(n)
		case 2:
			return decimal(fmt.Sprint(n))
		case 3:
			return float64(n) * math.Pow(10, float64(rapid.IntRange(-330, 300).Draw(t, "power")))
		case 4:
			return decimal(fmt.Sprintf("%dE%d", n, rapid.IntRange(-6000, 6000).Draw(t, "exponent")))
		default:
			return bson.NewDecimal128(rapid.Uint64().Draw(t, "high"), rapid.Uint64().Draw(t, "low"))
		}
	})
}

// Two values have one canonical form, and one key, exactly if they have one place in MongoDB's
// index.
func TestKeysAgreeWithTheIndex(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		of := rapid.OneOf(numbers(), value(3), rapid.Map(document(2), func(d bson.D) any { return d })).Draw(t, "value")
		one, other := valueOf(t, of), valueOf(t, alike(t, of))
		same := sortKey(t, one) == sortKey(t, other)
		if canonical := bytes.Equal(change.AppendCanonical(nil, one), change.AppendCanonical(nil, other)); canonical != same {
			t.Fatalf("canonical forms are equal: %t, places in the index: %t\n%x %x\n%x %x", canonical, same, one.Type, one.Data, other.Type, other.Data)
		}
		key, otherKey := extjson.AppendKey(nil, one), extjson.AppendKey(nil, other)
		if bytes.Equal(key, otherKey) != same {
			t.Fatalf("keys %s and %s, places in the index are equal: %t", key, otherKey, same)
		}
		if len(key) > extjson.MaxKey || !utf8.Valid(key) {
			t.Fatalf("key %s", key)
		}
	})
}

// Anything has a key, and what is equal has equal ones.
func FuzzKey(f *testing.F) {
	for _, of := range identities() {
		for _, v := range of.values {
			id := valueOf(f, v)
			f.Add(id.Type, id.Data)
		}
	}
	for _, text := range []string{"", `"`, `\`, "\x7f", "\u2028", "\xff", "ü", strings.Repeat("x", extjson.MaxKey-2), strings.Repeat("x", extjson.MaxKey-1)} {
		id := valueOf(f, text)
		f.Add(id.Type, id.Data)
	}
	f.Fuzz(func(t *testing.T, kind byte, data []byte) {
		element := append(append([]byte{0, 0, 0, 0, kind, 'v', 0}, data...), 0)
		binary.LittleEndian.PutUint32(element, uint32(len(element)))
		id := change.Value{Type: byte(bson.TypeEmbeddedDocument), Data: element}.Lookup("v")
		if id.IsZero() {
			return
		}
		if key := extjson.AppendKey(nil, id); len(key) == 0 || len(key) > extjson.MaxKey || !utf8.Valid(key) || bytes.ContainsAny(key, "\n\r\x00") {
			t.Errorf("%q", key)
		}
		if text, want := extjson.AppendKeyText(nil, id), extjson.AppendString(nil, extjson.AppendKey(nil, id)); !bytes.Equal(text, want) {
			t.Errorf("as a text %s, want %s", text, want)
		}
	})
}

// An event is written as its document is without the token; a later field of that name stays.
func TestEventsAreWrittenWithoutTheirToken(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fields := append(document(2).Draw(t, "fields"), bson.E{Key: "_id", Value: int32(1)})
		token := bson.D{{Key: "_data", Value: "82" + rapid.StringMatching("[0-9A-F]{16,40}").Draw(t, "digits")}}
		event, err := change.Parse(marshal(t, append(bson.D{{Key: "_id", Value: token}}, fields...)))
		if err != nil || !extjson.BeginsWithToken(&event) {
			t.Fatal(err)
		}
		for _, key := range []string{``, `"7"`} {
			want, err := extjson.Options{}.AppendKeyed(nil, []byte(key), marshal(t, fields))
			if err != nil {
				t.Fatal(err)
			}
			if got, err := (extjson.Options{}).AppendKeyedEvent(nil, []byte(key), &event); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s, %v; want %s", got, err, want)
			}
		}
		if late, err := change.Parse(marshal(t, append(bson.D{{Key: "a", Value: nil}, {Key: "_id", Value: token}}, fields...))); err != nil || extjson.BeginsWithToken(&late) {
			t.Errorf("a token after another field: %v", err)
		}
	})
}
