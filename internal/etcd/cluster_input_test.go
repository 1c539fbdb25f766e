package etcd

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/checkpoint/checkpointtest"
	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/internal/etcd/etcdtest"
)

// lease grants a lease that is nobody's.
func (p clusterPlace) lease() clientv3.OpOption {
	p.Helper()
	granted, err := p.raw.Grant(p.Context(), 60)
	if err != nil {
		p.Fatal(err)
	}
	return clientv3.WithLease(granted.ID)
}

func TestHeartbeatsOfOtherVersionsAndGarbage(t *testing.T) {
	t.Parallel()
	p := newClusterPlace(t, etcdtest.Endpoints(t))
	s := p.store(nil)
	p.join(s, "ours")
	under := p.lease()
	newer := `{"node":"newer","process":"p","status":"dozing","partition_count":256,"era":{"x":[1]},"metrics":{"rate":2,"heat":1}}`
	p.put(p.key("member/newer"), newer, under)
	p.put(p.key("member/older"), `{"node":"older","process":"q"}`, under)
	p.put(p.key("member/a%%2Fb%%20%%C3%%A4"), `{"node":"a/b ä","process":"r"}`, under)
	garbage := map[string]string{
		"text": "not a heartbeat", "empty": "", "null-node": `{"node":""}`, "list": `[1]`, "number": `{"node":7}`,
		"other": `{"node":"ours","process":"x"}`, "types": `{"node":"types","checks":{"a":"b"}}`, "cut": `{"node":"cut","proc`,
	}
	for node, value := range garbage {
		p.put(p.key("member/%s", node), value, under)
	}
	p.put(p.key("member/for-ever"), `{"node":"for-ever","process":"f"}`)
	for _, foreign := range []string{"member/", "member/%zz", "member/a b", "member/x/y", "members", "member"} {
		p.put(p.key("%s", foreign), "stranger", under)
	}
	seen := make(map[string]cluster.Member)
	for _, seat := range p.view(s).Members {
		seen[seat.Node] = seat
	}
	if len(seen) != 5+len(garbage) {
		t.Errorf("%d members: %v", len(seen), seen)
	}
	if m := seen["newer"]; m.Garbled != nil || m.Status != "dozing" || m.Load.Rate != 2 || m.Count != n {
		t.Errorf("%+v", m)
	}
	if m := seen["older"]; m.Garbled != nil || m.Process != "q" || m.Status != "" {
		t.Errorf("%+v", m)
	}
	if m := seen["a/b ä"]; m.Garbled != nil || m.Process != "r" {
		t.Errorf("%+v", m)
	}
	garbage["for-ever"] = ""
	for node := range garbage {
		if m := seen[node]; m.Garbled == nil || m.Process != "" || m.Beat == 0 {
			t.Errorf("%q: %+v", node, m)
		}
	}

	// Whose name is taken by such a key is refused, and told whom to wait for or what to do.
	_, err := s.Join(t.Context(), cluster.Heartbeat{Node: "text", Process: "new"}, time.Minute)
	if held, ok := errors.AsType[*cluster.HeldError](err); !ok || held.Node != "text" || held.TTL <= 0 {
		t.Errorf("join gave %v", err)
	}
	_, err = s.Join(t.Context(), cluster.Heartbeat{Node: "for-ever", Process: "new"}, time.Minute)
	if fault.Of(err) != fault.ClusterCorrupt || !strings.Contains(err.Error(), p.key("member/for-ever")) {
		t.Errorf("join gave %v", err)
	}
}

func TestForeignKeysAmongOwnersAreLeftOut(t *testing.T) {
	t.Parallel()
	p := newClusterPlace(t, etcdtest.Endpoints(t))
	s := p.store(nil)
	m := p.join(s, "a")
	for _, foreign := range []string{"owner/", "owner/x", "owner/1", "owner/00300", "owner/99999", "owner/00001/x"} {
		p.put(p.key("%s", foreign), "stranger")
	}
	owners := p.claim(m, all()...)
	if now := p.view(s).Owners; now[1] != owners[1] || len(now) != n {
		t.Errorf("%+v", now[1])
	}
	p.join(p.store(nil), "b") // strangers' keys are no cluster of one
}

