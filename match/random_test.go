package match_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/change/changetest"
	"github.com/mongostream/streamer/match"
)

// A dice picks a number from 0 to n-1: at random, by rapid, or from a fuzzer's bytes.
type dice func(n int) int

func pick[T any](d dice, from ...T) T { return from[d(len(from))] }

// Values that meet: the same numbers in several types, numbers next to each other, and every kind
// that a filter may run into.
func (d dice) value(depth int) any {
	if depth > 0 && d(4) == 0 {
		if d(2) == 0 {
			return d.document(depth - 1)
		}
		list := bson.A{}
		for range d(4) {
			list = append(list, d.value(depth-1))
		}
		return list
	}
	switch d(8) {
	case 0:
		return pick[any](d, nil, bson.Undefined{}, true, false, bson.MinKey{}, bson.Regex{Pattern: "x"}, bson.Timestamp{T: 1, I: 2}, bson.Symbol("x"))
	case 1, 2:
		return pick[any](d, "", "x", "y", "xy", "z")
	case 3:
		return pick[any](d, d.objectID(), time.UnixMilli(int64(d(3))), bson.Binary{Data: []byte("x")}, bson.Binary{Subtype: 4, Data: []byte(strings.Repeat("u", 16))})
	case 4:
		return pick[any](d, int64(math.MaxInt64), int64(math.MinInt64), int64(1<<53+1), float64(1<<53), math.NaN(), math.NaN(), math.Inf(1), math.Copysign(0, -1), float64(1<<63))
	case 5:
		return d.decimal()
	}
	return pick[any](d, int32(0), int32(1), int64(1), 1.0, 1.5, int32(2), int64(-1), 2.0, int32(3))
}

func (d dice) decimal() bson.Decimal128 {
	dec, err := bson.ParseDecimal128(pick(d, "1", "1.0", "1.5", "-1", "0E+10", "9007199254740993", "1E+400", "1E-400", "NaN", "-Infinity", "0.1"))
	if err != nil {
		panic(err)
	}
	return dec
}

func (d dice) objectID() bson.ObjectID { return bson.ObjectID{11: byte(d(3))} }

// names of fields; _id is one of them at every depth.
func (d dice) name() string { return pick(d, "_id", "a", "b", "c") }

func (d dice) document(depth int) bson.D {
	doc := bson.D{}
	for range d(5) {
		doc = append(doc, bson.E{Key: d.name(), Value: d.value(depth)}) // names may come twice
	}
	return doc
}

// event makes an event as MongoDB sends them, and now and then one that it does not send.
func (d dice) event() change.Event {
	ns := func() bson.D { return bson.D{{Key: "db", Value: d.db()}, {Key: "coll", Value: d.coll()}} }
	op := pick(d, "insert", "insert", "update", "replace", "delete", "delete", "drop", "rename", "dropDatabase", "invalidate", "create", change.SkippedName, change.SnapshotName)
	e := bson.D{
		{Key: "_id", Value: bson.Raw(changetest.Token(changetest.Event{}))},
		{Key: "operationType", Value: op}, {Key: "clusterTime", Value: bson.Timestamp{T: 1}},
	}
	switch op {
	case "insert", "replace", "update", change.SnapshotName:
		e = append(e, bson.E{Key: "fullDocument", Value: pick[any](d, d.document(2), d.document(2), d.document(2), nil)}, bson.E{Key: "ns", Value: ns()})
	case "dropDatabase":
		e = append(e, bson.E{Key: "ns", Value: bson.D{{Key: "db", Value: d.db()}}})
	case "invalidate", change.SkippedName:
	case "rename":
		e = append(e, bson.E{Key: "ns", Value: ns()}, bson.E{Key: "to", Value: ns()})
	default:
		e = append(e, bson.E{Key: "ns", Value: ns()})
	}
	if slices.Contains([]string{"insert", "update", "replace", "delete", change.SnapshotName}, op) {
		e = append(e, bson.E{Key: "documentKey", Value: append(bson.D{{Key: "_id", Value: d.value(1)}}, d.document(0)...)})
	}
	if op == "update" && d(5) > 0 {
		e = append(e, bson.E{Key: "updateDescription", Value: bson.D{{Key: "updatedFields", Value: d.document(1)}, {Key: "removedFields", Value: bson.A{"a"}}}})
	}
	if op != "insert" && d(2) == 0 {
		e = append(e, bson.E{Key: "fullDocumentBeforeChange", Value: d.document(2)})
	}
	raw, err := bson.Marshal(e)
	if err != nil {
		panic(err)
	}
	parsed, err := change.Parse(raw)
	if err != nil {
		panic(err)
	}
	return parsed
}

