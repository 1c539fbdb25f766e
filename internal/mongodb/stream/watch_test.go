package stream

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/change/changetest"
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

// What was retained while more was watched is not kept.
func TestKeepsOnlyWhatIsWatched(t *testing.T) {
	for _, c := range []struct {
		watch Watch
		want  string
	}{
		{Watch{}, "insert shop.orders, update shop.orders, insert crm.leads, insert marks.m"},
		{Watch{Namespaces: []string{"shop.*"}}, "insert shop.orders, update shop.orders"},
		{Watch{Namespaces: []string{"crm.leads"}}, "insert crm.leads"},
		{Watch{Operations: []string{"insert"}}, "insert shop.orders, insert crm.leads, insert marks.m"},
		{Watch{Exclude: "marks"}, "insert shop.orders, update shop.orders, insert crm.leads"},
	} {
		keeps, kept := c.watch.Exact(), []string(nil)
		for _, e := range []changetest.Event{
			{DB: "shop", Coll: "orders", ID: 1}, {DB: "shop", Coll: "orders", ID: 1, Op: "update"},
			{DB: "crm", Coll: "leads", ID: 2}, {DB: "marks", Coll: "m", ID: 3},
		} {
			parsed, err := change.Parse(e.Bytes())
			if err != nil {
				t.Fatal(err)
			}
			if keeps(&parsed) {
				kept = append(kept, fmt.Sprintf("%s %s", parsed.Op(), parsed.Namespace()))
			}
		}
		if got := strings.Join(kept, ", "); got != c.want {
			t.Errorf("%+v keeps %s", c.watch, got)
		}
		if single := slices.Contains(c.watch.Namespaces, "crm.leads"); (c.watch.Keeps() != nil) != single {
			t.Errorf("%+v: the node filters each change although the server has, or does not", c.watch)
		}
	}
}