func TestOwnersThatCannotBeReadAreAFault(t *testing.T) {
	t.Parallel()
	p := newClusterPlace(t, etcdtest.Endpoints(t))
	s := p.store(nil)
	m := p.join(s, "a")
	p.claim(m, 1)
	for _, value := range []string{"", "garbage", `{"node":"x"}`, `{"process":"x"}`, `{"node":1}`} {
		p.put(p.key("owner/00002"), value)
		if _, err := s.View(t.Context()); fault.Of(err) != fault.ClusterCorrupt || !strings.Contains(err.Error(), p.key("owner/00002")) {
			t.Errorf("%q: view gave %v", value, err)
		}
	}
	// Members go on, and the partition is somebody's.
	got := p.claim(m, 1, 2, 3)
	if got[0].Process != "a" || got[1].Process == "a" || got[1].Epoch.Revision == 0 || got[2].Process != "a" {
		t.Errorf("%+v", got)
	}
	if err := m.Beat(t.Context(), cluster.Heartbeat{Node: "node-a", Process: "a"}); err != nil {
		t.Error(err)
	}
	p.delete(p.key("owner/00002"))
	if got := p.claim(m, 2); got[0].Process != "a" {
		t.Errorf("%+v", got)
	}
	p.view(s)
}

// A key that says that our process owns a partition, but is under another lease, is not ours.
func TestClaimUnderAnotherLeaseIsNotOnesOwn(t *testing.T) {
	t.Parallel()
	p := newClusterPlace(t, etcdtest.Endpoints(t))
	m := p.join(p.store(nil), "a")
	p.put(p.key("owner/00002"), `{"node":"node-a","process":"a"}`)
	if got := p.claim(m, 2); got[0].Process == "a" {
		t.Errorf("%+v", got)
	}
}

func TestPlanThatCannotBeReadIsAFault(t *testing.T) {
	t.Parallel()
	p := newClusterPlace(t, etcdtest.Endpoints(t))
	s := p.store(nil)
	leads, err := s.Campaign(t.Context(), "node-a")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = leads.Resign(t.Context()) }()
	if err := leads.Publish(t.Context(), cluster.Plan{Version: 1}); err != nil {
		t.Fatal(err)
	}
	p.put(p.key("plan"), "garbage")
	if _, err := s.View(t.Context()); fault.Of(err) != fault.ClusterCorrupt || !strings.Contains(err.Error(), p.key("plan")) {
		t.Errorf("view gave %v", err)
	}
	for _, value := range []string{"null", "{}", `{"node":"x"}`, `{"nodes":["x"],"places":[0]}`, `{"owners":["x"]}`, `{"version":-1}`, `{"version":1e300}`} {
		p.put(p.key("plan"), value)
		if _, err := s.View(t.Context()); fault.Of(err) != fault.ClusterCorrupt {
			t.Errorf("%s: view gave %v", value, err)
		}
	}
	p.put(p.key("plan"), `{"version":1,"nodes":["x"],"places":[0,1]}`)
	if _, err := s.View(t.Context()); fault.Of(err) != fault.ClusterCorrupt {
		t.Errorf("a plan that gives a partition to nobody that it names gave %v", err)
	}
	p.put(p.key("plan"), `{"version":99,"owners":["x"],"later":{}}`)
	plan := p.view(s).Plan
	if plan.Version != 11 || plan.Owner(0) != "x" {
		t.Errorf("%+v", plan)
	}
	if err := leads.Publish(t.Context(), cluster.Plan{Version: plan.Version + 1}); err != nil {
		t.Error(err)
	}
	p.delete(p.key("plan"))
	if plan := p.view(s).Plan; plan.Version != 0 {
		t.Errorf("%+v", plan)
	}
	if err := leads.Publish(t.Context(), cluster.Plan{Version: 1}); err != nil {
		t.Error(err)
	}
}

