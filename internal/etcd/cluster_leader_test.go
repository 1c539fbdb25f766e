package etcd

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/internal/etcd/etcdtest"
)

// candidates returns the keys in the election, oldest first.
func (p clusterPlace) candidates() []string {
	p.Helper()
	oldestFirst := clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend)
	resp, err := p.raw.Get(p.Context(), p.key("leader/"), clientv3.WithPrefix(), oldestFirst)
	if err != nil {
		p.Fatal(err)
	}
	keys := make([]string, len(resp.Kvs))
	for i, kv := range resp.Kvs {
		keys[i] = string(kv.Key)
	}
	return keys
}

func (p clusterPlace) campaign(s *ClusterStore, node string) *leadership {
	p.Helper()
	l, err := s.Campaign(p.Context(), node)
	if err != nil {
		p.Fatal(err)
	}
	p.Cleanup(func() { _ = l.Resign(context.Background()) })
	return l.(*leadership)
}

func (p clusterPlace) wantDeposed(l cluster.Leadership, version uint64) {
	p.Helper()
	if err := l.Publish(p.Context(), cluster.Plan{Version: version, By: "deposed"}); !errors.Is(err, cluster.ErrDeposed) {
		p.Errorf("publish gave %v", err)
	}
}

// A leader that stands still for longer than its lease lives is another's predecessor, whatever it
// believes.
func TestLeaderThatIsCutOffIsReplacedAndRefused(t *testing.T) {
	t.Parallel()
	p := own(t)
	for name, toxic := range map[string]string{
		"requests get lost": `{"name": "cut", "type": "timeout", "stream": "upstream", "attributes": {"timeout": 0}}`,
		"answers get lost":  `{"name": "cut", "type": "timeout", "stream": "downstream", "attributes": {"timeout": 0}}`,
	} {
		link := p.link()
		first := p.campaign(p.brief(link), "first")
		heal := link.Spoil(toxic)
		second := p.campaign(p.store(nil), "second")
		plan := p.view(second.ClusterStore).Plan
		if err := second.Publish(t.Context(), cluster.Plan{Version: plan.Version + 1, By: "second"}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		<-first.Lost()
		heal()
		p.wantDeposed(first, plan.Version+2)
		p.wantDeposed(first, plan.Version+1)
		if now := p.view(second.ClusterStore); now.Leader != "second" || now.Plan.By != "second" {
			t.Errorf("%s: %q leads, with the plan of %q", name, now.Leader, now.Plan.By)
		}
		for _, l := range []*leadership{first, second} {
			if err := l.Resign(t.Context()); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

func TestLeaderThatCannotResignIsReplacedInTime(t *testing.T) {
	t.Parallel()
	p := own(t)
	link := p.link()
	first := p.campaign(p.brief(link), "first")
	heal := link.Cut()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := first.Resign(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("resign gave %v", err)
	}
	<-first.Lost()
	p.campaign(p.store(nil), "second")
	heal()
	p.wantDeposed(first, 1)
}

func TestLeaderLearnsThatItsKeyIsGone(t *testing.T) {
	t.Parallel()
	p := own(t)
	link := p.link()
	first := p.campaign(p.store(link), "first")
	// The connection breaks, and what happens until it is back is compacted.
	if err := link.Proxy.Update(disabled(link.Proxy.Listen, link.Proxy.Upstream)); err != nil {
		t.Fatal(err)
	}
	p.put(p.key("other"), "1")
	p.put(p.key("other"), "2")
	if _, err := p.raw.Compact(t.Context(), p.view(p.store(nil)).Revision); err != nil {
		t.Fatal(err)
	}
	link.Restart()
	if err := first.Publish(t.Context(), cluster.Plan{Version: 1}); err != nil {
		t.Error(err)
	}
	select {
	case <-first.Lost():
		t.Error("lost")
	default:
	}
	p.delete(p.candidates()[0])
	<-first.Lost()
	p.wantDeposed(first, 2)
	second := p.campaign(first.ClusterStore, "second")
	if err := second.Publish(t.Context(), cluster.Plan{Version: 2}); err != nil {
		t.Error(err)
	}
}

// A campaign ends with its context whatever etcd does, and leaves nothing behind once its lease has
// run out.
func TestCampaignEndsAlthoughEtcdDoesNotAnswer(t *testing.T) {
	t.Parallel()
	p := own(t)
	first := p.campaign(p.store(nil), "first")
	link := p.link()
	second := p.brief(link)
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan error, 1)
	waiting := p.raw.Watch(t.Context(), p.key("leader/"), clientv3.WithPrefix())
	go func() {
		_, err := second.Campaign(ctx, "second")
		over <- err
	}()
	<-waiting
	heal := link.Cut()
	cancel()
	if err := <-over; !errors.Is(err, context.Canceled) {
		t.Errorf("campaign gave %v", err)
	}
	for resp := range waiting {
		if len(resp.Events) > 0 && resp.Events[0].Type == clientv3.EventTypeDelete {
			break
		}
	}
	heal()
	if keys := p.candidates(); len(keys) != 1 || keys[0] != first.key {
		t.Errorf("%v", keys)
	}
}

// Whoever waits for longer than its lease lives is not elected.
func TestCampaignWhoseLeaseEndsIsNotElected(t *testing.T) {
	t.Parallel()
	p := newClusterPlace(t, etcdtest.Endpoints(t))
	first := p.campaign(p.store(nil), "first")
	second := p.store(nil)
	over := make(chan error, 1)
	waiting := p.raw.Watch(t.Context(), p.key("leader/"), clientv3.WithPrefix())
	go func() {
		_, err := second.Campaign(t.Context(), "second")
		over <- err
	}()
	event := (<-waiting).Events[0]
	if _, err := p.raw.Revoke(t.Context(), clientv3.LeaseID(event.Kv.Lease)); err != nil {
		t.Fatal(err)
	}
	if err := first.Resign(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-over; err == nil {
		t.Error("elected")
	}
	if view := p.view(second); view.Leader != "" {
		t.Errorf("%q leads", view.Leader)
	}
}

// Whatever the network does, each plan is published once and in its turn.
func TestPlansOverABadNetwork(t *testing.T) {
	t.Parallel()
	c := &chronicle{clusterPlace: newClusterPlace(t, etcdtest.Endpoints(t))}
	link := c.link()
	leads := c.campaign(c.store(link), "node-a")
	written := c.raw.Watch(t.Context(), c.key("plan"))
	done := make(chan struct{})
	var spoiling sync.WaitGroup
	end := sync.OnceFunc(func() { close(done); spoiling.Wait() })
	defer end()
	// Half of the time nothing is in the way: else a busy machine publishes hardly anything.
	spoiling.Go(func() { c.spoil([]*etcdtest.Link{link, c.link()}, rand.New(rand.NewPCG(1, 2)), done) })
	plans := uint64(0)
	for plans < 15 || link.Transactions.Load() < int64(plans)+15 { // until as many requests got lost
		plans++
		if err := leads.Publish(t.Context(), cluster.Plan{Version: plans, Cause: fmt.Sprint(plans)}); err != nil {
			t.Fatal(err)
		}
	}
	end()
	if plan := c.view(c.store(nil)).Plan; plan.Version != plans || plan.Cause != fmt.Sprint(plans) {
		t.Errorf("%+v", plan)
	}
	for seen := uint64(0); seen < plans; {
		for _, e := range (<-written).Events {
			seen++
			if plan, err := planOf([]*mvccpb.KeyValue{e.Kv}); err != nil || plan.Version != seen || plan.Cause != fmt.Sprint(seen) {
				t.Fatalf("write %d is %+v, %v", seen, plan, err)
			}
		}
	}
}
