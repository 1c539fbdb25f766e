package extjson_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"math"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"pgregory.net/rapid"

	"github.com/mongostream/streamer/change/extjson"
)

// both returns the formats.
func both() map[string]extjson.Options {
	return map[string]extjson.Options{"relaxed": {}, "canonical": {Canonical: true}}
}

func marshal(t interface {
	Helper()
	Fatal(args ...any)
}, v any) []byte {
	t.Helper()
	doc, err := bson.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

// write writes a document, and checks what holds for every text.
func write(t interface {
	Helper()
	Errorf(format string, args ...any)
}, o extjson.Options, doc []byte) (string, error) {
	t.Helper()
	before := bytes.Clone(doc)
	b, err := o.Append([]byte("before"), doc)
	if !bytes.Equal(doc, before) {
		t.Errorf("the document has changed: % x", before)
	}
	text, found := bytes.CutPrefix(b, []byte("before"))
	if !found {
		t.Errorf("what was in the buffer has changed: %q", b)
	}
	switch {
	case err != nil && len(text) > 0:
		t.Errorf("an error left %q", text)
	case err == nil && !json.Valid(text):
		t.Errorf("no JSON: %q", text)
	case err == nil && len(text) > 12*len(doc):
		t.Errorf("%d bytes became %d", len(doc), len(text))
	}
	if bytes.ContainsAny(text, "\n\r\u2028\u2029") {
		t.Errorf("a line break: %q", text)
	}
	return string(text), err
}

func TestValues(t *testing.T) {
	id := bson.ObjectID{0x57, 0xE1, 0x93, 0xD7, 0xA9, 0xCC, 0x81, 0xB4, 0x02, 0x74, 0x98, 0xB5}
	const oid = `{"$oid":"57e193d7a9cc81b4027498b5"}`
	for _, tt := range []struct {
		value              any
		relaxed, canonical string // empty: the same
	}{
		{"text", `"text"`, ``},
		{"", `""`, ``},
		{int32(-42), `-42`, `{"$numberInt":"-42"}`},
		{int32(math.MinInt32), `-2147483648`, `{"$numberInt":"-2147483648"}`},
		{int64(42), `42`, `{"$numberLong":"42"}`},
		{int64(math.MaxInt64), `9223372036854775807`, `{"$numberLong":"9223372036854775807"}`},
		{int64(math.MinInt64), `-9223372036854775808`, `{"$numberLong":"-9223372036854775808"}`},
		{1.0, `1.0`, `{"$numberDouble":"1.0"}`},
		{0.0, `0.0`, `{"$numberDouble":"0.0"}`},
		{math.Copysign(0, -1), `-0.0`, `{"$numberDouble":"-0.0"}`},
		{-1.5, `-1.5`, `{"$numberDouble":"-1.5"}`},
		{0.1, `0.1`, `{"$numberDouble":"0.1"}`},
		{1e6, `1E+06`, `{"$numberDouble":"1E+06"}`},
		{1.2345678901234568e18, `1.2345678901234568E+18`, `{"$numberDouble":"1.2345678901234568E+18"}`},
		{1e-7, `1E-07`, `{"$numberDouble":"1E-07"}`},
		{math.MaxFloat64, `1.7976931348623157E+308`, `{"$numberDouble":"1.7976931348623157E+308"}`},
		{math.SmallestNonzeroFloat64, `5E-324`, `{"$numberDouble":"5E-324"}`},
		{math.NaN(), `{"$numberDouble":"NaN"}`, ``},
		{math.Float64frombits(0xFFF8000000000012), `{"$numberDouble":"NaN"}`, ``},
		{math.Inf(1), `{"$numberDouble":"Infinity"}`, ``},
		{math.Inf(-1), `{"$numberDouble":"-Infinity"}`, ``},
		{decimal("1234.5"), `{"$numberDecimal":"1234.5"}`, ``},
		{decimal("-0"), `{"$numberDecimal":"-0"}`, ``},
		{decimal("0E+3"), `{"$numberDecimal":"0E+3"}`, ``},
		{decimal("0.000000"), `{"$numberDecimal":"0.000000"}`, ``},
		{decimal("0E-7"), `{"$numberDecimal":"0E-7"}`, ``},
		{decimal("0.000001"), `{"$numberDecimal":"0.000001"}`, ``},
		{decimal("1E-7"), `{"$numberDecimal":"1E-7"}`, ``},
		{decimal("1.05E+3"), `{"$numberDecimal":"1.05E+3"}`, ``},
		{decimal("-9.999999999999999999999999999999999E+6144"), `{"$numberDecimal":"-9.999999999999999999999999999999999E+6144"}`, ``},
		{decimal("1E-6176"), `{"$numberDecimal":"1E-6176"}`, ``},
		{decimal("100000000000000000"), `{"$numberDecimal":"100000000000000000"}`, ``},
		{decimal("100000000000000005.0"), `{"$numberDecimal":"100000000000000005.0"}`, ``},
		{decimal("NaN"), `{"$numberDecimal":"NaN"}`, ``},
		{bson.NewDecimal128(0xFC00000000000000, 5), `{"$numberDecimal":"NaN"}`, ``},
		{decimal("-Infinity"), `{"$numberDecimal":"-Infinity"}`, ``},
		{decimal("Infinity"), `{"$numberDecimal":"Infinity"}`, ``},
		{bson.NewDecimal128(0x6C10000000000000, 0), `{"$numberDecimal":"0"}`, ``}, // the encoding is not of the standard: zero
		{true, `true`, ``},
		{false, `false`, ``},
		{nil, `null`, ``},
		{bson.Undefined{}, `{"$undefined":true}`, ``},
		{bson.MinKey{}, `{"$minKey":1}`, ``},
		{bson.MaxKey{}, `{"$maxKey":1}`, ``},
		{id, oid, ``},
		{bson.DBPointer{DB: "shop.orders", Pointer: id}, `{"$dbPointer":{"$ref":"shop.orders","$id":` + oid + `}}`, ``},
		{bson.Timestamp{T: math.MaxUint32, I: 7}, `{"$timestamp":{"t":4294967295,"i":7}}`, ``},
		{bson.Symbol("a\nb"), `{"$symbol":"a\nb"}`, ``},
		{bson.JavaScript("a\rb"), `{"$code":"a\rb"}`, ``},
		{bson.CodeWithScope{Code: "\u2028", Scope: bson.D{{Key: "n", Value: int32(1)}}}, `{"$code":"\u2028","$scope":{"n":1}}`, `{"$code":"\u2028","$scope":{"n":{"$numberInt":"1"}}}`},
		{bson.CodeWithScope{Scope: bson.D{}}, `{"$code":"","$scope":{}}`, ``},
		{bson.Regex{Pattern: "^a/\"\n", Options: "imx"}, `{"$regularExpression":{"pattern":"^a/\"\n","options":"imx"}}`, ``},
		{bson.Regex{}, `{"$regularExpression":{"pattern":"","options":""}}`, ``},
		{bson.Binary{Data: []byte{0xFF, 0xFF}}, `{"$binary":{"base64":"//8=","subType":"00"}}`, ``},
		{bson.Binary{Subtype: 4, Data: []byte("0123456789abcdef")}, `{"$binary":{"base64":"MDEyMzQ1Njc4OWFiY2RlZg==","subType":"04"}}`, ``},
		{bson.Binary{Subtype: 2, Data: []byte{0xFF, 0xFF}}, `{"$binary":{"base64":"//8=","subType":"02"}}`, ``},
		{bson.Binary{Subtype: 0x80}, `{"$binary":{"base64":"","subType":"80"}}`, ``},
		{bson.Binary{Subtype: 0xFF, Data: []byte{1}}, `{"$binary":{"base64":"AQ==","subType":"ff"}}`, ``},
		{bson.D{}, `{}`, ``},
		{bson.A{}, `[]`, ``},
		{bson.A{int32(1), bson.D{{Key: "a", Value: bson.A{nil}}}}, `[1,{"a":[null]}]`, `[{"$numberInt":"1"},{"a":[null]}]`},
		{bson.D{{Key: "a", Value: nil}, {Key: "a", Value: true}, {Key: "", Value: nil}}, `{"a":null,"a":true,"":null}`, ``},
		{bson.D{{Key: "$numberInt", Value: "1"}}, `{"$numberInt":"1"}`, ``}, // cannot be told apart, as the specification says
		{bson.DateTime(0), `{"$date":"1970-01-01T00:00:00Z"}`, `{"$date":{"$numberLong":"0"}}`},
		{bson.DateTime(1356351330501), `{"$date":"2012-12-24T12:15:30.501Z"}`, `{"$date":{"$numberLong":"1356351330501"}}`},
		{bson.DateTime(1356351330005), `{"$date":"2012-12-24T12:15:30.005Z"}`, `{"$date":{"$numberLong":"1356351330005"}}`},
		{bson.DateTime(-1), `{"$date":{"$numberLong":"-1"}}`, ``},
		{bson.DateTime(253402300799999), `{"$date":"9999-12-31T23:59:59.999Z"}`, `{"$date":{"$numberLong":"253402300799999"}}`},
		{bson.DateTime(253402300800000), `{"$date":{"$numberLong":"253402300800000"}}`, ``},
		{bson.DateTime(math.MaxInt64), `{"$date":{"$numberLong":"9223372036854775807"}}`, ``},
		{bson.DateTime(math.MinInt64), `{"$date":{"$numberLong":"-9223372036854775808"}}`, ``},
	} {
		doc := marshal(t, bson.D{{Key: "v", Value: tt.value}})
		for format, want := range map[string]string{"relaxed": tt.relaxed, "canonical": tt.canonical} {
			if want == "" {
				want = tt.relaxed
			}
			want = `{"v":` + want + `}`
			got, err := write(t, both()[format], doc)
			if err != nil || got != want {
				t.Errorf("%T %v, %s: %s, %v; want %s", tt.value, tt.value, format, got, err, want)
			}
			if theirs := driver(t, doc, both()[format]); theirs != want {
				t.Errorf("%T %v, %s: the driver writes %s", tt.value, tt.value, format, theirs)
			}
		}
	}
}

func decimal(text string) bson.Decimal128 {
	d, err := bson.ParseDecimal128(text)
	if err != nil {
		panic(err)
	}
	return d
}

// What the driver does is against the specification here.
func TestDifferencesFromTheDriver(t *testing.T) {
	id := make([]byte, 12)
	for name, tt := range map[string]struct {
		value              bson.RawValue
		want, driverWrites string
	}{
		"a fraction of a second has three digits": {
			raw(0x09, binary.LittleEndian.AppendUint64(nil, 1356351330500)), `{"$date":"2012-12-24T12:15:30.500Z"}`, `{"$date":"2012-12-24T12:15:30.5Z"}`,
		},
		"a DBPointer's namespace is escaped": {
			raw(0x0C, append(text("a\n\"b"), id...)),
			`{"$dbPointer":{"$ref":"a\n\"b","$id":{"$oid":"000000000000000000000000"}}}`,
			"{\"$dbPointer\":{\"$ref\":\"a\n\"b\",\"$id\":{\"$oid\":\"000000000000000000000000\"}}}",
		},
		"35 digits are not of the standard: zero": {
			decimalOf(0x3041ED09BEAD87C0, 0x378D8E6400000000), // 10^34
			`{"$numberDecimal":"0"}`, `{"$numberDecimal":"10000000000000000000000000000000000"}`,
		},
		"old binary data may be empty": {
			raw(0x05, []byte{4, 0, 0, 0, 2, 0, 0, 0, 0}), `{"$binary":{"base64":"","subType":"02"}}`, `{"$binary":{"base64":"AAAAAA==","subType":"02"}}`,
		},
	} {
		doc := marshal(t, bson.D{{Key: "v", Value: tt.value}})
		if got, err := write(t, extjson.Options{}, doc); err != nil || got != `{"v":`+tt.want+`}` {
			t.Errorf("%s: %s, %v; want %s", name, got, err, tt.want)
		}
		theirs, err := bson.MarshalExtJSON(bson.Raw(doc), false, false)
		if err != nil || string(theirs) != `{"v":`+tt.driverWrites+`}` {
			t.Errorf("%s: the driver writes %s, %v", name, theirs, err)
		}
	}
}

func raw(kind bson.Type, value []byte) bson.RawValue { return bson.RawValue{Type: kind, Value: value} }

func text(s string) []byte {
	return append(append(binary.LittleEndian.AppendUint32(nil, uint32(len(s)+1)), s...), 0)
}

func decimalOf(hi, lo uint64) bson.RawValue {
	return raw(0x13, binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, lo), hi))
}

