package operator

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/health"
)

// A clusterView is the shared state of a cluster's nodes, read from etcd without asking a node.
type clusterView struct {
	Cluster string `json:"cluster"`
	// Leader is the node that makes plans, empty for none.
	Leader string   `json:"leader"`
	Plan   planView `json:"plan"`
	// Problems are those that the nodes report, and those in the shared state.
	Problems []health.Problem `json:"problems"`
	Members  []memberView     `json:"members"`
	// Absent are nodes that the plan names and that are not there.
	Absent     []string        `json:"absent"`
	Partitions []partitionView `json:"partitions"`
}

// A planView is the plan without its partitions. Version 0 is no plan.
type planView struct {
	Version uint64    `json:"version"`
	At      time.Time `json:"at"`
	By      string    `json:"by"`
	Cause   string    `json:"cause"`
}

// A memberView is a member: its last heartbeat, and its partitions. Only the leader knows the age
// of the heartbeat; its presence means that the lease is valid.
type memberView struct {
	cluster.Heartbeat

	// At are the nodes at which a gateway has sessions.
	At []string `json:"at,omitempty"`
	// Unread says why the heartbeat cannot be read.
	Unread  string `json:"unread,omitempty"`
	Planned int    `json:"planned"` // partitions that the plan gives to it
	Owned   int    `json:"owned"`
}

// A partitionView has the planned and the present owner of a partition.
type partitionView struct {
	ID      change.Partition `json:"id"`
	Planned string           `json:"planned"`
	Why     string           `json:"why"`
	Owner   string           `json:"owner"`
	Process string           `json:"process"`
	Epoch   string           `json:"epoch"`
	// State is the state that the owner reports, empty if it has not reported one yet.
	State string `json:"state"`
}

// newClusterView makes the clusterView from the content of etcd.
func newClusterView(name string, view cluster.View) *clusterView {
	a := &clusterView{
		Cluster: name, Leader: view.Leader, Members: []memberView{}, Absent: []string{}, Partitions: make([]partitionView, len(view.Owners)),
		Plan: planView{Version: view.Plan.Version, At: view.Plan.At, By: view.Plan.By, Cause: view.Plan.Cause},
	}
	owned := map[string]int{}
	given := map[string]int{}
	states := map[change.Epoch]map[change.Partition]string{}
	for _, seat := range view.Members {
		for _, h := range seat.Held {
			if states[h.Epoch] == nil {
				states[h.Epoch] = map[change.Partition]string{}
			}
			states[h.Epoch][h.Partition] = h.State
		}
	}
	for i, owner := range view.Owners {
		p := change.Partition(i)
		node := view.Plan.Owner(p)
		a.Partitions[i] = partitionView{ID: p, Planned: node, Why: view.Plan.Reason(p), Owner: owner.Node, Process: owner.Process}
		if owner != (cluster.Owner{}) {
			a.Partitions[i].Epoch = owner.Epoch.String()
			a.Partitions[i].State = states[owner.Epoch][p]
			owned[owner.Process]++
		}
		given[node]++
	}
	for _, seat := range view.Members {
		m := memberView{Heartbeat: seat.Heartbeat, Planned: given[seat.Node], Owned: owned[seat.Process]}
		m.Status = seat.Condition()
		if seat.Garbled != nil {
			m.Unread = seat.Garbled.Error()
		}
		a.Members = append(a.Members, m)
		delete(given, seat.Node)
	}
	gateways, _ := view.Gateways()
	for _, g := range gateways {
		a.Members = append(a.Members, memberView{Heartbeat: g.Heartbeat, At: g.At})
	}
	for node := range given {
		if node != "" {
			a.Absent = append(a.Absent, node)
		}
	}
	slices.Sort(a.Absent)
	a.Problems = a.judge(view).Problems
	return a
}

