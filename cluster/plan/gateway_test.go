package plan_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/cluster/plan"
	"github.com/mongostream/streamer/notice"
)

// Gateways that fail and pass their checks all the time, and come under ever new names, do not keep
// the planner from its work, nor operators from reading.
func TestNoticesAboutGatewaysAreBounded(t *testing.T) {
	w := three(t, 12)
	plans, began := len(w.plans), w.now
	for round := range 20 {
		clear(w.actors["node-1"].gateways)
		for i := range cluster.MaxGateways {
			w.connect("node-1", fmt.Sprintf("new-%d-%d", round, i), "1")
			w.connect("node-2", fmt.Sprint("g", i), "1", []string{"x"}[:round%2]...)
		}
		w.run(2 * time.Second)
	}
	posted := 0
	for _, n := range w.notices {
		if n.History() == notice.Clients {
			posted++
		}
	}
	if most := 60 + int((w.now - began).Seconds()) + 1; posted < 60 || posted > most {
		t.Errorf("%d notices, at most %d", posted, most)
	}
	if !slices.ContainsFunc(w.lines, func(l string) bool { return strings.Contains(l, "notices about gateways were not posted") }) {
		t.Error("nobody is told that some are missing")
	}
	if len(w.plans) != plans {
		t.Errorf("%d plans were made", len(w.plans)-plans)
	}
}

// Gateways that come and go keep nobody waiting for partitions.
func TestNodesSettleWhileGatewaysComeAndGo(t *testing.T) {
	w := three(t, 12)
	w.join("node-3")
	for i := range 11 {
		w.connect("node-0", fmt.Sprint("g", i), "1")
		w.run(time.Second)
	}
	if w.plan.Version != 2 {
		t.Error("it has no partitions after the settle time")
	}
}

// In a cluster of one nothing is planned, and gateways are looked after as in any other.
func TestAloneNothingIsPlanned(t *testing.T) {
	p := plan.New(plan.Config{Node: "n", Partitions: 4, Expected: 1, Alone: true})
	view := cluster.View{
		Owners: make([]cluster.Owner, 4),
		Members: []cluster.Member{{Joined: 1, Heartbeat: cluster.Heartbeat{
			Node: "n", Process: "1", Gateways: []cluster.Gateway{{Name: "orders", Process: "1"}, {Name: "stock", Process: "1", Failing: []string{"cache"}}},
		}}},
	}
	var kinds []string
	for i := range 40 {
		if i == 5 {
			view.Members[0].Gateways = view.Members[0].Gateways[1:]
		}
		view.Members[0].Beat++
		d := p.Step(time.Hour+time.Duration(i)*time.Second, view)
		if d.Publish != nil || d.Evict != nil {
			t.Fatalf("%+v", d)
		}
		for _, n := range d.Notices {
			kinds = append(kinds, fmt.Sprint(i, " ", n.Kind, " ", n.Fields["member"]))
		}
	}
	if want := []string{"0 degraded stock", "11 degraded orders", "16 dead orders"}; !slices.Equal(kinds, want) {
		t.Errorf("%q, want %q", kinds, want)
	}
	if m := p.Members(); len(m) != 2 || m[1].Node != "stock" || m[1].Kind != cluster.KindGateway || m[1].Status != cluster.StatusDegraded {
		t.Errorf("%+v", m)
	}
}

// A gateway with sessions at several nodes is one member: of the process that started last, with
// the checks that it reported last.
func TestGatewaysOfSeveralNodes(t *testing.T) {
	first, second := time.Unix(1000, 0), time.Unix(2000, 0)
	view := cluster.View{Members: []cluster.Member{
		{Beat: 7, Heartbeat: cluster.Heartbeat{Node: "a", Gateways: []cluster.Gateway{
			{Name: "x", Process: "1", StartedAt: first, Failing: []string{"old"}},
			{Name: "y", Process: "1", StartedAt: first, Silence: 2, Failing: []string{"late"}},
			{Name: "z", Process: "2", StartedAt: second, Left: true},
		}}},
		{Beat: 5, Heartbeat: cluster.Heartbeat{Node: "b", Gateways: []cluster.Gateway{
			{Name: "x", Process: "2", StartedAt: second, Failing: []string{"new"}},
			{Name: "y", Process: "1", StartedAt: first, Silence: 1, Failing: []string{"early"}},
			{Name: "z", Process: "1", StartedAt: first},
		}}},
	}}
	all, whole := view.Gateways()
	var got []string
	for _, g := range all {
		got = append(got, fmt.Sprintf("%s %s %s %v %d %v", g.Node, g.Process, g.Status, g.Checks, g.Beat, g.At))
	}
	want := []string{"x 2 healthy map[new:false] 5 [b]", "y 1 healthy map[early:false] 7 [b a]", "z 1 healthy map[] 5 [b]"}
	if !slices.Equal(got, want) || !whole {
		t.Errorf("%q %v", got, whole)
	}
	view.Members[0].Unlisted = 1
	if _, whole := view.Gateways(); whole {
		t.Error("a list that is not whole is taken for one")
	}
}