func TestStrings(t *testing.T) {
	for s, want := range map[string]string{
		"\x00\x01\b\t\n\v\f\r\x1f ~\x7f": `"\u0000\u0001\b\t\n\u000b\f\r\u001f ~` + "\x7f" + `"`,
		`"quoted" \ / <html> & 'it'`:     `"\"quoted\" \\ / <html> & 'it'"`,
		"\u2027\u2028\u2029\u202a":       "\"\u2027\\u2028\\u2029\u202a\"",
		"é世界😀":                           `"é世界😀"`,
		"a\xffb\xc3":                     `"a\ufffdb\ufffd"`,
		"\xed\xa0\x80":                   `"\ufffd\ufffd\ufffd"`, // half of a surrogate pair
		"\ufffd":                         "\"\ufffd\"",
		"\xe2\x80":                       `"\ufffd\ufffd"`,
	} {
		// Wherever it begins, and whatever is around it, also in names.
		for _, pad := range []string{"", "1", "123456", "1234567", "12345678", "123456789", "世"} {
			whole := pad + s + pad
			wantWhole := `"` + pad + want[1:len(want)-1] + pad + `"`
			doc := marshal(t, bson.D{{Key: "v", Value: whole}})
			if got, err := write(t, extjson.Options{}, doc); err != nil || got != `{"v":`+wantWhole+`}` {
				t.Errorf("%q: %s, %v; want %s", whole, got, err, wantWhole)
			}
			if name := strings.ReplaceAll(whole, "\x00", ""); name == whole {
				doc := marshal(t, bson.D{{Key: name, Value: nil}})
				if got, err := write(t, extjson.Options{}, doc); err != nil || got != `{`+wantWhole+`:null}` {
					t.Errorf("name %q: %s, %v; want %s", whole, got, err, wantWhole)
				}
			}
		}
	}
}

