package wiring

import (
	"time"

	"github.com/mongostream/streamer/cluster"
)

// Overview returns what there is to show of the cluster: the last view of it, which has no members
// before the first. In a cluster of one the node itself is the only member, the leader, and planned
// to own everything.
func (m *Membership) Overview() cluster.View {
	if !m.Alone() {
		view, _ := m.View()
		return view
	}
	h := m.report()
	h.Node = m.cfg.Member.Node
	h.Process = m.cfg.Member.Process
	h.Kind = cluster.KindNode
	h.StartedAt = time.Now().Add(-m.cfg.Node.Uptime()).Truncate(time.Second)
	view := cluster.View{
		Members: []cluster.Member{{Heartbeat: h}}, Leader: h.Node, Owners: make([]cluster.Owner, m.cfg.Partitions),
		Plan: cluster.Plan{Owners: make([]string, m.cfg.Partitions)},
	}
	for p := range view.Plan.Owners {
		view.Plan.Owners[p] = h.Node
	}
	for _, held := range h.Held {
		view.Owners[held.Partition] = cluster.Owner{Node: h.Node, Process: h.Process, Epoch: held.Epoch}
	}
	return view
}
