package match_test

import (
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/change/changetest"
	"github.com/mongostream/streamer/match"
)

func TestSelector(t *testing.T) {
	insert := changetest.Event{DB: "shop", Coll: "orders"}
	drop := changetest.Event{DB: "shop", Coll: "orders", Op: "drop", Keyless: true}
	for name, c := range map[string]struct {
		selector match.Selector
		event    changetest.Event
		want     bool
	}{
		"everything":                 {match.Selector{}, insert, true},
		"its namespace":              {match.Selector{DB: "shop", Coll: "orders"}, insert, true},
		"its database":               {match.Selector{DB: "shop"}, insert, true},
		"another database":           {match.Selector{DB: "shoe"}, insert, false},
		"another collection":         {match.Selector{DB: "shop", Coll: "order"}, insert, false},
		"its operation":              {match.Selector{Ops: []change.Op{change.OpInsert}}, insert, true},
		"other operations":           {match.Selector{Ops: []change.Op{change.OpDelete, change.OpUpdate}}, insert, false},
		"collection-level":           {match.Selector{DB: "shop", Coll: "orders"}, drop, true},
		"collection-level, ops only": {match.Selector{Ops: []change.Op{change.OpInsert}}, drop, false},
	} {
		e, err := change.Parse(c.event.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		if got := c.selector.Selects(&e); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestUnknownOperationIsRefused(t *testing.T) {
	if _, err := match.ParseOps([]string{"insert", "upsert"}); err == nil {
		t.Error("upsert is accepted")
	}
}

// A filter for a document matches changes of every _id that MongoDB considers equal, and those of
// its whole collection; the index and the program agree.
func TestFilterForADocument(t *testing.T) {
	t.Parallel()
	of := func(e changetest.Event) change.Event {
		parsed, err := change.Parse(e.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		return parsed
	}
	event := func(id any) change.Event {
		raw, err := bson.Marshal(bson.D{
			{Key: "_id", Value: bson.Raw(changetest.Token(changetest.Event{}))}, {Key: "operationType", Value: "delete"}, {Key: "clusterTime", Value: bson.Timestamp{T: 1, I: 1}},
			{Key: "ns", Value: bson.D{{Key: "db", Value: "shop"}, {Key: "coll", Value: "orders"}}}, {Key: "documentKey", Value: bson.D{{Key: "_id", Value: id}}},
		})
		if err != nil {
			t.Fatal(err)
		}
		e, err := change.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	five := event(5)
	program, err := match.Compile(match.Filter{DB: "shop", Coll: "orders", Document: string(change.AppendCanonical(nil, five.ID()))})
	if err != nil {
		t.Fatal(err)
	}
	var index match.Index
	index.Add(1, program)
	for name, c := range map[string]struct {
		event change.Event
		want  bool
	}{
		"int": {five, true}, "long": {event(int64(5)), true}, "double": {event(5.0), true}, "another": {event(6), false}, "text": {event("5"), false},
		"drop":      {of(changetest.Event{DB: "shop", Coll: "orders", Op: "drop", Keyless: true}), true},
		"elsewhere": {of(changetest.Event{DB: "shop", Coll: "people", ID: 5}), false},
	} {
		got, err := program.Match(&c.event)
		if err != nil || got != c.want || (len(index.Match(&c.event, nil, nil)) == 1) != c.want {
			t.Errorf("%s: %v, %v", name, got, err)
		}
		if holds, err := program.Holds(&c.event); err != nil || holds != c.want {
			t.Errorf("%s: holds %v, %v", name, holds, err)
		}
	}
}
