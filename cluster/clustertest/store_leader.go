package clustertest

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/cluster"
)

func testClaimRace(h storeHarness) {
	names := []string{"a", "b", "c", "d"}
	claims := make([][]cluster.Owner, len(names))
	var wg sync.WaitGroup
	for i, name := range names {
		m := h.join(h.Store(), name)
		wg.Go(func() {
			var err error
			if claims[i], err = m.Claim(h.Context(), h.all()); err != nil {
				h.Errorf("claim of %s: %v", name, err)
			}
		})
	}
	wg.Wait()
	now := h.view(h.Store()).Owners
	for i, owners := range claims {
		if !slices.Equal(owners, now) {
			h.Errorf("%s saw other owners than there are", names[i])
		}
	}
}

func testElection(h storeHarness) {
	a, b := h.Store(), h.Store()
	h.join(a, "a")
	h.join(b, "b")
	hints := b.Hints(h.Context())
	first := h.campaign(a, "node-a")
	if view := h.view(b); view.Leader != "node-a" {
		h.Errorf("%q leads", view.Leader)
	}
	elected := make(chan cluster.Leadership)
	go func() {
		l, err := b.Campaign(h.Context(), "node-b")
		if err != nil {
			h.Errorf("campaign: %v", err)
		}
		elected <- l
	}()
	if err := first.Publish(h.Context(), cluster.Plan{Version: 1}); err != nil {
		h.Errorf("publish: %v", err)
	}
	select {
	case <-first.Lost():
		h.Error("lost")
	case <-elected:
		h.Fatal("two lead")
	default:
	}
	for range 2 {
		if err := first.Resign(h.Context()); err != nil {
			h.Errorf("resign: %v", err)
		}
	}
	<-first.Lost()
	second := <-elected
	h.until(b, hints, func(v cluster.View) bool { return v.Leader == "node-b" })
	if err := first.Publish(h.Context(), cluster.Plan{Version: 2}); !errors.Is(err, cluster.ErrDeposed) {
		h.Errorf("publish gave %v", err)
	}
	if err := first.Evict(h.Context(), 0, change.Epoch{Incarnation: 1, Revision: 1}); !errors.Is(err, cluster.ErrDeposed) {
		h.Errorf("evict gave %v", err)
	}
	if err := second.Publish(h.Context(), cluster.Plan{Version: 2}); err != nil {
		h.Errorf("publish: %v", err)
	}
	if err := second.Resign(h.Context()); err != nil {
		h.Errorf("resign: %v", err)
	}
	if view := h.view(b); view.Leader != "" {
		h.Errorf("%q leads", view.Leader)
	}
}

func testCampaignEnds(h storeHarness) {
	s := h.Store()
	first := h.campaign(s, "node-a")
	ctx, cancel := context.WithCancel(h.Context())
	over := make(chan error)
	go func() {
		_, err := s.Campaign(ctx, "node-b")
		over <- err
	}()
	cancel()
	if err := <-over; !errors.Is(err, context.Canceled) {
		h.Errorf("campaign gave %v", err)
	}
	if err := first.Resign(h.Context()); err != nil {
		h.Errorf("resign: %v", err)
	}
	if view := h.view(s); view.Leader != "" {
		h.Errorf("%q leads", view.Leader)
	}
	h.campaign(s, "node-c")
}

func testPlans(h storeHarness) {
	s := h.Store()
	l := h.campaign(s, "node-a")
	plan := cluster.Plan{
		Version: 1, By: "node-a", Owners: []string{"node-a", "", "node-b"}, Cause: "cold start",
		Why: []uint8{0, 1, 0}, Reasons: []string{"x", "y"},
	}
	if err := l.Publish(h.Context(), plan); err != nil {
		h.Fatal(err)
	}
	got := h.view(s).Plan
	isPublished := got.Version == 1 && got.Cause == plan.Cause && got.By == "node-a"
	if !isPublished || got.Owner(2) != "node-b" || got.Reason(1) != "y" {
		h.Errorf("%+v", got)
	}
	for _, version := range []uint64{0, 3} {
		if err := l.Publish(h.Context(), cluster.Plan{Version: version}); err == nil || errors.Is(err, cluster.ErrDeposed) {
			h.Errorf("plan %d after 1 gave %v", version, err)
		}
	}
	if err := l.Publish(h.Context(), cluster.Plan{Version: 1, By: "node-x"}); err == nil || errors.Is(err, cluster.ErrDeposed) {
		h.Errorf("another plan 1 gave %v", err)
	}
	if err := l.Publish(h.Context(), cluster.Plan{Version: 2, By: "node-a"}); err != nil {
		h.Error(err)
	}
	if got := h.view(s).Plan; got.Version != 2 || got.Owners != nil {
		h.Errorf("%+v", got)
	}
}

