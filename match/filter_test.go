package match_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/match"
	"github.com/mongostream/streamer/match/expr"
)

func everything() match.Carries { return match.Carries{Document: true, Before: true} }

func TestBadFiltersAreRefused(t *testing.T) {
	long := strings.Repeat(" ", match.MaxSource) + "true"
	deep := strings.Repeat("(", 200) + "true" + strings.Repeat(")", 200)
	lists := "doc.a == " + strings.Repeat("[", 100) + strings.Repeat("]", 100)
	sum := "1" + strings.Repeat("+1", 1500) + " == 1"
	bomb := "[1,2].all(a, [1,2].all(b, [1,2].all(c, [1,2].all(d, true))))"
	for name, c := range map[string]struct {
		source string
		code   fault.Code
		text   string
	}{
		"syntax":            {"doc.a ==", fault.FilterInvalid, "line 1, column 9"},
		"second line":       {"doc.a == 1 &&\n  doc.b = 2", fault.FilterInvalid, "line 2, column 9"},
		"unknown variable":  {"dok.a == 1", fault.FilterInvalid, "line 1, column 1: undeclared reference to 'dok'"},
		"unknown name":      {`ns.collection == "a"`, fault.FilterInvalid, "undeclared reference"},
		"unknown function":  {"doc.a.lower() == 'a'", fault.FilterInvalid, "undeclared reference to 'lower'"},
		"types":             {"op == 1", fault.FilterInvalid, "no matching overload"},
		"document as value": {"doc > 1", fault.FilterInvalid, "no matching overload"},
		"not a condition":   {"doc.a", fault.FilterInvalid, "the filter has the type dyn; it must be true or false"},
		"a number":          {"1", fault.FilterInvalid, "the filter has the type int"},
		"hidden variable":   {"doc.a.exists(doc, doc._id == 1)", fault.FilterInvalid, `the name "doc"`},
		"bad ObjectId":      {`key._id == ObjectId("42")`, fault.FilterInvalid, "line 1, column 20: an ObjectId is 24 hexadecimal digits"},
		"bad UUID":          {`key._id == uuid("42")`, fault.FilterInvalid, "a UUID is 32 hexadecimal digits"},
		"bad decimal":       {`doc.a == decimal("1,5")`, fault.FilterInvalid, "not a number of at most 34 digits"},
		"bad timestamp":     {`doc.a > timestamp("yesterday")`, fault.FilterInvalid, "line 1, column 19"},
		"keys of bytes":     {`doc.a in {b"x": 1}`, fault.FilterInvalid, "line 1, column 11: a map key"},
		"computed keys":     {`{key._id: 1} == {"x": doc.a}`, fault.FilterInvalid, "a map key must be a string, an int or a bool, not a dyn"},
		"broken constant":   {`doc.a == int("x")`, fault.FilterInvalid, "line 1, column"},
		"bad has":           {`has(doc)`, fault.FilterInvalid, "has() takes a field"},
		"bad path":          {`changed("")`, fault.FilterInvalid, "changed() takes the path of a field"},
		"computed path":     {`changed(op)`, fault.FilterInvalid, "changed() takes the path of a field"},
		"bad pattern":       {`doc.a.matches("(")`, fault.FilterInvalid, "missing closing )"},
		"large pattern":     {`doc.a.matches("(((a{10}){10}){10}){10}")`, fault.FilterInvalid, ""},
		"huge pattern":      {`doc.a.matches("a{900}b{900}")`, fault.FilterInvalid, "at most 1000"},
		"computed pattern":  {`doc.a.matches(doc.b)`, fault.FilterInvalid, "the pattern of matches() must be a literal"},
		"global pattern":    {`matches(doc.a, doc.b)`, fault.FilterInvalid, "the pattern of matches() must be a literal"},
		"nested":            {deep, fault.FilterInvalid, ""},
		"nested lists":      {lists, fault.FilterInvalid, ""},
		"many terms":        {sum, fault.FilterInvalid, ""},
		"nested macros":     {bomb, fault.FilterInvalid, "comprehension"},
		"long":              {long, fault.FilterTooLarge, "4100 bytes, at most 4096"},
		"zero bytes":        {"\x00\xff", fault.FilterInvalid, ""},
	} {
		_, err := match.Compile(match.Filter{Source: c.source, Carries: everything()})
		if fault.Of(err) != c.code || !strings.Contains(fmt.Sprint(err), c.text) {
			t.Errorf("%s: %v, want %s … %s", name, err, c.code, c.text)
		}
		if place, ok := errors.AsType[*expr.SourceError](err); c.code == fault.FilterInvalid && (!ok || place.Line < 1 || place.Column < 1) {
			t.Errorf("%s: no place: %v", name, err)
		}
	}
}

