package match_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/change/changetest"
	"github.com/mongostream/streamer/match"
)

// parse makes an event of its fields, with a token.
func parse(t testing.TB, fields bson.D) *change.Event {
	t.Helper()
	raw, err := bson.Marshal(append(bson.D{{Key: "_id", Value: bson.Raw(changetest.Token(changetest.Event{}))}}, fields...))
	if err != nil {
		t.Fatal(err)
	}
	e, err := change.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	return &e
}

// event makes an event of shop.orders; doc and before may be nil.
func event(op string, id any, doc, before any) *change.Event {
	fields := bson.D{{Key: "_id", Value: bson.Raw(changetest.Token(changetest.Event{}))}, {Key: "operationType", Value: op}}
	if doc != nil {
		fields = append(fields, bson.E{Key: "fullDocument", Value: doc})
	}
	fields = append(fields, bson.E{Key: "ns", Value: bson.D{{Key: "db", Value: "shop"}, {Key: "coll", Value: "orders"}}},
		bson.E{Key: "documentKey", Value: bson.D{{Key: "_id", Value: id}}})
	if before != nil {
		fields = append(fields, bson.E{Key: "fullDocumentBeforeChange", Value: before})
	}
	raw, err := bson.Marshal(fields)
	if err != nil {
		panic(err)
	}
	e, err := change.Parse(raw)
	if err != nil {
		panic(err)
	}
	return &e
}

