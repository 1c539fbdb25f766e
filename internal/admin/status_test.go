package admin_test

import (
	"encoding/json"
	"errors"

	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/gateway/access"
	"github.com/mongostream/streamer/health"
	"github.com/mongostream/streamer/internal/admin"
)

// statusView is a cluster of three nodes with n partitions: a has the even ones, b the odd ones, of
// which 1 is to move to a; c cannot be read, and the plan gives the last partition to d, which is
// gone.
func statusView(n int) cluster.View {
	v := cluster.View{Leader: "a", Plan: cluster.Plan{Version: 7, Cause: "a joined", Reasons: []string{"stays"}, Why: make([]uint8, n)}}
	held := map[string][]cluster.HeldPartition{}
	for i := range n {
		node := []string{"a", "b"}[i%2]
		epoch := change.Epoch{Incarnation: 1, Revision: uint64(i)}
		v.Owners = append(v.Owners, cluster.Owner{Node: node, Process: "process of " + node, Epoch: epoch})
		v.Plan.Owners = append(v.Plan.Owners, node)
		held[node] = append(held[node], cluster.HeldPartition{Partition: change.Partition(i), Epoch: epoch, Rate: float64(i) + 0.123456, State: string(health.Healthy)})
	}
	v.Owners[n-1], v.Plan.Owners[n-1], v.Plan.Owners[1] = cluster.Owner{}, "d", "a"
	held["b"][0].Epoch.Revision = 99 // it does not serve it in this term yet
	for _, node := range []string{"a", "b"} {
		v.Members = append(v.Members, cluster.Member{Heartbeat: cluster.Heartbeat{
			Node: node, Process: "process of " + node, Status: cluster.StatusHealthy, Verdict: health.Degraded, Problems: []health.Problem{{Subject: "sink/out"}},
			Held: held[node], Gateways: []cluster.Gateway{{Name: "gateway/" + node}, {Name: "gateway/gone", Left: true}}, Unlisted: 2,
		}})
	}
	v.Members = append(v.Members, cluster.Member{Heartbeat: cluster.Heartbeat{Node: "c"}, Garbled: errors.New("not JSON")})
	return v
}

func TestStatusTellsWhoOwnsWhat(t *testing.T) {
	t.Parallel()
	lag := 1.5
	s := admin.NewStatus(health.Report{
		Node: "a", Cluster: "x", Status: health.Degraded, Membership: &health.Membership{Detached: true},
		Partitions: []health.Partition{{ID: 0, Status: health.Healthy, Lag: &lag}, {ID: 2, Status: health.Healthy, Error: "STRM-LOG-HISTORY-LOST: gone"}, {ID: 99, Error: "no such partition"}},
	}, statusView(4))
	for what, values := range map[string][2][]int{
		"owners":  {s.Partitions.Owners, {0, 1, 0, -1}},
		"planned": {s.Partitions.Planned, {0, 0, 0, -1}},
		"states":  {s.Partitions.States, {0, -1, 0, -1}},
		"why":     {s.Partitions.Why, {0, 0, 0, 0}},
	} {
		if !slices.Equal(values[0], values[1]) {
			t.Errorf("%s: %v, not %v", what, values[0], values[1])
		}
	}
	if !slices.Equal(s.Partitions.Rates, []float64{0.1, 0, 2.1, 0}) || *s.Partitions.Lags[0] != lag || s.Partitions.Lags[1] != nil {
		t.Errorf("rates %v, lags %v", s.Partitions.Rates, s.Partitions.Lags)
	}
	if len(s.Partitions.Errors) != 1 || s.Partitions.Errors[2] == "" || !s.Detached || !slices.Equal(s.Absent, []string{"d"}) {
		t.Errorf("errors %v, detached %v, absent %v", s.Partitions.Errors, s.Detached, s.Absent)
	}
	a, c := s.Nodes[0], s.Nodes[2]
	if a.Owned != 2 || a.Planned != 3 || a.Status != cluster.StatusDegraded || !slices.Equal(a.Problems, []string{"sink/out"}) || !slices.Equal(a.Gateways, []string{"gateway/a"}) || a.Unlisted != 2 {
		t.Errorf("%+v", a)
	}
	if c.Unread == "" || c.Owned != 0 {
		t.Errorf("%+v", c)
	}
}

// What a node says of its own partitions does not wait for its next heartbeat.
func TestStatusOfOwnPartitionsIsTheNodesOwn(t *testing.T) {
	t.Parallel()
	at, lag := time.Unix(1000, 0), 1.5
	last := &health.LastKnown{At: at, Status: health.Healthy, Lag: &lag}
	s := admin.NewStatus(health.Report{Node: "a", Partitions: []health.Partition{{ID: 0, Status: health.Stuck, LastKnown: last}}}, statusView(4))
	p := s.Partitions
	if name := p.StateNames[p.States[0]]; name != health.Stuck || p.StateNames[p.States[2]] != health.Healthy {
		t.Errorf("partition 0 is %s, of %v", name, p.StateNames)
	}
	if p.Lags[0] != nil || p.LastKnown == nil || !p.LastKnown.Equal(at) || *p.LastLags[0] != lag || p.LastLags[2] != nil {
		t.Errorf("%+v", p)
	}
}

// A page asks every two seconds, and lists are never null: its scripts go through them.
func TestStatusIsSmallAndWhole(t *testing.T) {
	t.Parallel()
	text, err := json.Marshal(admin.NewStatus(health.Report{}, statusView(4096)))
	if err != nil {
		t.Fatal(err)
	}
	if len(text) > 160<<10 {
		t.Errorf("%d bytes for 4096 partitions", len(text))
	}
	text, err = json.Marshal(admin.NewStatus(health.Report{Problems: []health.Problem{}}, cluster.View{})) // before the first view
	if err != nil {
		t.Fatal(err)
	}
	var shown map[string]any
	if err := json.Unmarshal(text, &shown); err != nil {
		t.Fatal(err)
	}
	columns, _ := shown["partitions"].(map[string]any)
	for name, value := range columns {
		if value == nil {
			t.Errorf("partitions.%s is null", name)
		}
	}
	for _, name := range []string{"nodes", "absent", "problems"} {
		if shown[name] == nil {
			t.Errorf("%s is null", name)
		}
	}
}

func TestStatusIsForThoseWhoMayReadEverything(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	admin.ServeStatus(func() *admin.Status { return &admin.Status{Cluster: "secret"} }, (*access.Identity).Operates).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/status", nil))
	if w.Code != http.StatusForbidden || strings.Contains(w.Body.String(), "secret") {
		t.Errorf("without an identity: %d %s", w.Code, w.Body)
	}
}
