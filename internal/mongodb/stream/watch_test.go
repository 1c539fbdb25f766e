package stream

import (
	"testing"

	"github.com/mongostream/streamer/change"
)

// What is covered is what can be subscribed to and read. MongoDB's own and our own are never, also
// where everything is watched.
func TestWhatAWatchCovers(t *testing.T) {
	all := Watch{Exclude: "streamer"}
	some := Watch{Exclude: "streamer", Namespaces: []string{"shop.orders", "shop.a.b", "crm.*", "streamer.*", "admin.*"}}
	ns := func(db, coll string) change.Namespace { return change.Namespace{DB: db, Coll: coll} }
	for of, want := range map[change.Namespace]struct{ all, some bool }{
		{}:                        {true, true},
		ns("shop", "orders"):      {true, true},
		ns("shop", "a.b"):         {true, true},
		ns("shop", ""):            {true, true},
		ns("", "orders"):          {true, true},
		ns("crm", "leads"):        {true, true},
		ns("crm", "system.views"): {false, false},
		ns("", "system.users"):    {false, false},
		ns("shop", "a"):           {true, false},
		ns("shop", "orders2"):     {true, false},
		ns("shop.a", "b"):         {true, false},
		ns("shop", "*"):           {true, false},
		ns("other", ""):           {true, false},
		ns("admin", ""):           {false, false},
		ns("admin", "x"):          {false, false},
		ns("config", "chunks"):    {false, false},
		ns("local", "oplog.rs"):   {false, false},
		ns("streamer", "marks"):   {false, false},
		ns("streamer", ""):        {false, false},
	} {
		if got := all.Covers(of); got != want.all {
			t.Errorf("everything watched, %+v: %v", of, got)
		}
		if got := some.Covers(of); got != want.some {
			t.Errorf("%v, %+v: %v", some.Namespaces, of, got)
		}
	}
	if !(Watch{}).Covers(ns("streamer", "x")) {
		t.Error("nothing is excluded, and streamer.x is not covered")
	}
}