func testEvict(h storeHarness) {
	s := h.Store()
	m := h.join(s, "a")
	l := h.campaign(s, "node-a")
	before := h.claim(m, 0, 1)
	revision := before[0].Epoch.Revision
	for _, e := range []change.Epoch{{Incarnation: 1}, {Incarnation: 1, Revision: revision + 1}, {Incarnation: 2, Revision: revision}} {
		if err := l.Evict(h.Context(), 0, e); err != nil {
			h.Error(err)
		}
	}
	if now := h.view(s).Owners[0]; now != before[0] {
		h.Errorf("%+v", now)
	}
	for range 2 {
		if err := l.Evict(h.Context(), 0, before[0].Epoch); err != nil {
			h.Error(err)
		}
	}
	if now := h.view(s).Owners; now[0] != (cluster.Owner{}) || now[1] != before[1] {
		h.Errorf("%+v", now[:2])
	}
	after := h.claim(m, 0, 1)
	if after[0].Epoch.Compare(before[0].Epoch) <= 0 || after[1] != before[1] {
		h.Errorf("%+v after %+v", after, before)
	}
	h.give(m, 0, before[0].Epoch)
	if now := h.view(s).Owners[0]; now != after[0] {
		h.Errorf("%+v", now)
	}
}

func testHints(h storeHarness) {
	s, other := h.Store(), h.Store()
	hints := s.Hints(h.Context())
	var m cluster.Membership
	var l cluster.Leadership
	var claimed []cluster.Owner
	beat := func(status cluster.Status) error {
		return m.Beat(h.Context(), cluster.Heartbeat{Node: "node-a", Process: "a", Status: status})
	}
	owned := func(p int, process string) func(cluster.View) bool {
		return func(v cluster.View) bool { return v.Owners[p].Process == process }
	}
	members := func(count int) func(cluster.View) bool {
		return func(v cluster.View) bool { return len(v.Members) == count }
	}
	leads := func(node string) func(cluster.View) bool {
		return func(v cluster.View) bool { return v.Leader == node }
	}
	is := func(status cluster.Status) func(cluster.View) bool {
		return func(v cluster.View) bool { return v.Members[0].Status == status }
	}
	steps := []struct {
		name   string
		do     func() error
		wanted func(cluster.View) bool
	}{
		{"join", func() error { m = h.join(other, "a"); return nil }, members(1)},
		{"status", func() error { return beat(cluster.StatusHealthy) }, is(cluster.StatusHealthy)},
		{"stopping", func() error { return beat(cluster.StatusStopping) }, is(cluster.StatusStopping)},
		{"claim", func() error { claimed = h.claim(m, 0, 1); return nil }, owned(1, "a")},
		{"give", func() error { h.give(m, 1, claimed[1].Epoch); return nil }, owned(1, "")},
		{"election", func() error { l = h.campaign(other, "node-a"); return nil }, leads("node-a")},
		{
			"plan", func() error { return l.Publish(h.Context(), cluster.Plan{Version: 1}) },
			func(v cluster.View) bool { return v.Plan.Version == 1 },
		},
		{"eviction", func() error { return l.Evict(h.Context(), 0, claimed[0].Epoch) }, owned(0, "")},
		{"resignation", func() error { return l.Resign(h.Context()) }, leads("")},
		{"leave", func() error { return m.Leave(h.Context()) }, members(0)},
	}
	for _, step := range steps {
		for drained := false; !drained; { // remaining hints of the earlier steps
			select {
			case <-hints:
			default:
				drained = true
			}
		}
		if err := step.do(); err != nil {
			h.Fatalf("%s: %v", step.name, err)
		}
		h.until(s, hints, step.wanted)
	}
}

func testHintsEnd(h storeHarness) {
	ctx, cancel := context.WithCancel(h.Context())
	hints := h.Store().Hints(ctx)
	cancel()
	for range hints { // until it is closed
	}
}
