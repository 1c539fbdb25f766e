package etcd

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/mongostream/streamer/cluster"
	devetcd "github.com/mongostream/streamer/dev/etcd"
	"github.com/mongostream/streamer/dev/mongo/devmongotest"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/internal/etcd/etcdtest"
)

// disabled is a proxy that takes no connections, and has broken those that it had.
func disabled(listen, upstream string) *toxiproxy.Proxy {
	return &toxiproxy.Proxy{Listen: listen, Upstream: upstream, Enabled: false}
}

// until looks at the cluster whenever it may have changed until it is as wanted.
func (p clusterPlace) until(s *ClusterStore, hints <-chan struct{}, wanted func(cluster.View) bool) {
	p.Helper()
	for range hints {
		if wanted(p.view(s)) {
			return
		}
	}
	p.Fatal("the hints ended")
}

func TestHintsComeBackAfterChangesThatNobodyCanTell(t *testing.T) {
	t.Parallel()
	p := own(t)
	link := p.link()
	s, other := p.store(link), p.store(nil)
	hints := s.Hints(t.Context())
	for round := range 2 {
		p.join(other, string(rune('a'+round)))
		p.until(other, hints, func(v cluster.View) bool { return len(v.Members) == 2*round+1 })
		if err := link.Proxy.Update(disabled(link.Proxy.Listen, link.Proxy.Upstream)); err != nil {
			t.Fatal(err)
		}
		p.join(other, string(rune('x'+round)))
		p.put(p.key("other"), "1")
		if round == 1 { // else the client reads on where it was
			if _, err := p.raw.Compact(t.Context(), p.view(other).Revision); err != nil {
				t.Fatal(err)
			}
		}
		link.Restart()
		p.until(other, hints, func(v cluster.View) bool { return len(v.Members) == 2*round+2 })
	}
}

func TestHeartbeatsThatTellNothingNewAreNoNews(t *testing.T) {
	t.Parallel()
	seen := make(statuses)
	put := func(key, value string, created bool) *clientv3.Event {
		kv := &mvccpb.KeyValue{Key: []byte(key), Value: []byte(value), CreateRevision: 5, ModRevision: 6}
		if created {
			kv.ModRevision = kv.CreateRevision
		}
		return &clientv3.Event{Type: clientv3.EventTypePut, Kv: kv}
	}
	gone := &clientv3.Event{Type: clientv3.EventTypeDelete, Kv: &mvccpb.KeyValue{Key: []byte("a")}}
	for i, step := range []struct {
		events []*clientv3.Event
		news   bool
	}{
		{nil, false},
		{[]*clientv3.Event{put("a", `{"status":"healthy"}`, false)}, true}, // not seen before
		{[]*clientv3.Event{put("a", `{"status":"healthy","metrics":{"rate":1}}`, false)}, false},
		{[]*clientv3.Event{put("a", `{"status":"healthy"}`, false), put("b", `{}`, true)}, true},
		{[]*clientv3.Event{put("a", `{"status":"healthy"}`, false), put("b", `{}`, false)}, false},
		{[]*clientv3.Event{put("a", `{"status":"stopping"}`, false), put("b", `{}`, false)}, true},
		{[]*clientv3.Event{put("b", `{"status":"healthy"}`, false), put("b", `{}`, false)}, true},
		{[]*clientv3.Event{put("a", `{"status":"stopping"}`, true)}, true}, // another process
		{[]*clientv3.Event{gone, put("b", `{}`, false)}, true},
		{[]*clientv3.Event{put("a", `{"node":"a","checks":{"status":true},"status":"healthy"}`, false)}, true},
		{[]*clientv3.Event{put("a", `{"status":"healthy"}`, false)}, false},
		{[]*clientv3.Event{put("a", `{"status":"healthy","news":1,"problems":[]}`, false)}, true}, // another problem
		{[]*clientv3.Event{put("a", `{"status":"healthy","news":1}`, false)}, false},
		{[]*clientv3.Event{put("a", `{"status":"healthy","news":2}`, false)}, true},
		{[]*clientv3.Event{put("a", `{"status":"healthy","checks":{"news":true},"news":3}`, false)}, true}, // without
		{[]*clientv3.Event{put("a", "garbage", false)}, true},
		{[]*clientv3.Event{put("a", `{"status":"healthy"}`, false)}, true},
	} {
		if news := seen.news(step.events); news != step.news {
			t.Errorf("step %d: %v", i, news)
		}
	}
}

// When a heartbeat arrived is known without a look at the cluster, while it is watched.
func TestHeartbeatsAreHeardBetweenTwoViews(t *testing.T) {
	t.Parallel()
	p := own(t)
	s, other := p.store(nil), p.store(nil)
	hints := s.Hints(t.Context())
	seat := p.join(other, "a")
	news := uint64(0)
	p.until(other, hints, func(v cluster.View) bool {
		beat, at := s.Heard(seat.node)
		if news == 0 || beat == 0 { // nothing is heard from before the watch of the members has begun
			news++
			if err := seat.Beat(t.Context(), cluster.Heartbeat{Node: seat.node, Process: seat.process, Status: cluster.StatusHealthy, News: news}); err != nil {
				t.Fatal(err)
			}
			return false
		}
		return v.Members[0].News == news && beat == v.Members[0].Beat && time.Since(at) < time.Minute
	})
	if beat, at := s.Heard("b"); beat != 0 || !at.IsZero() {
		t.Errorf("a node that is not there was heard at %v", at)
	}
	s.hear([]*clientv3.Event{{Type: clientv3.EventTypeDelete, Kv: &mvccpb.KeyValue{Key: []byte(s.keys.member(seat.node))}}})
	if beat, at := s.Heard(seat.node); beat != 0 || !at.IsZero() {
		t.Errorf("a node that is gone was heard at %v", at)
	}
}

