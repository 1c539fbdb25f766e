package wiring

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/gateway"
)

func TestTopologySaysWhoOwnsWhat(t *testing.T) {
	seat := func(node, process, gateway string) cluster.Member {
		return cluster.Member{Heartbeat: cluster.Heartbeat{Node: node, Process: process, Gateway: gateway}}
	}
	owner := func(process string, revision uint64) cluster.Owner {
		return cluster.Owner{Process: process, Epoch: change.Epoch{Incarnation: 1, Revision: revision}}
	}
	view := cluster.View{
		Revision: 9,
		Members: []cluster.Member{
			seat("node-1", "p1", "host:1"), {Heartbeat: cluster.Heartbeat{Node: "x"}, Garbled: errors.New("garbled")}, seat("node-2", "p2", ""),
			{Heartbeat: cluster.Heartbeat{Node: "g", Process: "pg", Kind: cluster.KindGateway}},
		},
		Owners: []cluster.Owner{owner("p2", 3), {}, owner("gone", 4), owner("p1", 5)},
	}
	told := newTopologist()
	told.viewed(view)
	got, err := told.Follow(t.Context(), 0)
	if err != nil || got.Version != 9 || !slices.Equal(got.Nodes, []gateway.NodeAddress{{Name: "node-1", Address: "host:1"}, {Name: "node-2"}}) ||
		!slices.Equal(got.Owners, []int{1, -1, -1, 0}) {
		t.Errorf("%+v, %v", got, err)
	}

	// Heartbeats alone are no news.
	view.Revision = 10
	told.viewed(view)
	next := make(chan gateway.Topology)
	go func() {
		t, _ := told.Follow(t.Context(), 9)
		next <- t
	}()
	moved := view
	moved.Revision, moved.Owners = 12, slices.Clone(view.Owners)
	moved.Owners[1] = owner("p1", 11)
	told.viewed(moved)
	if got := <-next; got.Version != 12 || got.Owners[1] != 0 {
		t.Errorf("%+v", got)
	}
	// A view that was asked for before and comes late changes nothing.
	told.viewed(view)
	if got, _ := told.Follow(t.Context(), 0); got.Version != 12 {
		t.Errorf("%+v", got)
	}

	// After a restore revisions begin anew, in another incarnation.
	restored := moved
	restored.Revision, restored.Owners = 3, []cluster.Owner{
		{Node: "node-1", Process: "p1", Epoch: change.Epoch{Incarnation: 2, Revision: 2}}, {}, {}, {},
	}
	told.viewed(restored)
	if got, _ := told.Follow(t.Context(), 0); got.Version <= 12 || !slices.Equal(got.Owners, []int{0, -1, -1, -1}) {
		t.Errorf("after a restore: %+v", got)
	}
	last, _ := told.Follow(t.Context(), 0)
	restored.Revision, restored.Owners = 4, make([]cluster.Owner, 4)
	told.viewed(restored)
	if got, _ := told.Follow(t.Context(), 0); got.Version <= last.Version || got.Owners[0] != -1 {
		t.Errorf("nobody owns anything: %+v", got)
	}
}

func TestNodesThatReadSomethingElseAreFound(t *testing.T) {
	m := &Membership{cfg: MembershipConfig{Announced: Announced{Fingerprint: "a"}}}
	if err := m.Alike(); err != nil {
		t.Errorf("alone: %v", err)
	}
	seat := func(node, fingerprint string) cluster.Member {
		return cluster.Member{Heartbeat: cluster.Heartbeat{Node: node, Fingerprint: fingerprint}}
	}
	m.view.Store(&cluster.View{Members: []cluster.Member{seat("node-1", "a"), seat("older", "")}})
	if err := m.Alike(); err != nil {
		t.Errorf("all alike: %v", err)
	}
	m.view.Store(&cluster.View{Members: []cluster.Member{seat("node-1", "a"), seat("node-2", "b")}})
	if err := m.Alike(); err == nil || !strings.Contains(err.Error(), "node-2") || strings.Contains(err.Error(), "node-1") {
		t.Errorf("node-2 reads something else: %v", err)
	}
}
