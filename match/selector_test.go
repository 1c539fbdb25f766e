package match_test

import (
	"testing"

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
