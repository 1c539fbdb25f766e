package plan_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/cluster/plan"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/notice"
)

// settings are what a node reads and which sinks it serves.
type settings struct {
	watch, sinks string // lists with commas
}

// configure restarts a member with other settings.
func (w *world) configure(s settings, nodes ...string) {
	for _, node := range nodes {
		w.join(node)
		a := w.actors[node]
		a.coverage, a.sinks = &change.Coverage{}, nil
		if s.watch != "" {
			a.coverage.Namespaces = strings.Split(s.watch, ",")
		}
		if s.sinks != "" {
			a.sinks = strings.Split(s.sinks, ",")
		}
		w.beat(a)
	}
}

// ownersOf returns which members own partitions, and fails where one has no owner.
func (w *world) ownersOf(t *testing.T) (nodes []string) {
	t.Helper()
	if served := w.served(); served != w.cfg.Partitions {
		t.Errorf("%d of %d partitions are served", served, w.cfg.Partitions)
	}
	for _, o := range w.owners {
		nodes = append(nodes, o.Node)
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

// Members own partitions only if they read what all others read and serve the sinks that all others
// serve.
func TestOnlyMembersThatCoverAllOthersOwnPartitions(t *testing.T) {
	all, first, second, third := "node-0,node-1,node-2", "node-0", "node-1", "node-2"
	for name, tt := range map[string]struct {
		before  settings            // of all three
		changes map[string]settings // by node, in the order of their names
		owners  []string            // after each change
		told    string              // of the member that is given nothing, empty if nobody is
	}{
		"the same":                 {settings{"shop.*", "s"}, map[string]settings{first: {"shop.*", "s"}}, []string{all}, ""},
		"the same in other words":  {settings{"shop.*", "s"}, map[string]settings{first: {"shop.*,shop.a", "s"}}, []string{all}, ""},
		"one reads less":           {settings{"shop.a,shop.b", "s"}, map[string]settings{third: {"shop.a", "s"}}, []string{"node-0,node-1"}, third},
		"one does not read all":    {settings{"", "s"}, map[string]settings{third: {"shop.a", "s"}}, []string{"node-0,node-1"}, third},
		"the leader reads less":    {settings{"shop.a,shop.b", "s"}, map[string]settings{first: {"shop.a", "s"}}, []string{"node-1,node-2"}, first},
		"all read less by and by":  {settings{"", "s"}, map[string]settings{first: {"a.b", "s"}, second: {"a.b", "s"}, third: {"a.b", "s"}}, []string{"node-1,node-2", third, all}, first},
		"all read more by and by":  {settings{"a.b", "s"}, map[string]settings{first: {"a.*", "s"}, second: {"a.*", "s"}, third: {"a.*", "s"}}, []string{first, "node-0,node-1", all}, third},
		"a sink is added":          {settings{"", "s"}, map[string]settings{first: {"", "s,t"}, second: {"", "s,t"}, third: {"", "s,t"}}, []string{first, "node-0,node-1", all}, second},
		"a sink is removed":        {settings{"", "s,t"}, map[string]settings{first: {"", "s"}, second: {"", "s"}, third: {"", "s"}}, []string{"node-1,node-2", third, all}, first},
		"one sink for another":     {settings{"", "s#1"}, map[string]settings{first: {"", "s#2"}, second: {"", "s#2"}, third: {"", "s#2"}}, []string{"node-1,node-2", "node-0,node-1", all}, first},
		"one namespace, one other": {settings{"a.b,a.c", "s"}, map[string]settings{first: {"a.b,a.d", "s"}, second: {"a.b,a.d", "s"}}, []string{"node-1,node-2", "node-0,node-1"}, first},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, plan.Config{Partitions: 12, Expected: 3})
			w.configure(tt.before, first, second, third)
			w.run(40 * time.Second)
			if got := strings.Join(w.ownersOf(t), ","); got != all {
				t.Fatalf("before, partitions are owned by %s", got)
			}
			for i, node := range slices.Sorted(maps.Keys(tt.changes)) {
				w.configure(tt.changes[node], node)
				w.run(90 * time.Second)
				if got := strings.Join(w.ownersOf(t), ","); got != tt.owners[i] {
					t.Errorf("after change %d, of %s, partitions are owned by %s, not %s", i+1, node, got, tt.owners[i])
				}
			}
			told := slices.ContainsFunc(w.notices, func(n notice.Notice) bool {
				return n.Kind == notice.KindMemberRefused && n.Fields["code"] == string(fault.ClusterCoverage) && (tt.told == "" || n.Fields["member"] == tt.told)
			})
			if told != (tt.told != "") {
				t.Errorf("told that %q is given nothing: %t", tt.told, told)
			}
		})
	}
}

// A member that reads less takes over when no other is left, because a partition with a doubtful
// owner is better off than one without.
func TestMemberThatReadsLessTakesOverFromTheLast(t *testing.T) {
	w := newWorld(t, plan.Config{Partitions: 12, Expected: 2})
	w.configure(settings{"", "s"}, "node-1")
	w.configure(settings{"a.b", "s"}, "node-0")
	w.run(40 * time.Second)
	if got := fmt.Sprint(w.ownersOf(t)); got != "[node-1]" {
		t.Fatal(got)
	}
	w.actors["node-1"].failing = []string{cluster.CheckMongoDB}
	w.run(40 * time.Second)
	if got := fmt.Sprint(w.ownersOf(t)); got != "[node-0]" {
		t.Error(got)
	}
}
