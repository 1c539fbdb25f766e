package delivery

import (
	"fmt"
	"slices"
	"testing"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/gap"
	"github.com/mongostream/streamer/match"
	"github.com/mongostream/streamer/oplog"
)

// A loss has those collections read again that it concerns and a subscription wants: all of them,
// or the configured ones.
func TestRecoveryReadsWhatIsConcerned(t *testing.T) {
	orders, other := change.Namespace{DB: "shop", Coll: "orders"}, change.Namespace{DB: "lab", Coll: "samples"}
	for _, c := range []struct {
		filter  match.Filter
		recover bool
		lost    []string
		want    string
	}{
		{match.Filter{}, true, nil, "everything"},
		{match.Filter{}, true, []string{"shop.*"}, "everything"},
		{match.Filter{DB: "shop", Coll: "orders"}, true, []string{"shop.*"}, "everything"},
		{match.Filter{DB: "lab"}, true, []string{"shop.*"}, "nothing"},
		{match.Filter{}, true, []string{"shop.carts"}, "[shop.carts]"},
		{match.Filter{DB: "lab"}, true, []string{"shop.carts"}, "nothing"},
		{match.Filter{}, false, nil, "[shop.orders lab.samples]"},
		{match.Filter{}, false, []string{"shop.*"}, "[shop.orders]"},
		{match.Filter{}, false, []string{"shop.carts"}, "nothing"},
		{match.Filter{}, false, []string{"shop.carts", "lab.samples"}, "[lab.samples]"},
		{match.Filter{DB: "shop", Coll: "carts"}, false, nil, "nothing"},
		{match.Filter{DB: "shop", Coll: "orders"}, false, nil, "[shop.orders]"},
		{match.Filter{DB: "shop", Coll: "orders", Document: "5"}, false, nil, "nothing"},
		{match.Filter{DB: "shop", Coll: "orders", Document: "5"}, false, []string{"shop.orders"}, "nothing"},
		{match.Filter{DB: "shop", Coll: "orders", Document: "5"}, true, nil, "everything"},
	} {
		program, err := match.Compile(c.filter)
		if err != nil {
			t.Fatal(err)
		}
		h := New(Config{Partitions: 1, Recover: []change.Namespace{orders, other}}, nil)
		sub := &Subscription{ID: "a", Program: program, Recover: c.recover}
		s := &stream{Session: &Session{hub: h, part: h.memory.Enter("", func() {}), received: make(chan struct{}, 1)}, byKey: map[match.ID]*Subscription{1: sub}}
		sub.session, sub.stream = s.Session, s
		s.startAt(Place{}, nil, 0)
		s.recover(&oplog.Loss{Reason: gap.HistoryLost, Namespaces: c.lost})
		got := "nothing"
		if p := sub.progress(); p != nil && !p.Listed {
			got = "everything"
		} else if p != nil {
			var names []string
			for _, l := range p.Left {
				names = append(names, l.Namespace.String())
			}
			got = fmt.Sprint(slices.Compact(names))
		}
		if got != c.want {
			t.Errorf("%s.%s, recover %v: of %v %s is read, want %s", c.filter.DB, c.filter.Coll, c.recover, c.lost, got, c.want)
		}
	}
}
