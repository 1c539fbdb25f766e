package clustertest

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/handoff"
)

// A StoreHarness is an empty cluster.
type StoreHarness struct {
	// Store returns the store for a further process.
	Store func() cluster.Store
	// Directives returns the store for an operator.
	Directives func() handoff.DirectiveStore
	// Partitions is N, at least 256.
	Partitions int
}

// TestStore runs the suite. Open returns a new, empty store for every case.
func TestStore(t *testing.T, open func(t *testing.T) StoreHarness) {
	t.Helper()
	cases := []struct {
		name string
		run  func(h storeHarness)
	}{
		{"nobody is there at first", testEmpty},
		{"members are shown as they tell", testMembers},
		{"a name belongs to one process", testName},
		{"a process that joins again has lost what it had", testRejoin},
		{"the number of partitions must be the cluster's", testCount},
		{"a claim is shown, and stands", testMemberClaim},
		{"what another has is not claimed", testClaimHeld},
		{"of many who claim at once each partition has one owner", testClaimRace},
		{"partitions are given back by epoch", testGive},
		{"partitions are handed over by epoch, to who is there", testHand},
		{"who leaves leaves nothing behind", testLeave},
		{"a lease that is not renewed runs out", testExpiry},
		{"one leads, then the next", testElection},
		{"who gives up the campaign is not elected", testCampaignEnds},
		{"plans follow one another", testPlans},
		{"an owner is evicted at its epoch", testEvict},
		{"a pin is shown until it is taken back", testPin},
		{"of two pins of a partition the first stands", testPinned},
		{"a pin runs out", testPinEnds},
		{"a drain is shown until it is taken back", testDrain},
		{"hints follow wishes", testWishHints},
		{"hints follow changes", testHints},
		{"hints end with their context", testHintsEnd},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) { c.run(storeHarness{open(t), t}) })
	}
}

type storeHarness struct {
	StoreHarness
	*testing.T
}

func (h storeHarness) join(s cluster.Store, process string) cluster.Membership {
	h.Helper()
	m, err := s.Join(h.Context(), cluster.Heartbeat{Node: "node-" + process, Process: process}, ttl)
	if err != nil {
		h.Fatalf("join: %v", err)
	}
	return m
}

func (h storeHarness) view(s cluster.Store) cluster.View {
	h.Helper()
	view, err := s.View(h.Context())
	if err != nil {
		h.Fatalf("view: %v", err)
	}
	if len(view.Owners) != h.Partitions {
		h.Fatalf("%d owners of %d partitions", len(view.Owners), h.Partitions)
	}
	return view
}

func (h storeHarness) claim(m cluster.Membership, partitions ...change.Partition) []cluster.Owner {
	h.Helper()
	owners, err := m.Claim(h.Context(), partitions)
	if err != nil || len(owners) != len(partitions) {
		h.Fatalf("claim: %v, %v", owners, err)
	}
	return owners
}

func (h storeHarness) give(m cluster.Membership, p change.Partition, e change.Epoch) {
	h.Helper()
	if err := m.Return(h.Context(), []change.Partition{p}, []change.Epoch{e}); err != nil {
		h.Errorf("give: %v", err)
	}
}

func (h storeHarness) campaign(s cluster.Store, node string) cluster.Leadership {
	h.Helper()
	l, err := s.Campaign(h.Context(), node)
	if err != nil {
		h.Fatalf("campaign: %v", err)
	}
	h.Cleanup(func() {
		if err := l.Resign(context.Background()); err != nil {
			h.Errorf("resign: %v", err)
		}
	})
	return l
}

// until reads the cluster after every hint until wanted returns true.
func (h storeHarness) until(s cluster.Store, hints <-chan struct{}, wanted func(cluster.View) bool) cluster.View {
	h.Helper()
	for {
		select {
		case <-hints:
		case <-h.Context().Done():
			h.Fatal("the cluster never was as wanted")
		}
		if view := h.view(s); wanted(view) {
			return view
		}
	}
}

func (h storeHarness) wantLeft(m cluster.Membership) {
	h.Helper()
	if _, err := m.Renew(h.Context()); !errors.Is(err, cluster.ErrLeft) {
		h.Errorf("renew gave %v", err)
	}
	if err := m.Beat(h.Context(), cluster.Heartbeat{Node: "node-a", Process: "a"}); !errors.Is(err, cluster.ErrLeft) {
		h.Errorf("beat gave %v", err)
	}
	if owners, err := m.Claim(h.Context(), []change.Partition{0}); !errors.Is(err, cluster.ErrLeft) {
		h.Errorf("claim gave %v, %v", owners, err)
	}
}