// Twenty members look at the cluster when something has changed, and not because the others are as
// well as before: that would be a look of everybody for each heartbeat of everybody.
func TestHeartbeatsOfTwentyMembersWakeNobody(t *testing.T) {
	t.Parallel()
	const members, rounds = 20, 5
	p := own(t)
	s := p.store(nil)
	all := make([]*membership, members)
	for i := range all {
		all[i] = p.join(s, strconv.Itoa(i))
	}
	beat := func(i int, status cluster.Status, rate float64) {
		h := cluster.Heartbeat{Node: all[i].node, Process: all[i].process, Status: status, Load: cluster.Load{Rate: rate}}
		if err := all[i].Beat(t.Context(), h); err != nil {
			t.Error(err)
		}
	}
	hints := make([]<-chan struct{}, members)
	for i := range hints {
		hints[i] = s.Hints(t.Context())
	}
	is := func(wanted cluster.Status) func(cluster.View) bool {
		return func(v cluster.View) bool { return len(v.Members) == members && v.Members[0].Status == wanted }
	}
	statuses := []cluster.Status{cluster.StatusHealthy, cluster.StatusDegraded}
	for round := range 10 { // until those who watch have seen everybody, which other watches tell nothing of
		for i := range all[1:] {
			beat(1+i, cluster.StatusHealthy, 0)
		}
		beat(0, statuses[(round+1)%2], 0)
		for i := range hints {
			p.until(s, hints[i], is(statuses[(round+1)%2]))
		}
	}
	looks := make([]int, members)
	for round := range rounds {
		for i := range all {
			beat(i, cluster.StatusHealthy, float64(round+1))
		}
	}
	beat(0, cluster.StatusDegraded, 0)
	for i := range hints {
		p.until(s, hints[i], func(v cluster.View) bool {
			looks[i]++
			return is(cluster.StatusDegraded)(v)
		})
		if looks[i] > 2 { // for the last change, and perhaps for what was told before it was looked at
			t.Errorf("member %d has looked %d times for %d heartbeats of %d members and one change", i, looks[i], rounds, members)
		}
	}
}

// An etcd that is away for a while changes nothing: whoever was there is there, and hints go on.
func TestEtcdThatWasAwayFindsEverybodyAsBefore(t *testing.T) {
	t.Parallel()
	dir, listen := t.TempDir(), devmongotest.FreeAddress()
	start := func() (endpoints []string, stop func()) {
		server, err := devetcd.Listen(devetcd.Config{Dir: dir, Listen: listen})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		stopped := make(chan error, 1)
		go func() { stopped <- server.Run(ctx) }()
		return server.Endpoints(), func() {
			cancel()
			if err := <-stopped; err != nil {
				t.Errorf("etcd: %v", err)
			}
		}
	}
	endpoints, stop := start()
	raw := etcdtest.Client(t, endpoints)
	t.Cleanup(func() { _ = raw.Close() })
	p := clusterPlace{place{t, Config{Endpoints: endpoints, Prefix: "/streamer", Cluster: "c1", DialTimeout: time.Minute}, raw}}
	p.origin(1)
	s := p.store(nil)
	m := p.join(s, "a")
	owners := p.claim(m, 1, 2)
	hints := s.Hints(t.Context())
	stop()

	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	unknown := func(what string, err error) {
		t.Helper()
		if err == nil || errors.Is(err, cluster.ErrLeft) || errors.Is(err, cluster.ErrDeposed) ||
			!errors.Is(err, context.DeadlineExceeded) && fault.Of(err) != fault.EtcdUnreachable {
			t.Errorf("%s gave %v", what, err)
		}
	}
	_, err := s.View(ctx)
	unknown("view", err)
	_, err = m.Renew(ctx)
	unknown("renew", err)
	_, err = m.Claim(ctx, all())
	unknown("claim", err)
	unknown("beat", m.Beat(ctx, cluster.Heartbeat{Node: "node-a", Process: "a"}))
	_, err = s.Join(ctx, cluster.Heartbeat{Node: "node-b", Process: "b"}, time.Minute)
	unknown("join", err)
	_, err = s.Campaign(ctx, "node-a")
	unknown("campaign", err)

	_, stop = start()
	defer stop()
	called := time.Now()
	if ttl, err := m.Renew(t.Context()); ttl < time.Minute || ttl > time.Minute+time.Since(called) || err != nil {
		t.Errorf("renew gave %s, %v", ttl, err)
	}
	if now := p.claim(m, 1, 2); now[0] != owners[0] || now[1] != owners[1] {
		t.Errorf("%+v after %+v", now, owners)
	}
	p.join(s, "c")
	p.until(s, hints, func(v cluster.View) bool { return len(v.Members) == 2 })
}