// Whoever writes documents must not be able to end a string, a line or a server-sent event,
// wherever text can be.
func TestHostileText(t *testing.T) {
	const s, name = "x\"}}\n\nid: forged\ndata: {\"a\":\"\r\n\u2028\x00\x01\xff", "n\"\n\ndata: forged"
	pointer := bson.DBPointer{DB: s}
	doc := marshal(t, bson.D{
		{Key: name, Value: s}, {Key: "pointer", Value: pointer}, {Key: "symbol", Value: bson.Symbol(s)}, {Key: "code", Value: bson.JavaScript(s)},
		{Key: "scope", Value: bson.CodeWithScope{Code: bson.JavaScript(s), Scope: bson.D{{Key: name, Value: pointer}}}},
		{Key: "regex", Value: bson.Regex{Pattern: name, Options: name}}, {Key: "binary", Value: []byte(s)}, {Key: "in", Value: bson.D{{Key: name, Value: bson.A{pointer}}}},
	})
	for format, o := range both() {
		got, err := write(t, o, doc)
		var back bson.D
		if err != nil || bson.UnmarshalExtJSON([]byte(got), true, &back) != nil || len(back) != 8 {
			t.Errorf("%s: %q, %v", format, got, err)
		}
	}
}

// Every byte is told apart wherever it stands among eight others.
func TestEveryByteAtEveryPlace(t *testing.T) {
	for c := range 256 {
		for at := range 17 {
			s := []byte(strings.Repeat("x", 17))
			s[at] = byte(c)
			for _, around := range []byte{'x', ' ', 0x7F} {
				if at > 0 {
					s[at-1] = around
				}
				same(t, marshal(t, bson.D{{Key: "v", Value: string(s)}}))
			}
		}
	}
}