// all are the partitions.
func (h storeHarness) all() []change.Partition {
	all := make([]change.Partition, h.Partitions)
	for p := range all {
		all[p] = change.Partition(p)
	}
	return all
}

func testEmpty(h storeHarness) {
	view := h.view(h.Store())
	nobody := slices.IndexFunc(view.Owners, func(o cluster.Owner) bool { return o != cluster.Owner{} }) < 0
	isEmpty := len(view.Members) == 0 && view.Leader == "" && view.Plan.Version == 0
	if !isEmpty || !nobody || view.Revision == 0 {
		h.Errorf("%+v", view)
	}
}

func testMembers(h storeHarness) {
	a, b := h.Store(), h.Store()
	first := cluster.Heartbeat{
		Node: "node-b/1 ä", Process: "b", Kind: cluster.KindNode, StartedAt: time.Unix(1_700_000_000, 5).UTC(), Version: "v9",
		Status: cluster.StatusStarting, Checks: map[string]bool{cluster.CheckEtcd: true, "other": false}, Capacity: 2.5, Gateway: "10.0.0.1:9",
		Count: h.Partitions, Fingerprint: "f", Load: cluster.Load{Rate: 3, Lag: new(0.5), Queued: 7},
		Held: []cluster.HeldPartition{{Partition: 3, Epoch: change.Epoch{Incarnation: 1, Revision: 8}, Rate: 2, State: "live"}},
	}
	m, err := b.Join(h.Context(), first, ttl)
	if err != nil {
		h.Fatal(err)
	}
	h.join(a, "a")
	view := h.view(a)
	if len(view.Members) != 2 || view.Members[0].Node != "node-a" {
		h.Fatalf("%+v", view.Members)
	}
	seat := view.Members[1]
	if seat.Joined != seat.Beat || seat.Garbled != nil || seat.Joined >= view.Members[0].Joined {
		h.Errorf("%+v", seat)
	}
	if seat.Node != first.Node || !seat.StartedAt.Equal(first.StartedAt) {
		h.Errorf("%+v", seat)
	}
	isLoaded := *seat.Load.Lag == 0.5 && seat.Capacity == 2.5
	isChecked := seat.Checks[cluster.CheckEtcd] && len(seat.Checks) == 2
	if !isLoaded || !isChecked {
		h.Errorf("%+v", seat)
	}
	if seat.Count != h.Partitions || !slices.Equal(seat.Held, first.Held) {
		h.Errorf("%+v", seat)
	}
	if err := m.Beat(h.Context(), cluster.Heartbeat{Node: first.Node, Process: "b", Status: cluster.StatusHealthy}); err != nil {
		h.Fatal(err)
	}
	next := h.view(a).Members[1]
	isLater := next.Joined == seat.Joined && next.Beat > seat.Beat
	if next.Status != cluster.StatusHealthy || !isLater || next.Checks != nil {
		h.Errorf("%+v", next)
	}
	called := time.Now()
	granted, err := m.Renew(h.Context())
	if took := time.Since(called); granted < ttl || granted > ttl+took || err != nil { // a repeated request counts from its last sending
		h.Errorf("renew gave %s, %v", granted, err)
	}
	if again := h.view(b).Members[1]; again.Beat != next.Beat {
		h.Errorf("a renewal is no heartbeat, but it is at %d after %d", again.Beat, next.Beat)
	}
}

func testName(h storeHarness) {
	h.join(h.Store(), "a")
	before := h.view(h.Store())
	_, err := h.Store().Join(h.Context(), cluster.Heartbeat{Node: "node-a", Process: "other"}, ttl)
	held, ok := errors.AsType[*cluster.HeldError](err)
	isByA := ok && held.Node == "node-a" && held.Process == "a"
	if !isByA || held.TTL <= 0 || held.TTL > ttl {
		h.Fatalf("join gave %v", err)
	}
	after := h.view(h.Store())
	if len(after.Members) != 1 || after.Members[0].Process != "a" || after.Members[0].Beat != before.Members[0].Beat {
		h.Errorf("%+v", after.Members)
	}
}

