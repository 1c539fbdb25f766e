package etcd

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/internal/etcd/etcdtest"
)

type sending = func(context.Context) error

// nth lets meet stand in for the sending of a transaction: 1 is the next one.
func nth(l *etcdtest.Link, count int, meet func(ctx context.Context, send sending) error) {
	l.Next(func(ctx context.Context, send func(context.Context) error) error {
		if count > 1 {
			nth(l, count-1, meet)
			return send(ctx)
		}
		return meet(ctx, send)
	})
}

// lose has a transaction carried out and its answer lost. Late is the same request, to arrive once
// more.
func lose(l *etcdtest.Link, count int) (late *sending) {
	late = new(sending)
	nth(l, count, func(ctx context.Context, send sending) error {
		*late = send
		if err := send(ctx); err != nil {
			l.Error(err)
		}
		return lost
	})
	return late
}

func TestJoinWhoseAnswerGotLostIsKnownAsOnesOwn(t *testing.T) {
	t.Parallel()
	p := own(t)
	l := p.link()
	s := p.store(l)
	late := lose(l, 2) // the first one looks who is there
	m := p.join(s, "a")
	before := p.view(s)
	if len(before.Members) != 1 || *late == nil || p.leases() != 1 {
		t.Fatalf("%+v under %d leases", before.Members, p.leases())
	}
	if err := (*late)(t.Context()); err != nil {
		t.Error(err)
	}
	if after := p.view(s); after.Revision != before.Revision {
		t.Error("a join that arrived again has written something")
	}
	if err := m.Beat(t.Context(), cluster.Heartbeat{Node: "node-a", Process: "a"}); err != nil {
		t.Error(err)
	}
}

func TestJoinThatNobodyAnswersLeavesNothing(t *testing.T) {
	t.Parallel()
	p := own(t)
	l := p.link()
	s := p.store(l)
	ctx, cancel := context.WithCancel(t.Context())
	nth(l, 2, func(_ context.Context, send sending) error {
		if err := send(t.Context()); err != nil {
			t.Error(err)
		}
		cancel()
		return lost
	})
	if _, err := s.Join(ctx, cluster.Heartbeat{Node: "node-a", Process: "a"}, time.Minute); !errors.Is(err, context.Canceled) {
		t.Errorf("join gave %v", err)
	}
	if view := p.view(s); len(view.Members) != 0 || p.leases() != 0 {
		t.Errorf("%+v under %d leases", view.Members, p.leases())
	}
}

func TestClaimWhoseAnswerGotLostIsKnownAsOnesOwn(t *testing.T) {
	t.Parallel()
	p := newClusterPlace(t, etcdtest.Endpoints(t))
	l := p.link()
	s := p.store(l)
	m := p.join(s, "a")
	other := p.claim(p.join(p.store(nil), "b"), 7)
	late := lose(l, 2) // of three transactions
	owners := p.claim(m, all()...)
	view := p.view(s)
	if !slices.Equal(view.Owners, owners) || owners[7] != other[0] {
		t.Error("what was claimed is not what stands")
	}
	if err := (*late)(t.Context()); err != nil {
		t.Error(err)
	}
	if now := p.view(s); now.Revision != view.Revision {
		t.Error("a claim that arrived again has written something")
	}
}

func TestClaimThatArrivesAfterItsMembershipIsRefused(t *testing.T) {
	t.Parallel()
	p := newClusterPlace(t, etcdtest.Endpoints(t))
	l := p.link()
	s := p.store(l)
	m := p.join(s, "a")
	var late sending
	l.Next(func(_ context.Context, send func(context.Context) error) error {
		late = send
		return errors.New("not sent")
	})
	if _, err := m.Claim(t.Context(), []change.Partition{1}); err == nil {
		t.Error("claimed")
	}
	if err := m.Leave(t.Context()); err != nil {
		t.Fatal(err)
	}
	again := p.claim(p.join(s, "a"), 2)
	_ = late(t.Context())
	if now := p.view(s).Owners; now[1] != (cluster.Owner{}) || now[2] != again[0] {
		t.Errorf("%+v", now[:3])
	}
}

func TestGiftWhoseAnswerGotLostTakesNothingMore(t *testing.T) {
	t.Parallel()
	p := newClusterPlace(t, etcdtest.Endpoints(t))
	l := p.link()
	s := p.store(l)
	m, other := p.join(s, "a"), p.join(p.store(nil), "b")
	of := p.claim(m, 1)[0]
	var taken cluster.Owner
	l.Next(func(ctx context.Context, send func(context.Context) error) error {
		if err := send(ctx); err != nil {
			t.Error(err)
		}
		taken = p.claim(other, 1)[0]
		return lost
	})
	if err := m.Return(t.Context(), []change.Partition{1}, []change.Epoch{of.Epoch}); err != nil {
		t.Error(err)
	}
	if now := p.view(s).Owners[1]; now != taken || now.Process != "b" {
		t.Errorf("%+v", now)
	}
}

func TestPlanWhoseAnswerGotLostIsKnownAsOnesOwn(t *testing.T) {
	t.Parallel()
	p := newClusterPlace(t, etcdtest.Endpoints(t))
	l := p.link()
	s := p.store(l)
	leads, err := s.Campaign(t.Context(), "node-a")
	if err != nil {
		t.Fatal(err)
	}
	late := lose(l, 1)
	plan := cluster.Plan{Version: 1, By: "node-a", Owners: []string{"x"}}
	if err := leads.Publish(t.Context(), plan); err != nil {
		t.Error(err)
	}
	plan.Version, plan.Owners = 2, []string{"y"}
	if err := leads.Publish(t.Context(), plan); err != nil {
		t.Error(err)
	}
	if err := (*late)(t.Context()); err != nil {
		t.Error(err)
	}
	if got := p.view(s).Plan; got.Version != 2 || got.Owner(0) != "y" {
		t.Errorf("%+v", got)
	}

	// One that was carried out just before the leadership ended was published all the same; one
	// that was not, not.
	plan.Version = 3
	l.Next(func(ctx context.Context, send func(context.Context) error) error {
		if err := send(ctx); err != nil {
			t.Error(err)
		}
		if err := leads.Resign(ctx); err != nil {
			t.Error(err)
		}
		return lost
	})
	if err := leads.Publish(t.Context(), plan); err != nil {
		t.Error(err)
	}
	plan.Version = 4
	l.Next(func(context.Context, func(context.Context) error) error { return lost })
	if err := leads.Publish(t.Context(), plan); !errors.Is(err, cluster.ErrDeposed) {
		t.Errorf("publish gave %v", err)
	}
	if got := p.view(s).Plan; got.Version != 3 {
		t.Errorf("%+v", got)
	}
}

func TestEvictionThatArrivesLateTakesNothing(t *testing.T) {
	t.Parallel()
	p := newClusterPlace(t, etcdtest.Endpoints(t))
	l := p.link()
	s := p.store(l)
	m := p.join(s, "a")
	leads, err := s.Campaign(t.Context(), "node-a")
	if err != nil {
		t.Fatal(err)
	}
	late := lose(l, 1)
	if err := leads.Evict(t.Context(), 1, p.claim(p.join(p.store(nil), "b"), 1)[0].Epoch); err != nil {
		t.Error(err)
	}
	of := p.claim(m, 1)[0]
	if err := (*late)(t.Context()); err != nil {
		t.Error(err)
	}
	if now := p.view(s).Owners[1]; now != of || now.Process != "a" {
		t.Errorf("%+v", now)
	}
	if err := leads.Resign(t.Context()); err != nil {
		t.Error(err)
	}
}