func TestWhatTheStreamDoesNotCarryIsRefused(t *testing.T) {
	update, insert := []change.Op{change.OpUpdate}, []change.Op{change.OpInsert}
	none, document := match.Carries{}, match.Carries{Document: true}
	for _, c := range []struct {
		filter match.Filter
		want   fault.Code
	}{
		{match.Filter{Source: "doc.a == 1"}, fault.FilterNeedsDoc},
		{match.Filter{Source: "doc.a == 1", Carries: document}, ""},
		{match.Filter{Source: "doc.a == 1", Ops: update}, fault.FilterNeedsDoc},
		{match.Filter{Source: "doc.a == 1", Ops: insert}, ""},
		{match.Filter{Source: `op == "insert" && doc.a == 1`}, ""},
		{match.Filter{Source: `op != "update" && doc.a == 1`}, ""},
		{match.Filter{Source: `op in ["insert", "replace"] && doc.a == 1`}, ""},
		{match.Filter{Source: `op in ["insert", "update"] && doc.a == 1`}, fault.FilterNeedsDoc},
		{match.Filter{Source: `op == "update" || doc.a == 1`}, ""},
		{match.Filter{Source: `!(op == "update") && doc.a == 1`}, ""},
		{match.Filter{Source: `op == "update" ? has(update.updatedFields.a) : doc.a == 1`}, ""},
		{match.Filter{Source: `key.a == 1 ? doc.a == 1 : false`}, fault.FilterNeedsDoc},
		{match.Filter{Source: `true || doc.a == 1`}, ""},
		{match.Filter{Source: "doc._id == 1"}, ""},
		{match.Filter{Source: `doc["_id"] == 1`}, fault.FilterNeedsDoc},
		{match.Filter{Source: "key._id == 1 && has(update.updatedFields.a)"}, ""},
		{match.Filter{Source: "before.a == 1", Carries: document}, fault.FilterNeedsBefore},
		{match.Filter{Source: "before.a == 1", Ops: insert}, ""},
		{match.Filter{Source: "before.a == 1", Carries: everything()}, ""},
		{match.Filter{Source: `op == "delete" && before.a == 1`}, fault.FilterNeedsBefore},
		{match.Filter{Source: `op == "delete" && before.a == 1`, Deletes: match.DeletesNone}, ""},
		{match.Filter{Deletes: match.DeletesBefore, Carries: document}, fault.FilterNeedsBefore},
		{match.Filter{Source: "doc.a == 1", Deletes: match.DeletesBefore, Carries: everything()}, ""},
		{match.Filter{Carries: none}, ""},
	} {
		if _, err := match.Compile(c.filter); fault.Of(err) != c.want || err != nil && c.want == "" {
			t.Errorf("%+v: %v, want %q", c.filter, err, c.want)
		}
	}
}

// A delete tells only its key: who cannot tell from it gets it.
func TestDeletesFollowTheirPolicy(t *testing.T) {
	open := bson.D{{Key: "_id", Value: 7}, {Key: "status", Value: "open"}}
	bare, imaged := event("delete", 7, nil, nil), event("delete", 7, nil, open)
	for _, c := range []struct {
		source                    string
		all, none, before, imaged bool // for a delete without an image, and at last of DeletesBefore with one
	}{
		{`doc.status == "open"`, true, false, true, true},
		{`doc.status == "shut"`, true, false, true, false},
		{`doc.status != "open"`, true, false, true, false},
		{`has(doc.status)`, true, false, true, true},
		{`doc.tags.exists(t, t == "a")`, true, false, true, false},
		{`size(doc.status) > 9`, true, false, true, false},
		{`doc == before`, true, false, true, true},
		{`doc._id == 7 && doc.status == "shut"`, true, false, true, false},
		{`doc._id == 8`, false, false, false, false},
		{`key._id == 7 && doc.status == "open"`, true, false, true, true},
		{`key._id == 8 && doc.status == "open"`, false, false, false, false},
		{`op == "insert" && doc.status == "open"`, false, false, false, false},
		{`op == "delete"`, true, false, true, true},
		{`ns.coll == "users" && doc.status == "open"`, false, false, false, false},
		{`update.updatedFields.a == 1`, false, false, false, false},
		{``, true, false, true, true},
	} {
		for policy, want := range map[match.Deletes]bool{match.DeletesAll: c.all, match.DeletesNone: c.none, match.DeletesBefore: c.before} {
			expect(t, match.Filter{Source: c.source, Deletes: policy, Carries: everything()}, bare, want, "")
		}
		expect(t, match.Filter{Source: c.source, Deletes: match.DeletesBefore, Carries: everything()}, imaged, c.imaged, "")
		expect(t, match.Filter{Source: c.source, DB: "mail", Carries: everything()}, bare, false, "")
	}
}