func (d dice) db() string   { return pick(d, "shop", "mail") }
func (d dice) coll() string { return pick(d, "orders", "users") }

func (d dice) constant() string {
	return pick(d, "0", "1", "1.0", "1.5", "2", "-1", "3u", "9007199254740993", "9007199254740992.0", "9223372036854775807", "18446744073709551615u",
		`""`, `"x"`, `"y"`, `"xy"`, `b"x"`, "true", "false", "null",
		`ObjectId("000000000000000000000000")`, `ObjectId("000000000000000000000001")`, `uuid("75757575-7575-7575-7575-757575757575")`,
		`decimal("1")`, `decimal("1.50")`, `decimal("0.1")`, `decimal("1e400")`,
		`timestamp("1970-01-01T00:00:00.001Z")`, `timestamp("1970-01-01T00:00:00.0015Z")`, "[1]", "{\"a\": 1}")
}

func (d dice) field() string {
	var f strings.Builder
	f.WriteString(pick(d, "doc", "doc", "doc", "key", "before", "update", "update.updatedFields"))
	for range 1 + d(2) {
		name := d.name()
		f.WriteString(pick(d, "."+name, "."+name, fmt.Sprintf("[%q]", name)))
	}
	return f.String()
}

// condition is something that is true or false, or fails.
func (d dice) condition() string {
	relation := func() string { return pick(d, "==", "==", "==", "!=", "<", "<=", ">", ">=") }
	switch d(16) {
	case 0:
		return fmt.Sprintf("dyn(%s) %s %s", d.constant(), relation(), d.field())
	case 1, 2:
		constants := make([]string, d(4))
		for i := range constants {
			constants[i] = "dyn(" + d.constant() + ")"
			if d(4) > 0 {
				constants[i] = d.constant()
			}
		}
		return fmt.Sprintf("%s in [%s]", d.field(), strings.Join(constants, ", "))
	case 3:
		return fmt.Sprintf("op %s %q", pick(d, "==", "!="), pick(d, "insert", "update", "delete", "drop"))
	case 4:
		return pick(d, `ns.coll == "orders"`, `ns.db == "shop"`, `ns.coll in ["orders", "x"]`, `ns.db != "mail"`, `op in ["insert", "delete"]`)
	case 5:
		return fmt.Sprintf("has(%s.%s)", d.field(), d.name())
	case 6:
		return fmt.Sprintf("%s %s %s", d.field(), pick(d, "==", "!="), d.field())
	case 7:
		return pick(d, "size(%[1]s) > 1", "%[1]s.exists(i, i == 1)", "%[1]s.all(i, i > 0)", "%[1]s", `string(%[1]s).matches("^x")`, "1 in %[1]s", "%[1]s[0] == 1",
			"type(%[1]s) == int", "%[1]s + 1 == 2", "doc == before", "%[1]s.map(x, x).size() == 1", `"a" in %[1]s`)
	case 8:
		return fmt.Sprintf("%s >= %s && %[1]s < %[3]s", d.field(), d.number(), d.number())
	}
	return fmt.Sprintf("%s %s %s", d.field(), relation(), d.constant())
}

func (d dice) number() string { return pick(d, "0", "1", "1.5", "2", `decimal("1")`, "3") }

func (d dice) source(depth int) string {
	if depth == 0 || d(5) < 3 {
		c := d.condition()
		if strings.Contains(c, "%[1]s") {
			return fmt.Sprintf(c, d.field())
		}
		return c
	}
	a, b := d.source(depth-1), d.source(depth-1)
	switch d(8) {
	case 0:
		return "!(" + a + ")"
	case 1, 2:
		return "(" + a + " || " + b + ")"
	case 3:
		return "(" + a + " ? " + b + " : " + d.source(depth-1) + ")"
	}
	return a + " && " + b
}

func (d dice) filter() match.Filter {
	f := match.Filter{
		Source: d.source(2), DB: pick(d, "", "shop", "shop"), Coll: pick(d, "", "", "orders"),
		Deletes: pick(d, match.DeletesAll, match.DeletesAll, match.DeletesNone, match.DeletesBefore),
		Carries: match.Carries{Document: true, Before: true},
	}
	if d(10) == 0 {
		f.Source = ""
	}
	if d(5) == 0 {
		f.Ops = []change.Op{change.OpInsert, pick(d, change.OpDelete, change.OpDrop, change.OpUpdate)}
	}
	return f
}

func bsonString(raw []byte) string { return bson.Raw(raw).String() }