func TestRegexOptionsAreSorted(t *testing.T) {
	for _, options := range []string{"xmi", "ix", "zaza", "xé", "éa", "\xff"} {
		same(t, marshal(t, bson.D{{Key: "v", Value: bson.Regex{Pattern: "a", Options: options}}}))
		doc := append(append([]byte{0, 0, 0, 0, 0x0B, 'v', 0, 'a', 0}, options...), 0, 0) // the driver sorts when it writes BSON, too
		doc[0] = byte(len(doc))
		same(t, doc)
	}
}

func TestMalformed(t *testing.T) {
	element := func(kind byte, value ...byte) []byte {
		doc := append(append([]byte{0, 0, 0, 0, kind, 'v', 0}, value...), 0)
		doc[0] = byte(len(doc))
		return doc
	}
	before := func(value ...byte) []byte { return append(value, 0x12, 'w', 0, 1, 0, 0, 0, 0, 0, 0, 0) } // a number follows
	for name, doc := range map[string][]byte{
		"nothing":                                   {},
		"too short":                                 {5, 0, 0, 0},
		"no end":                                    {5, 0, 0, 0, 1},
		"shorter than it says":                      {6, 0, 0, 0, 0},
		"longer than it says":                       {5, 0, 0, 0, 0, 0},
		"a length below zero":                       {0xFF, 0xFF, 0xFF, 0xFF, 0},
		"an end before the end":                     {6, 0, 0, 0, 0, 0},
		"a name without end":                        {7, 0, 0, 0, 0x0A, 'v', 'w'},
		"an unknown type":                           element(0x14, 0),
		"a boolean of 2":                            element(0x08, 2),
		"half a double":                             element(0x01, 0, 0, 0),
		"a string without end":                      element(0x02, 2, 0, 0, 0, 'a', 'b'),
		"a string of no length":                     element(0x02, 0, 0, 0, 0, 0),
		"a string longer than all":                  element(0x02, 0xFF, 0xFF, 0xFF, 0x7F, 'a', 0),
		"a string of a length below 0":              element(0x02, 0xFF, 0xFF, 0xFF, 0xFF, 'a', 0),
		"a document longer than all":                element(0x03, 0xFF, 0, 0, 0, 0),
		"a document of no length":                   element(0x03, 0, 0, 0, 0, 0),
		"an array without end":                      element(0x04, 5, 0, 0, 0, 1),
		"a string without end, before others":       element(0x02, before(2, 0, 0, 0, 'a', 'b')...),
		"a string of no length, before others":      element(0x02, before(0, 0, 0, 0, 0)...),
		"a document without end, before others":     element(0x03, before(5, 0, 0, 0, 1)...),
		"a document of no length, before others":    element(0x03, before(0, 0, 0, 0, 0)...),
		"binary data longer than all":               element(0x05, 9, 0, 0, 0, 0, 1),
		"old data, inner length too low":            element(0x05, 6, 0, 0, 0, 2, 1, 0, 0, 0, 1, 2),
		"old data, inner length too big":            element(0x05, 6, 0, 0, 0, 2, 3, 0, 0, 0, 1, 2),
		"old data, inner length below 0":            element(0x05, 6, 0, 0, 0, 2, 0xFF, 0xFF, 0xFF, 0xFF, 1, 2),
		"a regular expression without options":      element(0x0B, 'a', 0),
		"code with scope, too short":                element(0x0F, 13, 0, 0, 0, 1, 0, 0, 0, 0, 5, 0, 0, 0),
		"code with scope, the code too long":        element(0x0F, 15, 0, 0, 0, 9, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0),
		"code with scope, code without end":         element(0x0F, 15, 0, 0, 0, 2, 0, 0, 0, 'a', 'b', 5, 0, 0, 0, 0),
		"code with scope, code of no length":        element(0x0F, 13+1, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0),
		"code with scope, the scope too short":      element(0x0F, 15, 0, 0, 0, 2, 0, 0, 0, 'a', 0, 6, 0, 0, 0, 0),
		"code with scope, the scope is no document": element(0x0F, 15, 0, 0, 0, 2, 0, 0, 0, 'a', 0, 5, 0, 0, 0, 1),
	} {
		for format, o := range both() {
			if text, err := write(t, o, doc); err == nil {
				t.Errorf("%s, %s: %s", name, format, text)
			}
		}
	}
}