// TestTableOfTypes says what docs/filters.md says.
func TestTableOfTypes(t *testing.T) {
	decimal := func(s string) bson.Decimal128 {
		d, err := bson.ParseDecimal128(s)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	id := bson.ObjectID{1, 2, 3}
	const noMeaning = "has no meaning"
	for _, c := range []struct {
		value   any // of doc.a; a type of missing{} leaves it out
		source  string
		want    bool
		failure string
	}{
		// Numbers are one, whatever their type.
		{int32(5), "doc.a == 5", true, ""}, {int64(5), "doc.a == 5.0", true, ""}, {5.0, "doc.a == 5", true, ""}, {decimal("5.0"), "doc.a == 5", true, ""},
		{5.5, "doc.a > 5 && doc.a < 6", true, ""}, {int32(5), "doc.a < 5.1", true, ""}, {decimal("5.1"), `doc.a > 5 && doc.a == decimal("5.10")`, true, ""},
		{int64(1<<53 + 1), "doc.a == 9007199254740992.0", false, ""}, {int64(1<<53 + 1), "doc.a > 9007199254740992.0", true, ""},
		{int64(math.MaxInt64), "doc.a < 9223372036854775808.0", true, ""}, {decimal("0.1"), "doc.a == 0.1", false, ""}, {decimal("0.1"), "doc.a < 0.1", true, ""},
		{0.1, "doc.a == 0.1", true, ""}, {decimal("18446744073709551615"), "doc.a == 18446744073709551615u", true, ""},
		{math.NaN(), "doc.a == doc.a", false, ""}, {math.NaN(), "doc.a < 1 || doc.a >= 1", false, ""}, {decimal("NaN"), "doc.a != 1", true, ""},
		{math.Inf(1), `doc.a > decimal("1e6000")`, true, ""}, {decimal("1E+6000"), "doc.a > 1e308", true, ""}, {decimal("1E-6000"), "doc.a > 0", true, ""},
		{decimal("-1E-6000"), "doc.a < 0.0", true, ""}, {int32(3), "doc.a + 1 == 4", true, ""}, {int32(3), "doc.a + 1.5 == 4.5", false, "no such overload"},
		{decimal("2.5"), "double(doc.a) + 1.0 == 3.5", true, ""}, {decimal("-12.50"), `string(doc.a) == "-1250E-2"`, true, ""},
		// Strings, with symbols.
		{"b", `doc.a > "a"`, true, ""}, {bson.Symbol("x"), `doc.a == "x"`, true, ""}, {"x", `doc.a.startsWith("x")`, true, ""}, {"5", "doc.a == 5", false, ""},
		{"5", "doc.a > 5", false, noMeaning}, {"x1", `doc.a.matches("^x[0-9]$")`, true, ""}, {5, `doc.a.matches("5")`, false, "takes a string"},
		// Null, undefined and missing.
		{nil, "doc.a == null", true, ""}, {missing{}, "doc.a == null", true, ""}, {bson.Undefined{}, "doc.a == null", true, ""},
		{nil, "has(doc.a)", true, ""}, {missing{}, "has(doc.a)", false, ""}, {missing{}, "doc.a == 5", false, ""}, {missing{}, "doc.a != 5", true, ""},
		{nil, "doc.a < 5 || doc.a >= 5", false, ""}, {missing{}, "doc.a.b.c == null", true, ""}, {missing{}, "has(doc.a.b)", false, ""}, {missing{}, "doc.a in [1, null]", true, ""},
		{missing{}, "1 in doc.a", false, ""}, {missing{}, "doc.a.exists(x, x == 1)", false, ""}, {missing{}, "doc.a.all(x, x == 1)", true, ""}, {missing{}, "size(doc.a) == 0", false, "no such overload"},
		// ObjectIds, dates, booleans, binary data.
		{id, `doc.a == ObjectId("010203000000000000000000")`, true, ""}, {id, `doc.a == "010203000000000000000000"`, false, ""}, {id, `string(doc.a) == "010203000000000000000000"`, true, ""},
		{id, `doc.a > ObjectId("000000000000000000000000")`, true, ""}, {id, `doc.a > 5`, false, noMeaning},
		{time.UnixMilli(1500), `doc.a == timestamp("1970-01-01T00:00:01.5Z")`, true, ""}, {time.UnixMilli(1500), `doc.a < timestamp("1970-01-01T00:00:01.5000001Z")`, true, ""},
		{time.UnixMilli(1500), "doc.a.getMilliseconds() == 500", true, ""}, {time.UnixMilli(1500), "doc.a > 5", false, noMeaning},
		{true, "doc.a == true", true, ""}, {true, "doc.a && true", true, ""}, {missing{}, "doc.a && true", false, "no such overload"}, {true, "doc.a == 1", false, ""},
		{bson.Binary{Data: []byte("ab")}, `doc.a == b"ab" && doc.a > b"aa" && size(doc.a) == 2`, true, ""},
		{bson.Binary{Subtype: 4, Data: []byte(strings.Repeat("u", 16))}, `doc.a == uuid("75757575-7575-7575-7575-757575757575")`, true, ""},
		{bson.Binary{Subtype: 4, Data: []byte(strings.Repeat("u", 16))}, `string(doc.a) == "75757575-7575-7575-7575-757575757575"`, true, ""},
		{bson.Binary{Subtype: 3, Data: []byte(strings.Repeat("u", 16))}, `doc.a == uuid("75757575-7575-7575-7575-757575757575")`, true, ""},
		{bson.Binary{Subtype: 3, Data: []byte(strings.Repeat("u", 16))}, `doc.a in [uuid("75757575-7575-7575-7575-757575757575"), uuid("00000000-0000-0000-0000-000000000000")]`, true, ""},
		{bson.Binary{Subtype: 3, Data: []byte(strings.Repeat("u", 16))}, `doc.a != uuid("75757575-7575-7575-7575-757575757575")`, false, ""},
		{bson.Binary{Subtype: 3, Data: []byte("ab")}, `doc.a == uuid("75757575-7575-7575-7575-757575757575")`, false, ""},
		{bson.Binary{Subtype: 5, Data: []byte(strings.Repeat("u", 16))}, `doc.a == uuid("75757575-7575-7575-7575-757575757575")`, false, ""},
		{bson.Binary{Subtype: 4, Data: []byte("ab")}, `doc.a == b"ab"`, false, ""}, {bson.Binary{Subtype: 4, Data: []byte("ab")}, `doc.a > b"aa"`, false, noMeaning},
		{bson.Regex{Pattern: "a"}, "doc.a == doc.a", true, ""}, {bson.Timestamp{T: 1}, "doc.a > doc.a", false, noMeaning}, {bson.MinKey{}, "doc.a == 1", false, ""},
		// Arrays and documents.
		{bson.A{1, 2}, "2 in doc.a", true, ""}, {bson.A{1, "2"}, "doc.a == [1.0, '2']", true, ""}, {bson.A{1, 2}, "doc.a == 1", false, ""}, {bson.A{1, 2}, "doc.a[1] == 2", true, ""},
		{bson.A{1, 2}, "doc.a[2] == 2", false, "index out of bounds"}, {bson.A{1, 2}, "size(doc.a) == 2 && doc.a.exists(x, x == 2) && !doc.a.all(x, x == 2)", true, ""},
		{bson.A{1, 2}, "doc.a > 1", false, noMeaning}, {bson.A{bson.D{{Key: "b", Value: 1}}}, "doc.a.b == 1", false, "STRM-FILTER-EVALUATION"}, {bson.A{1}, "doc.a + [2] == [1, 2]", true, ""},
		{bson.A{1, 2, 3}, "doc.a.filter(x, x > 1).map(x, x * 2) == [4, 6]", true, ""}, {5, "1 in doc.a", false, "number in number"},
		{bson.D{{Key: "b", Value: 1}}, "doc.a.b == 1 && doc.a['b'] == 1 && has(doc.a.b)", true, ""}, {bson.D{{Key: "b", Value: 1}}, `"b" in doc.a && !("c" in doc.a)`, true, ""},
		{bson.D{{Key: "b", Value: 1}, {Key: "c", Value: nil}}, `doc.a == {"c": null, "b": 1}`, true, ""}, {bson.D{{Key: "b", Value: 1}}, `doc.a == {"c": null}`, false, ""},
		{bson.D{{Key: "b", Value: 1}}, `doc.a.exists(k, k == "b")`, true, ""}, {5, "doc.a.b == 1", false, "b"}, {5, "has(doc.a.b)", false, `no field "b" in number`}, {"x", "doc.a.b.c < 1", false, "b"},
		// Values that no field has.
		{bson.A{1}, "doc.a == string || doc.a in [int]", false, ""}, {bson.D{}, `doc.a == duration("1s")`, false, ""}, {id, `doc.a == type(doc.a)`, false, ""}, {missing{}, "doc.a == int", false, ""},
		{1, `duration("1s") != doc.a && int != doc.a && type(doc.a) == int`, true, ""}, {id, `duration("1s") < doc.a`, false, noMeaning}, {missing{}, `duration("1s") < doc.a`, false, ""},
		{id, `doc.a in {"a": 1}`, false, ""}, {"a", `doc.a in {"a": 1}`, true, ""}, {id, `{"a": 1}[doc.a] == 1`, false, "STRM-FILTER-EVALUATION"},
		// What doc is, and what it is not.
		{1, "type(doc.a) == int && type(doc.b) == null_type", true, ""}, {1, `op == "insert" && ns.db == "shop" && ns.coll == "orders" && key._id == 7 && doc._id == 7`, true, ""},
		{1, "before.a == null && update.updatedFields == null", true, ""},
	} {
		doc := bson.D{{Key: "_id", Value: 7}}
		if _, left := c.value.(missing); !left {
			doc = append(doc, bson.E{Key: "a", Value: c.value})
		}
		expect(t, match.Filter{Source: c.source, Carries: everything()}, event("insert", 7, doc, nil), c.want, c.failure)
	}
}

// missing stands for a field that is not there.
type missing struct{}
