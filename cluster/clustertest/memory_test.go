package clustertest

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/handoff"
	"github.com/mongostream/streamer/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func join(t *testing.T, s cluster.Store, node, process string, ttl time.Duration) cluster.Membership {
	t.Helper()
	joined, err := s.Join(t.Context(), cluster.Heartbeat{Node: node, Process: process}, ttl)
	if err != nil {
		t.Fatal(err)
	}
	return joined
}

func lookAt(t *testing.T, s cluster.Store) cluster.View {
	t.Helper()
	now, err := s.View(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return now
}

func TestLeaseOfANodeThatIsCutOffRunsOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMemory(4, nil)
		a, b := m.For("a"), m.For("b")
		joined := join(t, a, "a", "1", 10*time.Second)
		if _, err := joined.Claim(t.Context(), []change.Partition{0, 1}); err != nil {
			t.Fatal(err)
		}
		leads, err := a.Campaign(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		m.SetElectionTTL(5 * time.Second)
		m.Cut("a", true)
		if _, err := joined.Renew(t.Context()); !errors.Is(err, ErrCut) {
			t.Errorf("renew gave %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		hints := b.Hints(ctx)
		began := time.Now()
		<-hints
		<-hints
		<-leads.Lost()
		if now := lookAt(t, b); time.Since(began) != 5*time.Second || now.Leader != "" || len(now.Members) != 1 {
			t.Errorf("after %s: %+v", time.Since(began), now)
		}
		<-hints
		if now := lookAt(t, b); time.Since(began) != 10*time.Second || len(now.Members) != 0 || now.Owners[1] != (cluster.Owner{}) {
			t.Errorf("after %s: %+v", time.Since(began), now)
		}
		m.Cut("a", false)
		if _, err := joined.Renew(t.Context()); !errors.Is(err, cluster.ErrLeft) {
			t.Errorf("renew gave %v", err)
		}
		if err := leads.Publish(t.Context(), cluster.Plan{Version: 1}); !errors.Is(err, cluster.ErrDeposed) {
			t.Errorf("publish gave %v", err)
		}
		cancel()
		for range hints { // until it is closed
		}
	})
}

func TestKilledProcessLeavesItsLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMemory(4, nil)
		first := join(t, m.For("a"), "a", "1", 3*time.Second)
		if _, err := m.For("a").Campaign(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		m.Kill("a")
		if _, err := first.Renew(t.Context()); !errors.Is(err, ErrCut) {
			t.Errorf("renew gave %v", err)
		}
		second := m.For("a")
		if _, err := second.Join(t.Context(), cluster.Heartbeat{Node: "a", Process: "2"}, time.Second); err == nil {
			t.Error("joined beside the killed process")
		}
		began := time.Now()
		if _, err := second.Campaign(t.Context(), "a"); err != nil || time.Since(began) != ElectionTTL {
			t.Errorf("elected after %s, %v", time.Since(began), err)
		}
		join(t, second, "a", "2", time.Second)
	})
}

func TestMutedWriteIsCarriedOut(t *testing.T) {
	m := NewMemory(4, nil)
	joined := join(t, m.For("a"), "a", "1", time.Minute)
	m.Mute("a")
	lookAt(t, m.For("a"))
	if _, err := joined.Claim(t.Context(), []change.Partition{2}); !errors.Is(err, ErrCut) {
		t.Errorf("claim gave %v", err)
	}
	now := lookAt(t, m.For("a"))
	owners, err := joined.Claim(t.Context(), []change.Partition{2})
	if err != nil || owners[0] != now.Owners[2] || owners[0].Process != "1" || owners[0].Epoch.Revision != uint64(m.Revision()) {
		t.Errorf("%+v and then %+v, %v", now.Owners[2], owners, err)
	}
	m.Garble("a")
	if now = lookAt(t, m.For("a")); now.Members[0].Garbled == nil || now.Members[0].Process != "" {
		t.Errorf("garbled: %+v", now.Members)
	}
}

func TestCallOfAnEndedContextIsNotMade(t *testing.T) {
	m := NewMemory(4, nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	before := m.Revision()
	_, err := m.For("a").Join(ctx, cluster.Heartbeat{Node: "a"}, time.Minute)
	if !errors.Is(err, context.Canceled) || m.Revision() != before {
		t.Errorf("join gave %v", err)
	}
}

func TestMemoryIsAStore(t *testing.T) {
	TestStore(t, func(*testing.T) StoreHarness {
		m := NewMemory(256, nil)
		nodes := 0
		return StoreHarness{Partitions: 256, Store: func() cluster.Store {
			nodes++
			return m.For(string(rune('a' + nodes)))
		}, Directives: func() handoff.DirectiveStore { return m.Operator("operator") }}
	})
}