// What is cut off anywhere is an error.
func TestCutOff(t *testing.T) {
	doc := everything(t)
	for n := range doc {
		if text, err := write(t, extjson.Options{}, doc[:n]); err == nil {
			t.Errorf("%d of %d bytes: %s", n, len(doc), text)
		}
		cut := bytes.Clone(doc[:n+1])
		if n >= 4 && n+1 < len(doc) {
			binary.LittleEndian.PutUint32(cut, uint32(len(cut)))
			cut[n] = 0
			same(t, cut)
		}
	}
}

func nested(levels int, kind byte) []byte {
	doc := []byte{5, 0, 0, 0, 0}
	for range levels - 1 {
		outer := append([]byte{0, 0, 0, 0, kind, 0}, doc...)
		doc = append(outer, 0)
		binary.LittleEndian.PutUint32(doc, uint32(len(doc)))
	}
	return doc
}

func TestDepthIsBounded(t *testing.T) {
	for _, kind := range []byte{0x03, 0x04} {
		same(t, nested(512, kind))
		if _, err := write(t, extjson.Options{}, nested(512, kind)); err != nil {
			t.Error(err)
		}
		for _, levels := range []int{513, 20_000} {
			if _, err := write(t, extjson.Options{}, nested(levels, kind)); err == nil || !strings.Contains(err.Error(), "512 levels") {
				t.Errorf("%d levels: %v", levels, err)
			}
		}
	}
}