func TestStrangerWhoCannotBeVotedOutIsAFault(t *testing.T) {
	t.Parallel()
	p := newClusterPlace(t, etcdtest.Endpoints(t))
	s := p.store(nil)
	p.put(p.key("leader/stranger"), "stranger")
	if leader := p.view(s).Leader; leader != "" {
		t.Errorf("%q leads", leader)
	}
	_, err := s.Campaign(t.Context(), "node-a")
	if fault.Of(err) != fault.ClusterCorrupt || !strings.Contains(err.Error(), p.key("leader/stranger")) {
		t.Errorf("campaign gave %v", err)
	}
	p.delete(p.key("leader/stranger"))
	leads, err := s.Campaign(t.Context(), "node-a")
	if err != nil {
		t.Fatal(err)
	}
	if err := leads.Resign(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestOriginIsNeededAndMustFit(t *testing.T) {
	t.Parallel()
	p := newClusterPlace(t, etcdtest.Endpoints(t))
	wrong := NewClusterStore(p.dial(nil), ClusterConfig{Partitions: 64})
	first := cluster.Heartbeat{Node: "node-a", Process: "a"}
	calls := map[string]func(s *ClusterStore) error{
		"view":     func(s *ClusterStore) error { _, err := s.View(t.Context()); return err },
		"join":     func(s *ClusterStore) error { _, err := s.Join(t.Context(), first, time.Minute); return err },
		"campaign": func(s *ClusterStore) error { _, err := s.Campaign(t.Context(), "node-a"); return err },
	}
	for name, call := range calls {
		if err := call(wrong); fault.Of(err) != fault.CheckpointPartitions {
			t.Errorf("%s of another number of partitions gave %v", name, err)
		}
	}
	p.delete(p.key("origin"))
	for name, call := range calls {
		if err := call(p.store(nil)); !errors.Is(err, checkpoint.ErrNoOrigin) {
			t.Errorf("%s without an origin gave %v", name, err)
		}
	}
	if resp, err := p.raw.Get(t.Context(), p.key(""), clientv3.WithPrefix()); err != nil || resp.Count != 0 {
		t.Errorf("%v, %v", resp, err)
	}
}

// An operator who adopts the marks ends every membership and leadership.
func TestAdoptionEndsEverything(t *testing.T) {
	t.Parallel()
	p := newClusterPlace(t, etcdtest.Endpoints(t))
	s := p.store(nil)
	m := p.join(s, "a")
	old := p.claim(m, 1)[0]
	leads, err := s.Campaign(t.Context(), "node-a")
	if err != nil {
		t.Fatal(err)
	}
	first := checkpointtest.Origin("c1")
	second := first
	second.Incarnation++
	if err := NewStore(p.dial(nil), n).Adopt(t.Context(), first, second); err != nil {
		t.Fatal(err)
	}
	if now := p.view(s).Owners[1]; now != old || now.Epoch.Incarnation != 1 {
		t.Errorf("what was claimed before the adoption is %+v", now)
	}
	if err := m.Beat(t.Context(), cluster.Heartbeat{Node: "node-a", Process: "a"}); !errors.Is(err, cluster.ErrLeft) {
		t.Errorf("beat gave %v", err)
	}
	if _, err := m.Claim(t.Context(), []change.Partition{1, 2}); !errors.Is(err, cluster.ErrLeft) {
		t.Errorf("claim gave %v", err)
	}
	if err := leads.Publish(t.Context(), cluster.Plan{Version: 1}); !errors.Is(err, cluster.ErrDeposed) {
		t.Errorf("publish gave %v", err)
	}
	if err := leads.Evict(t.Context(), 1, old.Epoch); !errors.Is(err, cluster.ErrDeposed) {
		t.Errorf("evict gave %v", err)
	}
	if err := leads.Resign(t.Context()); err != nil {
		t.Error(err)
	}
	// A new leader can evict what is left from before.
	if leads, err = s.Campaign(t.Context(), "node-b"); err != nil {
		t.Fatal(err)
	}
	if err := leads.Evict(t.Context(), 1, old.Epoch); err != nil {
		t.Error(err)
	}
	if now := p.view(s).Owners[1]; now != (cluster.Owner{}) {
		t.Errorf("%+v", now)
	}
	if err := leads.Resign(t.Context()); err != nil {
		t.Error(err)
	}
	if young := p.claim(p.join(s, "a"), 1)[0]; young.Epoch.Incarnation != 2 {
		t.Errorf("%+v", young)
	}
}

func TestOperatorEndsAMembership(t *testing.T) {
	t.Parallel()
	p := newClusterPlace(t, etcdtest.Endpoints(t))
	s := p.store(nil)
	m := p.join(s, "a")
	p.claim(m, 1)
	p.delete(p.key("member/node-a"))
	if err := m.Beat(t.Context(), cluster.Heartbeat{Node: "node-a", Process: "a"}); !errors.Is(err, cluster.ErrLeft) {
		t.Errorf("beat gave %v", err)
	}
	if _, err := m.Claim(t.Context(), []change.Partition{1}); !errors.Is(err, cluster.ErrLeft) {
		t.Errorf("claim gave %v", err)
	}
	if view := p.view(s); len(view.Members) != 0 || view.Owners[1].Process != "a" {
		t.Errorf("%+v", view.Owners[1])
	}
	// The process comes back, and what is under its old lease goes.
	again := p.join(s, "a")
	if now := p.view(s).Owners[1]; now != (cluster.Owner{}) {
		t.Errorf("%+v", now)
	}
	if _, err := p.raw.Revoke(t.Context(), again.lease); err != nil {
		t.Fatal(err)
	}
	if _, err := again.Renew(t.Context()); !errors.Is(err, cluster.ErrLeft) {
		t.Errorf("renew gave %v", err)
	}
}

func TestLeaseBelowTheLeastOfEtcdIsWhatRenewalsTell(t *testing.T) {
	t.Parallel()
	p := own(t)
	s := p.store(nil)
	for ttl, want := range map[time.Duration]time.Duration{
		time.Nanosecond:         time.Second, // the least of the development etcd
		2500 * time.Millisecond: 3 * time.Second,
	} {
		for err := cluster.ErrLeft; errors.Is(err, cluster.ErrLeft); { // a busy machine may be too slow to renew in time
			var m cluster.Membership
			if m, err = s.Join(t.Context(), cluster.Heartbeat{Node: "node-a", Process: "a"}, ttl); err != nil {
				t.Fatal(err)
			}
			var got time.Duration
			if got, err = m.Renew(t.Context()); !errors.Is(err, cluster.ErrLeft) && (got != want || err != nil) {
				t.Errorf("asked for %s, renew gave %s, %v", ttl, got, err)
			}
		}
	}
}

func TestUserWithoutRightsIsRefused(t *testing.T) {
	t.Parallel()
	p := own(t)
	ctx := t.Context()
	for _, step := range []func() error{
		func() error { _, err := p.raw.UserAdd(ctx, "root", "toor"); return err },
		func() error { _, err := p.raw.UserGrantRole(ctx, "root", "root"); return err },
		func() error { _, err := p.raw.UserAdd(ctx, "reader", "secret"); return err },
		func() error { _, err := p.raw.RoleAdd(ctx, "reader"); return err },
		func() error {
			all, read := clientv3.GetPrefixRangeEnd(p.key("")), clientv3.PermissionType(clientv3.PermRead)
			_, err := p.raw.RoleGrantPermission(ctx, "reader", p.key(""), all, read)
			return err
		},
		func() error { _, err := p.raw.UserGrantRole(ctx, "reader", "reader"); return err },
		func() error { _, err := p.raw.AuthEnable(ctx); return err },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	p.cfg.Username, p.cfg.Password = "root", "toor"
	root := p.dial(nil)
	defer func() { // whoever cleans up has no password
		if _, err := root.etcd.AuthDisable(context.WithoutCancel(ctx)); err != nil {
			t.Error(err)
		}
	}()
	member := p.join(NewClusterStore(root, ClusterConfig{Partitions: n}), "a")
	p.cfg.Username, p.cfg.Password = "reader", "secret"
	s := p.store(nil)
	if view := p.view(s); len(view.Members) != 1 {
		t.Errorf("%+v", view.Members)
	}
	if _, err := s.Join(ctx, cluster.Heartbeat{Node: "node-b", Process: "b"}, time.Minute); fault.Of(err) != fault.EtcdRefused {
		t.Errorf("join gave %v", err)
	}
	if _, err := s.Campaign(ctx, "node-b"); fault.Of(err) != fault.EtcdRefused {
		t.Errorf("campaign gave %v", err)
	}
	hints := s.Hints(ctx)
	<-hints
	p.claim(member, 1)
	<-hints
}

// FuzzClusterState reads any bytes as what stands in the cluster.
func FuzzClusterState(f *testing.F) {
	f.Add("node-a", []byte(`{"node":"node-a","process":"p","partitions":[{"id":1,"epoch":{"Incarnation":1,"Revision":2}}]}`))
	f.Add("a%2Fb", []byte(`{"owners":["a",""],"why":"AAE="}`))
	f.Add("plan", []byte(`{"nodes":["a"],"places":[0,1,-1]}`))
	f.Add("%zz", []byte("garbage"))
	f.Fuzz(func(t *testing.T, name string, value []byte) {
		keys := (&Client{}).keys
		kvs := []*mvccpb.KeyValue{{Key: []byte(keys.members() + name), Value: value, Lease: 1, CreateRevision: 1, ModRevision: 2, Version: 3}}
		for _, seat := range membersOf(keys, kvs) {
			if keys.member(seat.Node) != string(kvs[0].Key) || seat.Garbled != nil && seat.Process != "" {
				t.Errorf("%+v", seat)
			}
		}
		if plan, err := planOf(kvs); err == nil && plan.Version != 3 || err != nil && fault.Of(err) == "" {
			t.Errorf("%+v, %v", plan, err)
		}
		kvs[0].Key = []byte(keys.owner(3))
		stands := originState{Origin: checkpointtest.Origin("c1"), Revision: 1}
		if owners, err := ownersOf(keys, stands, kvs); err == nil && (owners[3].Node == "" || owners[3].Epoch.Revision != 2) {
			t.Errorf("%+v", owners[3])
		}
		make(statuses).news([]*clientv3.Event{{Type: clientv3.EventTypePut, Kv: kvs[0]}})
	})
}