func testRejoin(h storeHarness) {
	s := h.Store()
	old := h.join(s, "a")
	claimed := h.claim(old, 0, 1)
	young := h.join(h.Store(), "a")
	h.wantLeft(old)
	if view := h.view(s); len(view.Members) != 1 || view.Owners[0] != (cluster.Owner{}) {
		h.Errorf("%+v", view)
	}
	again := h.claim(young, 0)
	if again[0].Epoch.Compare(claimed[0].Epoch) <= 0 {
		h.Errorf("epoch %s after %s", again[0].Epoch, claimed[0].Epoch)
	}
	h.give(old, 0, claimed[0].Epoch)
	h.give(old, 0, again[0].Epoch)
	if err := old.Leave(h.Context()); err != nil {
		h.Errorf("leave: %v", err)
	}
	if view := h.view(s); view.Owners[0] != again[0] {
		h.Errorf("the old membership has taken partition 0 from the young one: %+v", view.Owners[0])
	}
}

func testCount(h storeHarness) {
	_, err := h.Store().Join(h.Context(), cluster.Heartbeat{Node: "node-a", Process: "a", Count: h.Partitions + 1}, ttl)
	if fault.Of(err) != fault.CheckpointPartitions {
		h.Errorf("join gave %v", err)
	}
	if view := h.view(h.Store()); len(view.Members) != 0 {
		h.Errorf("%+v", view.Members)
	}
}

func testMemberClaim(h storeHarness) {
	s := h.Store()
	m := h.join(s, "a")
	owners := h.claim(m, h.all()...)
	view := h.view(s)
	if !slices.Equal(view.Owners, owners) {
		h.Fatal("what was claimed is not what stands")
	}
	for p, o := range owners {
		isA := o.Node == "node-a" && o.Process == "a"
		if !isA || o.Epoch.Incarnation != 1 || o.Epoch.Revision == 0 {
			h.Fatalf("partition %d: %+v", p, o)
		}
	}
	if again := h.claim(m, h.all()...); !slices.Equal(again, owners) {
		h.Error("what was claimed already has other epochs")
	}
	if now := h.view(s); now.Revision != view.Revision {
		h.Error("claiming what is claimed already has written something")
	}
	if some := h.claim(m, 200, 3); some[0] != owners[200] || some[1] != owners[3] {
		h.Errorf("not in order: %+v", some)
	}
	if none := h.claim(m); len(none) != 0 {
		h.Errorf("%+v", none)
	}
	if _, err := m.Claim(h.Context(), []change.Partition{change.Partition(h.Partitions)}); err == nil {
		h.Error("claimed a partition that there is not")
	}
}

func testClaimHeld(h storeHarness) {
	a, b := h.join(h.Store(), "a"), h.join(h.Store(), "b")
	of := h.claim(a, 1, 2)
	got := h.claim(b, 0, 1, 2, 3)
	if !slices.Equal(got[1:3], of) || got[0].Process != "b" || got[3].Process != "b" {
		h.Errorf("%+v", got)
	}
	if view := h.view(h.Store()); !slices.Equal(view.Owners[:4], got) {
		h.Errorf("%+v", view.Owners[:4])
	}
}

func testHand(h storeHarness) {
	a, b := h.join(h.Store(), "a"), h.join(h.Store(), "b")
	of, epochs := h.claim(a, h.all()...), make([]change.Epoch, h.Partitions)
	for p, o := range of {
		epochs[p] = o.Epoch
	}
	seat := func(process string) cluster.Member {
		return cluster.Member{Heartbeat: cluster.Heartbeat{Node: "node-" + process, Process: process}}
	}
	stranger := seat("b")
	stranger.Process = "before"
	for _, to := range []cluster.Member{seat("nobody"), stranger} {
		if _, err := a.Transfer(h.Context(), to, h.all(), epochs); !errors.Is(err, cluster.ErrAbsent) {
			h.Errorf("to %s, process %s: %v", to.Node, to.Process, err)
		}
	}
	h.give(a, 1, epochs[1])
	epochs[2].Revision++
	epochs[3].Incarnation++
	for range 2 { // a repetition has the same result
		owners, err := a.Transfer(h.Context(), seat("b"), h.all(), epochs)
		if err != nil || !slices.Equal(owners, h.view(h.Store()).Owners) {
			h.Fatalf("%v: %+v", err, owners)
		}
		for p, o := range owners {
			var asWanted bool
			switch p {
			case 1:
				asWanted = o == cluster.Owner{}
			case 2, 3:
				asWanted = o == of[p]
			default:
				asWanted = o.Process == "b" && o.Node == "node-b" && o.Epoch.Compare(of[p].Epoch) > 0
			}
			if !asWanted {
				h.Errorf("partition %d: %+v", p, o)
			}
		}
	}
	handed := h.view(h.Store()).Owners
	if _, err := b.Transfer(h.Context(), seat("a"), []change.Partition{2}, []change.Epoch{of[2].Epoch}); err != nil {
		h.Error(err)
	}
	if now := h.claim(b, 0, 2); now[0] != handed[0] || now[1] != of[2] {
		h.Errorf("%+v", now)
	}
	if err := a.Leave(h.Context()); err != nil {
		h.Error(err)
	}
	if now := h.view(h.Store()).Owners; now[0] != handed[0] || now[2] != (cluster.Owner{}) {
		h.Errorf("after the donor has left: %+v", now[:3])
	}
	if err := b.Leave(h.Context()); err != nil {
		h.Error(err)
	}
	if now := h.view(h.Store()).Owners; now[0] != (cluster.Owner{}) {
		h.Errorf("after the other has left: %+v", now[0])
	}
	if _, err := a.Transfer(h.Context(), seat("b"), h.all(), epochs); !errors.Is(err, cluster.ErrLeft) {
		h.Errorf("after it has left: %v", err)
	}
}