// everything has a value of every type.
func everything(t interface {
	Helper()
	Fatal(args ...any)
}) []byte {
	t.Helper()
	return marshal(t, bson.D{
		{Key: "double", Value: 1.5}, {Key: "string", Value: "a\nb \u2028 \xff é"}, {Key: "doc", Value: bson.D{{Key: "in", Value: int32(1)}}},
		{Key: "array", Value: bson.A{"a", bson.A{}}}, {Key: "binary", Value: bson.Binary{Subtype: 4, Data: []byte("0123456789abcdef")}},
		{Key: "old", Value: bson.Binary{Subtype: 2, Data: []byte{1, 2, 3}}}, {Key: "undefined", Value: bson.Undefined{}},
		{Key: "oid", Value: bson.ObjectID{1, 2}}, {Key: "bool", Value: true}, {Key: "date", Value: time.Unix(1, 123_000_000)}, {Key: "early", Value: time.Unix(-1, 0)},
		{Key: "null", Value: nil}, {Key: "regex", Value: bson.Regex{Pattern: "a", Options: "i"}}, {Key: "pointer", Value: bson.DBPointer{DB: "a.b"}},
		{Key: "code", Value: bson.JavaScript("x")}, {Key: "symbol", Value: bson.Symbol("x")},
		{Key: "scope", Value: bson.CodeWithScope{Code: "x", Scope: bson.D{{Key: "a", Value: 1.0}}}}, {Key: "int", Value: int32(1)}, {Key: "ts", Value: bson.Timestamp{T: 1}},
		{Key: "long", Value: int64(1)}, {Key: "decimal", Value: decimal("12.30")}, {Key: "min", Value: bson.MinKey{}}, {Key: "max", Value: bson.MaxKey{}},
	})
}

// driver returns what the driver writes, with fractions of seconds as we write them.
func driver(t interface {
	Helper()
	Fatal(args ...any)
}, doc []byte, o extjson.Options) string {
	t.Helper()
	theirs, err := bson.MarshalExtJSON(bson.Raw(doc), o.Canonical, false)
	if err != nil {
		t.Fatal(err)
	}
	return padded(string(theirs))
}

var fraction = regexp.MustCompile(`(\{"\$date":"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.)(\d{1,3})Z"\}`)

// padded gives fractions of seconds three digits.
func padded(text string) string {
	return fraction.ReplaceAllStringFunc(text, func(date string) string {
		m := fraction.FindStringSubmatch(date)
		return m[1] + (m[2] + "00")[:3] + `Z"}`
	})
}

// differs reports whether a document has in it what the driver writes against the specification,
// beside dates, or reads against it: it loses what old binary data has beyond its inner length.
func differs(doc bson.Raw) bool {
	elements, err := doc.Elements()
	if err != nil {
		return true
	}
	for _, e := range elements {
		switch v := e.Value(); v.Type {
		case bson.TypeEmbeddedDocument:
			if differs(v.Document()) {
				return true
			}
		case bson.TypeArray:
			if differs(bson.Raw(v.Array())) {
				return true
			}
		case bson.TypeCodeWithScope:
			if _, scope, ok := v.CodeWithScopeOK(); !ok || differs(scope) {
				return true
			}
		case bson.TypeDBPointer:
			if ns, _, ok := v.DBPointerOK(); !ok || strconv.QuoteToASCII(ns) != `"`+ns+`"` {
				return true
			}
		case bson.TypeBinary:
			if subtype, data, ok := v.BinaryOK(); !ok || subtype == 2 && (len(v.Value) <= 9 || len(data) != len(v.Value)-9) {
				return true
			}
		case bson.TypeDecimal128:
			if n, _, err := v.Decimal128().BigInt(); err == nil && len(n.String()) > 34 {
				return true
			}
		}
	}
	return false
}

