package operator

import (
	"encoding/json"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/mongostream/streamer/cluster"
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
		if got := strings.Join(lines[5+i], " "); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	text, err := json.Marshal(a.Members[1])
	if err != nil || !strings.Contains(string(text), `"kind":"gateway"`) || !strings.Contains(string(text), `"at":["n1"]`) || a.Members[1].Owned != 0 {
		t.Errorf("%s %v", text, err)
	}
}