func testGive(h storeHarness) {
	a, b := h.join(h.Store(), "a"), h.join(h.Store(), "b")
	of := h.claim(a, h.all()...)
	wrong := of[1].Epoch
	wrong.Revision++
	h.give(a, 1, wrong)
	wrong = of[1].Epoch
	wrong.Incarnation++
	h.give(a, 1, wrong)
	h.give(b, 1, of[1].Epoch)
	if now := h.view(h.Store()).Owners[1]; now != of[1] {
		h.Errorf("%+v", now)
	}
	for range 2 {
		h.give(a, 1, of[1].Epoch)
	}
	next := h.claim(b, 0, 1)
	if next[0] != of[0] || next[1].Process != "b" || next[1].Epoch.Compare(of[1].Epoch) <= 0 {
		h.Errorf("%+v", next)
	}
	h.give(a, 1, of[1].Epoch)
	if now := h.view(h.Store()).Owners[1]; now != next[1] {
		h.Errorf("%+v", now)
	}
	epochs := make([]change.Epoch, len(of))
	for p, o := range of {
		epochs[p] = o.Epoch
	}
	if err := a.Return(h.Context(), h.all(), epochs); err != nil {
		h.Error(err)
	}
	if now := h.view(h.Store()).Owners; now[0] != (cluster.Owner{}) || now[h.Partitions-1] != (cluster.Owner{}) || now[1] != next[1] {
		h.Errorf("%+v", now[:2])
	}
}

func testLeave(h storeHarness) {
	s := h.Store()
	m := h.join(s, "a")
	before := h.claim(m, h.all()...)
	for range 2 {
		if err := m.Leave(h.Context()); err != nil {
			h.Error(err)
		}
	}
	view := h.view(s)
	if len(view.Members) != 0 || view.Owners[0] != (cluster.Owner{}) || view.Owners[h.Partitions-1] != (cluster.Owner{}) {
		h.Errorf("%+v", view)
	}
	h.wantLeft(m)
	h.give(m, 0, before[0].Epoch)
	after := h.claim(h.join(s, "b"), 0)
	if after[0].Epoch.Compare(before[0].Epoch) <= 0 {
		h.Errorf("epoch %s after %s", after[0].Epoch, before[0].Epoch)
	}
}

func testExpiry(h storeHarness) {
	s := h.Store()
	other := h.join(s, "b")
	h.claim(other, 2)
	hints := s.Hints(h.Context())
	var m cluster.Membership
	for err := cluster.ErrLeft; errors.Is(err, cluster.ErrLeft); { // a busy machine may be too slow to claim in time
		m, err = s.Join(h.Context(), cluster.Heartbeat{Node: "node-a", Process: "a"}, time.Second)
		if err == nil {
			_, err = m.Claim(h.Context(), []change.Partition{0, 1})
		}
		if err != nil && !errors.Is(err, cluster.ErrLeft) {
			h.Fatal(err)
		}
	}
	view := h.until(s, hints, func(v cluster.View) bool { return len(v.Members) == 1 && v.Members[0].Process == "b" })
	if view.Owners[0] != (cluster.Owner{}) || view.Owners[2].Process != "b" {
		h.Errorf("%+v", view.Owners[:3])
	}
	h.wantLeft(m)
	h.join(s, "a")
}