// same checks that a document is written as the driver writes it, or refused by both.
func same(t interface {
	Helper()
	Errorf(format string, args ...any)
}, doc []byte) {
	t.Helper()
	valid := bson.Raw(doc).Validate() == nil && int(binary.LittleEndian.Uint32(doc)) == len(doc) // the driver leaves out what comes after
	for format, o := range both() {
		ours, err := write(t, o, doc)
		if !valid || differs(doc) {
			continue
		}
		theirs, theirErr := bson.MarshalExtJSON(bson.Raw(doc), o.Canonical, false)
		switch {
		case err != nil && theirErr == nil && !strings.Contains(err.Error(), "levels"):
			t.Errorf("% x, %s: %v; the driver writes %s", doc, format, err, theirs)
		case err == nil && theirErr != nil:
			t.Errorf("% x, %s: %s; the driver says %v", doc, format, ours, theirErr)
		case err == nil && padded(ours) != padded(string(theirs)):
			t.Errorf("% x, %s: %s; the driver writes %s", doc, format, ours, theirs)
		}
	}
}

func TestDocumentsAsTheDriverWritesThem(t *testing.T) {
	same(t, everything(t))
	rapid.Check(t, func(t *rapid.T) { same(t, marshal(t, document(3).Draw(t, "document"))) })
}

func TestDecimalsAsTheDriverWritesThem(t *testing.T) {
	check := func(hi, lo uint64) {
		t.Helper()
		same(t, marshal(t, bson.D{{Key: "v", Value: decimalOf(hi, lo)}}))
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		check(r.Uint64(), r.Uint64())
	}
	for exponent := -50; exponent <= 20; exponent++ {
		for digits := range 114 {
			for _, sign := range []uint64{0, 1 << 63} {
				hi, lo := uint64(0), r.Uint64()
				if digits >= 64 {
					hi = r.Uint64() & (1<<(digits-64) - 1)
				} else {
					lo &= 1<<digits - 1
				}
				check(sign|uint64(exponent+6176)<<49|hi, lo)
			}
		}
	}
}

func document(depth int) *rapid.Generator[bson.D] {
	element := rapid.Custom(func(t *rapid.T) bson.E {
		name := strings.ReplaceAll(anyText().Draw(t, "name"), "\x00", "")
		return bson.E{Key: name, Value: value(depth).Draw(t, "value")}
	})
	return rapid.Custom(func(t *rapid.T) bson.D { return rapid.SliceOfN(element, 0, 6).Draw(t, "elements") })
}

func anyText() *rapid.Generator[string] {
	return rapid.OneOf(rapid.String(), rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) }), rapid.StringMatching(`[a-z"\\ ]*`))
}

func value(depth int) *rapid.Generator[any] {
	return rapid.Custom(func(t *rapid.T) any {
		plain := func() string { return strings.ReplaceAll(anyText().Draw(t, "text"), "\x00", "") }
		switch kind := rapid.IntRange(0, 22).Draw(t, "kind"); {
		case kind == 0:
			return math.Float64frombits(rapid.Uint64().Draw(t, "double"))
		case kind == 1:
			return rapid.Float64().Draw(t, "double")
		case kind == 2:
			return anyText().Draw(t, "text")
		case kind == 3:
			return rapid.Int32().Draw(t, "int")
		case kind == 4:
			return rapid.Int64().Draw(t, "long")
		case kind == 5:
			return bson.NewDecimal128(rapid.Uint64().Draw(t, "high"), rapid.Uint64().Draw(t, "low"))
		case kind == 6:
			return bson.DateTime(rapid.Int64().Draw(t, "date"))
		case kind == 7:
			return bson.DateTime(rapid.Int64Range(-1e12, 254e12).Draw(t, "date"))
		case kind == 8:
			return bson.Binary{Subtype: rapid.Byte().Draw(t, "subtype"), Data: rapid.SliceOf(rapid.Byte()).Draw(t, "data")}
		case kind == 9:
			return bson.Undefined{}
		case kind == 10:
			return bson.ObjectID(rapid.SliceOfN(rapid.Byte(), 12, 12).Draw(t, "id"))
		case kind == 11:
			return rapid.Bool().Draw(t, "bool")
		case kind == 12:
			return nil
		case kind == 13:
			return bson.Regex{Pattern: plain(), Options: plain()}
		case kind == 14:
			return bson.DBPointer{DB: rapid.OneOf(rapid.StringMatching(`[a-z.]*`), anyText()).Draw(t, "namespace")}
		case kind == 15:
			return bson.JavaScript(anyText().Draw(t, "code"))
		case kind == 16:
			return bson.Symbol(anyText().Draw(t, "symbol"))
		case kind == 17:
			return bson.Timestamp{T: rapid.Uint32().Draw(t, "t"), I: rapid.Uint32().Draw(t, "i")}
		case kind == 18:
			return bson.MinKey{}
		case kind == 19 || depth == 0:
			return bson.MaxKey{}
		case kind == 20:
			return document(depth-1).Draw(t, "document")
		case kind == 21:
			return bson.A(rapid.SliceOfN(value(depth-1), 0, 5).Draw(t, "array"))
		default:
			return bson.CodeWithScope{Code: bson.JavaScript(plain()), Scope: document(depth-1).Draw(t, "scope")}
		}
	})
}