// What may be meant is delivered: events of whole collections, and updates whose document is gone.
func TestWhatCannotBeKnownIsDelivered(t *testing.T) {
	gone := event("update", 7, nil, nil)
	drop := parse(t, bson.D{{Key: "operationType", Value: "drop"}, {Key: "ns", Value: bson.D{{Key: "db", Value: "shop"}, {Key: "coll", Value: "orders"}}}})
	dropDB := parse(t, bson.D{{Key: "operationType", Value: "dropDatabase"}, {Key: "ns", Value: bson.D{{Key: "db", Value: "shop"}}}})
	invalidate := parse(t, bson.D{{Key: "operationType", Value: "invalidate"}})
	rename := parse(t, bson.D{
		{Key: "operationType", Value: "rename"}, {Key: "ns", Value: bson.D{{Key: "db", Value: "shop"}, {Key: "coll", Value: "new"}}},
		{Key: "to", Value: bson.D{{Key: "db", Value: "shop"}, {Key: "coll", Value: "orders"}}},
	})
	skipped := parse(t, bson.D{{Key: "operationType", Value: change.SkippedName}})
	for _, c := range []struct {
		source                                          string
		gone, drop, dropDB, invalidate, rename, skipped bool
	}{
		{`doc.a == 1`, true, true, true, true, true, true},
		{`key._id == 8`, false, true, true, true, true, true},
		{`ns.coll == "orders" && doc.a == 1`, true, true, true, true, true, true},
		{`ns.coll == "users" && doc.a == 1`, false, false, true, true, false, true},
		{`ns.coll == "new"`, false, false, true, true, true, true},
		{`op == "drop"`, false, true, false, false, false, true},
		{`op == "insert" && doc.a == 1`, false, false, false, false, false, true},
	} {
		for e, want := range map[*change.Event]bool{gone: c.gone, drop: c.drop, dropDB: c.dropDB, invalidate: c.invalidate, rename: c.rename, skipped: c.skipped} {
			expect(t, match.Filter{Source: c.source, Carries: everything()}, e, want, "")
		}
	}
	expect(t, match.Filter{Source: "doc.a == 1", Ops: []change.Op{change.OpInsert}, Carries: everything()}, drop, false, "")
}

// A document of a snapshot is the outcome of operations that nobody knows any more.
func TestDocumentsOfSnapshotsMatchWhateverTheOperation(t *testing.T) {
	doc, err := bson.Marshal(bson.D{{Key: "_id", Value: 7}, {Key: "a", Value: 1}})
	if err != nil {
		t.Fatal(err)
	}
	e, err := change.Snapshotted(change.Namespace{DB: "shop", Coll: "orders"}, doc, change.Timestamp{T: 9, I: 1})
	if err != nil {
		t.Fatal(err)
	}
	for source, want := range map[string]bool{
		``: true, `doc.a == 1`: true, `doc.a == 2`: false, `op == "insert" && doc.a == 1`: true, `op == "delete"`: true, `op == "insert" && doc.a == 2`: false,
		`before.a != doc.a`: true, `key._id == 7`: true, `key._id == 8`: false, `ns.coll == "users"`: false,
	} {
		expect(t, match.Filter{Source: source, Carries: everything()}, &e, want, "")
	}
	expect(t, match.Filter{Ops: []change.Op{change.OpDelete}, Carries: everything()}, &e, true, "")
	expect(t, match.Filter{DB: "other", Carries: everything()}, &e, false, "")
}

// expect asks a filter in all ways: alone, in CEL, and through an index. failure is part of the
// error's text, empty where there is none.
func expect(t *testing.T, f match.Filter, e *change.Event, want bool, failure string) {
	t.Helper()
	p, err := match.Compile(f)
	if err != nil {
		t.Errorf("%q: %v", f.Source, err)
		return
	}
	var index match.Index
	index.Add(5, p)
	var failed error
	ids := index.Match(e, nil, match.Report(func(_ match.ID, err error) { failed = err }))
	alone, aloneErr := p.Match(e)
	inCEL, inCELErr := p.MatchInCEL(e)
	for way, got := range map[string]struct {
		matched bool
		err     error
	}{"index": {len(ids) == 1, failed}, "alone": {alone, aloneErr}, "in CEL": {inCEL, inCELErr}} {
		if got.matched != want || (got.err != nil) != (failure != "") || failure != "" && !strings.Contains(got.err.Error(), failure) {
			t.Errorf("%s: %q (%v) on %s: %v, %v; want %v, %q", way, f.Source, f.Deletes, e.OpName(), got.matched, got.err, want, failure)
		}
	}
}
