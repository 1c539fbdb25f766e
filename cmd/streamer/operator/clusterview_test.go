package operator

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/health"
)

// Gateways are members with the nodes at which they have sessions, have no partitions even if they
// are called like a node, and cannot write to the terminal.
func TestPlanShowsGateways(t *testing.T) {
	a := newClusterView("c", cluster.View{
		Owners: []cluster.Owner{{Node: "n1", Process: "1"}}, Plan: cluster.Plan{Version: 1, Owners: []string{"n1"}},
		Members: []cluster.Member{{Heartbeat: cluster.Heartbeat{Node: "n1", Process: "1", Status: cluster.StatusHealthy, Gateways: []cluster.Gateway{
			{Name: "n1", Process: "1", Failing: []string{"cache", "disk"}}, {Name: "x\x1b[2J\t"},
		}}}},
	})
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 1, ' ', 0)
	a.write(w)
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	var lines [][]string
	for line := range strings.Lines(b.String()) {
		lines = append(lines, strings.Fields(line))
	}
	for i, want := range []string{
		"n1 node healthy - 1 1 0.0 unknown 1", "n1 gateway healthy cache,disk at n1 1", `x\u001b[2J\u0009` + " gateway healthy - at n1",
	} {
		if got := strings.Join(lines[7+i], " "); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	text, err := json.Marshal(a.Members[1])
	if err != nil || !strings.Contains(string(text), `"kind":"gateway"`) || !strings.Contains(string(text), `"at":["n1"]`) || a.Members[1].Owned != 0 {
		t.Errorf("%s %v", text, err)
	}
}

// A member is shown by its own verdict, and the problems of all of them beside what the plan shows:
// the leader may give partitions to a node whose sink is late, and not call it healthy.
func TestPlanShowsTheVerdict(t *testing.T) {
	at := time.Now().Add(-time.Minute)
	v := cluster.View{
		Leader: "n1", Owners: []cluster.Owner{{Node: "n1", Process: "1"}, {}}, Plan: cluster.Plan{Version: 1, At: at, Owners: []string{"n1", "n2"}},
		Members: []cluster.Member{{Heartbeat: cluster.Heartbeat{
			Node: "n1", Process: "1", Status: cluster.StatusHealthy, Verdict: health.Degraded,
			Problems: []health.Problem{{Code: fault.SinkTarget, Subject: "sink/hook", Cause: "It acknowledges nothing.", Severity: health.Warning, Since: at, Affects: health.Affects{Nodes: []string{"n1"}}}},
		}}},
	}
	a := newClusterView("c", v)
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 1, ' ', 0)
	a.write(w)
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	said := strings.Join(strings.Fields(b.String()), " ")
	for _, want := range []string{"n1 node degraded sink/hook", "nodes critical", "No heartbeat comes from n2.", "sink/hook warning", "STRM-NODE-MISSING: ", "STRM-SINK-TARGET: "} {
		if !strings.Contains(said, want) {
			t.Errorf("no %q in\n%s", want, &b)
		}
	}
	if len(a.Problems) != 2 || !slices.Equal(a.Problems[0].Affects.Nodes, []string{"n2"}) || !a.Problems[0].Since.Equal(at) || a.Members[0].Status != cluster.StatusDegraded {
		t.Errorf("%+v", a)
	}
	v.Members[0].Problems, v.Plan.Owners = nil, []string{"n1", "n1"}
	if a := newClusterView("c", v); len(a.Problems) != 1 || a.Problems[0].Code != fault.ClusterUnowned {
		t.Errorf("a partition has no owner: %+v", a.Problems)
	}
	v.Members[0].Problems = []health.Problem{{Code: fault.NodeMissing, Subject: "nodes", Cause: "No heartbeat comes from n3.", Severity: health.Critical, Since: at, Affects: health.Affects{Nodes: []string{"n3"}}}}
	if a := newClusterView("c", v); len(a.Problems) != 1 || a.Problems[0].Cause != "No heartbeat comes from n3." || failing(a.Members[0]) != "-" {
		t.Errorf("a node is frozen: %+v", a.Problems)
	}
	v.Members[0].Problems = nil
	v.Plan.At = time.Now()
	if a := newClusterView("c", v); len(a.Problems) != 0 {
		t.Errorf("the plan is being carried out: %+v", a.Problems)
	}
}
