package etcd

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/internal/etcd/etcdtest"
)

// solo claims everything as a cluster of one does.
func (p clusterPlace) solo(takeOver bool) (*Registry, []change.Epoch, error) {
	p.Helper()
	r := NewRegistry(p.dial(nil))
	epochs, err := r.Claim(p.Context(), cluster.Identity{Node: "solo", Process: "s"}, n, time.Minute, takeOver)
	return r, epochs, err
}

func TestClusterOfOneKeepsMembersOut(t *testing.T) {
	t.Parallel()
	p := newClusterPlace(t, etcdtest.Endpoints(t))
	early := p.store(nil)
	m := p.join(early, "early")
	_, _, err := p.solo(false)
	held, ok := errors.AsType[*cluster.HeldError](err)
	if !ok || held.Node != "node-early" || held.Process != "early" || held.TTL <= 0 {
		t.Fatalf("a cluster of one that claimed beside a member got %v", err)
	}

	// When it is told to take over the member is out, whatever it had.
	p.claim(m, 3)
	alone, epochs, err := p.solo(true)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Renew(t.Context()); !errors.Is(err, cluster.ErrLeft) {
		t.Errorf("renew gave %v", err)
	}
	if now := p.view(early).Owners; now[3].Process != "s" || now[3].Epoch != epochs[3] {
		t.Errorf("%+v", now[3])
	}
	_, err = early.Join(t.Context(), cluster.Heartbeat{Node: "node-b", Process: "b"}, time.Minute)
	if held, ok = errors.AsType[*cluster.HeldError](err); !ok || held.Node != "solo" || held.Process != "s" || held.TTL <= 0 {
		t.Fatalf("join gave %v", err)
	}
	if err := alone.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	young := p.claim(p.join(early, "b"), 3)
	if young[0].Process != "b" || young[0].Epoch.Compare(epochs[3]) <= 0 {
		t.Errorf("%+v", young)
	}
}

// Whatever either of them sees first, no partition has two owners.
func TestClusterOfOneAndMemberThatComeAtOnceShareNothing(t *testing.T) {
	t.Parallel()
	endpoints := etcdtest.Endpoints(t)
	for range 8 {
		p := newClusterPlace(t, endpoints)
		s := p.store(nil)
		var wg sync.WaitGroup
		var alone []change.Epoch
		var soloErr error
		wg.Go(func() { _, alone, soloErr = p.solo(false) })
		var mine []cluster.Owner
		m, err := s.Join(t.Context(), cluster.Heartbeat{Node: "node-a", Process: "a"}, time.Minute)
		if err == nil {
			mine = p.claim(m, all()...)
		} else if _, ok := errors.AsType[*cluster.HeldError](err); !ok {
			t.Errorf("join gave %v", err)
		}
		wg.Wait()
		if _, ok := errors.AsType[*cluster.HeldError](soloErr); soloErr != nil && !ok {
			t.Errorf("claim gave %v", soloErr)
		}
		now := p.view(s).Owners
		for i, o := range mine {
			if o.Process == "a" && (alone != nil || now[i] != o) {
				t.Fatalf("partition %d is the member's, but stands as %+v; the cluster of one has all: %v", i, now[i], alone != nil)
			}
		}
		for i, e := range alone {
			if now[i].Process != "s" || now[i].Epoch != e {
				t.Fatalf("partition %d is the cluster of one's, but stands as %+v", i, now[i])
			}
		}
	}
}