// FuzzAppend writes anything without panic, and what is BSON as the driver does.
func FuzzAppend(f *testing.F) {
	f.Add(everything(f))
	f.Add(nested(20, 0x04))
	for _, s := range []string{"", "0500000000", "0D000000057800000000000000", "130000000578000600000002FFFFFFFFFFFF00"} {
		doc, err := hex.DecodeString(s)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(doc)
	}
	f.Fuzz(func(t *testing.T, doc []byte) { same(t, doc) })
}

func TestNothingIsAllocated(t *testing.T) {
	doc := everything(t)
	for format, o := range both() {
		b, err := o.Append(nil, doc)
		if err != nil {
			t.Fatal(err)
		}
		if n := testing.AllocsPerRun(100, func() { b, err = o.Append(b[:0], doc) }); n != 0 || err != nil {
			t.Errorf("%s: %v allocations, %v", format, n, err)
		}
	}
}

// An event as a server sends it, of about so many bytes without its token.
func event(t interface {
	Helper()
	Fatal(args ...any)
}, size int) []byte {
	t.Helper()
	id := bson.ObjectID{0x65, 0x43, 0x21}
	full := bson.D{{Key: "_id", Value: id}, {Key: "status", Value: "paid"}, {Key: "total", Value: 129.95}, {Key: "items", Value: int32(3)}}
	for i := 0; ; i++ {
		doc := marshal(t, bson.D{
			{Key: "operationType", Value: "insert"}, {Key: "clusterTime", Value: bson.Timestamp{T: 1_700_000_000, I: 12}},
			{Key: "wallTime", Value: bson.DateTime(1_700_000_000_123)}, {Key: "fullDocument", Value: full},
			{Key: "ns", Value: bson.D{{Key: "db", Value: "shop"}, {Key: "coll", Value: "orders"}}}, {Key: "documentKey", Value: bson.D{{Key: "_id", Value: id}}},
		})
		if len(doc) >= size {
			return doc
		}
		switch n := strconv.Itoa(i); i % 4 {
		case 0:
			full = append(full, bson.E{Key: "name" + n, Value: "Grüße aus \"Köln\", Straße " + n})
		case 1:
			full = append(full, bson.E{Key: "address" + n, Value: bson.D{{Key: "street", Value: "12 Long Road"}, {Key: "zip", Value: "50667"}, {Key: "geo", Value: bson.A{50.94, 6.95}}}})
		case 2:
			full = append(full, bson.E{Key: "created" + n, Value: bson.DateTime(1_690_000_000_000 + int64(i))})
		default:
			full = append(full, bson.E{Key: "count" + n, Value: int64(i) * 1000})
		}
	}
}

func BenchmarkAppend(b *testing.B) {
	for _, size := range []int{300, 1000} {
		doc := event(b, size)
		for name, write := range map[string]func(buffer []byte) ([]byte, error){
			"copy": func(buffer []byte) ([]byte, error) { return append(buffer, doc...), nil },
			"ours": func(buffer []byte) ([]byte, error) { return extjson.Append(buffer, doc) },
			"driver": func(buffer []byte) ([]byte, error) {
				text, err := bson.MarshalExtJSON(bson.Raw(doc), false, false)
				return append(buffer, text...), err
			},
		} {
			b.Run(strconv.Itoa(size)+"/"+name, func(b *testing.B) {
				b.SetBytes(int64(len(doc)))
				b.ReportAllocs()
				var buffer []byte
				for b.Loop() {
					var err error
					if buffer, err = write(buffer[:0]); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