// judge judges the cluster by its shared state. No node has recorded the beginning of its problems:
// they are at most as old as the plan.
func (a *clusterView) judge(view cluster.View) health.Verdict {
	since := func(holds bool) (s health.Since) {
		if holds && view.Plan.Version > 0 {
			s.At = view.Plan.At
		}
		return s
	}
	f := health.Facts{Now: time.Now()}
	f.Unled = since(view.Leader == "")
	f.Missing = since(len(a.Absent) > 0)
	f.MissingNodes = a.Absent
	f.Unowned = since(slices.ContainsFunc(view.Owners, func(o cluster.Owner) bool { return o.Process == "" }))
	for _, m := range view.Members {
		f.Others = append(f.Others, m.Problems...)
	}
	return health.Judge(f)
}

// write writes it for people: partitions that are alike in one line.
func (a *clusterView) write(t *tabwriter.Writer) {
	leader, plan := "nobody", "none yet"
	if a.Leader != "" {
		leader = a.Leader
	}
	if p := a.Plan; p.Version > 0 {
		plan = fmt.Sprintf("%d, by %s at %s: %s", p.Version, p.By, formatTime(p.At), p.Cause)
	}
	fmt.Fprintf(t, "cluster\t%s\nleader\t%s\nplan\t%s\n\n", a.Cluster, leader, plan)
	writeProblems(t, a.Problems)
	fmt.Fprintln(t, "\nMEMBER\tKIND\tSTATUS\tFAILS\tPLANNED\tOWNED\tEVENTS/S\tLAG\tGATEWAYS\tVERSION\tPROCESS")
	for _, m := range a.Members {
		if m.Kind == cluster.KindGateway {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t\t\t\t\tat %s\t\t%s\n", printable(m.Node), m.Kind, m.Status, printable(failedChecks(m.Checks)),
				strings.Join(m.At, ","), printable(m.Process))
			continue
		}
		status := string(m.Status)
		lag := "unknown"
		if m.Unread != "" {
			status = "unreadable: " + m.Unread
		}
		if m.Load.Lag != nil {
			lag = orUnknown(m.Load.Lag)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%d\t%d\t%.1f\t%s\t%s\t%s\t%s\n", m.Node, cmp.Or(m.Kind, cluster.KindNode), status, printable(failing(m)), m.Planned, m.Owned, m.Load.Rate, lag,
			m.Gateway, m.Version, m.Process)
	}
	for _, node := range a.Absent {
		fmt.Fprintf(t, "%s\t%s\tnot there\t\t%d\t0\t\t\t\t\t\n", node, cluster.KindNode, a.plannedFor(node))
	}
	fmt.Fprintln(t, "\nPLANNED\tOWNER\tSTATE\tPARTITIONS\tWHY")
	type row struct{ planned, owner, state, why string }
	var rows []row
	groups := map[row][]change.Partition{}
	for _, p := range a.Partitions {
		r := row{orDash(p.Planned), orDash(p.Owner), orDash(p.State), orDash(p.Why)}
		if groups[r] == nil {
			rows = append(rows, r)
		}
		groups[r] = append(groups[r], p.ID)
	}
	slices.SortStableFunc(rows, func(x, y row) int { return strings.Compare(x.planned, y.planned) })
	for _, r := range rows {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", r.planned, r.owner, r.state, formatRanges(groups[r]), r.why)
	}
}

// plannedFor counts the partitions that the plan gives to a node.
func (a *clusterView) plannedFor(node string) (n int) {
	for _, p := range a.Partitions {
		if p.Planned == node {
			n++
		}
	}
	return n
}

// failing lists the problems of a node.
func failing(m memberView) string {
	var subjects []string
	for _, p := range m.Problems {
		if !p.OfNodes() { // it is not the node's own
			subjects = append(subjects, p.Subject)
		}
	}
	return orDash(strings.Join(subjects, ","))
}

// failedChecks lists the checks of a gateway that fail.
func failedChecks(checks map[string]bool) string {
	var names []string
	for name, ok := range checks {
		if !ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return orDash(strings.Join(names, ","))
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// formatRanges writes numbers that ascend: 0-3,7.
func formatRanges(numbers []change.Partition) string {
	var b strings.Builder
	for i := 0; i < len(numbers); {
		j := i
		for j+1 < len(numbers) && numbers[j+1] == numbers[j]+1 {
			j++
		}
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprint(&b, numbers[i])
		if j > i {
			fmt.Fprintf(&b, "-%d", numbers[j])
		}
		i = j + 1
	}
	return b.String()
}
