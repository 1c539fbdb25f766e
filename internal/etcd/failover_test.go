package etcd

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/mongostream/streamer/checkpoint/checkpointtest"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/internal/etcd/etcdtest"
)

// Whatever happens to the one of three members that a client uses, its requests, renewals and
// watches go on at the others: long before it could have lost a lease of 5 s.
func TestFaultsOfOneMemberHoldNobodyUp(t *testing.T) {
	const leaseTTL = 5 * time.Second
	cluster := etcdtest.StartCluster(t, 3)
	for _, f := range etcdtest.Faults() {
		t.Run(f.Name, func(t *testing.T) {
			for late := 1; ; late++ {
				switch wrong := suffer(t, cluster, f, leaseTTL); {
				case wrong == "":
					return
				case late == 3:
					t.Errorf("for the third time: %s", wrong)
					return
				}
			}
		})
	}
}

// suffer has requests of every kind while a member has a fault, and returns what went wrong with
// one that failed or was late. The machine may have been busy then: of three times one must be in
// time.
func suffer(t *testing.T, cluster *etcdtest.Cluster, f etcdtest.Fault, leaseTTL time.Duration) (wrong string) {
	t.Helper()
	victim := f.Victim(cluster)
	requests := requestsOf(t, dialAt(t, cluster, victim, leaseTTL))
	limit := leaseTTL / 2
	if f.Leads {
		limit = leaseTTL // another member must be elected first
	}
	heal := f.Inject(victim)
	began := time.Now()
	var longest time.Duration
	for round := range 5 {
		for name, request := range requests {
			ctx, cancel := context.WithTimeout(t.Context(), 2*leaseTTL)
			asked := time.Now()
			err := request(ctx)
			took := time.Since(asked)
			cancel()
			if longest = max(longest, took); err != nil || took > limit {
				wrong = fmt.Sprintf("%s in round %d, %v after the fault, took %v: %v", name, round, asked.Sub(began), took, err)
			}
		}
	}
	t.Logf("the longest took %v", longest)
	heal()
	victim.Ready()
	return wrong
}

// dialAt connects a client whose first requests go to a member.
func dialAt(t *testing.T, cluster *etcdtest.Cluster, member *etcdtest.Member, leaseTTL time.Duration) *Client {
	t.Helper()
	for {
		client, err := Dial(t.Context(), Config{Endpoints: cluster.Endpoints(), Prefix: "/p", Cluster: "c1", DialTimeout: time.Minute, LeaseTTL: leaseTTL})
		if err != nil {
			t.Fatal(err)
		}
		if client.endpoints.choose(nil).address == member.Endpoint() {
			t.Cleanup(func() {
				if err := client.Close(); err != nil {
					t.Error(err)
				}
			})
			return client
		}
		if err := client.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// requestsOf are requests of every kind.
func requestsOf(t *testing.T, client *Client) map[string]func(context.Context) error {
	t.Helper()
	store := NewStore(client, checkpointtest.Partitions)
	if _, err := store.Create(t.Context(), checkpointtest.Origin("c1")); err != nil {
		t.Fatal(err)
	}
	id, _, err := grantLease(t.Context(), client, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	renewer := newLeaseRenewer(client, id)
	t.Cleanup(renewer.Close)
	if _, err := renewer.Renew(t.Context()); err != nil {
		t.Fatal(err)
	}
	watch := client.etcd.Watch(clientv3.WithRequireLeader(t.Context()), client.keys.plan(), clientv3.WithCreatedNotify())
	<-watch
	put := func(ctx context.Context) (revision int64, err error) {
		err = retryUncertain(ctx, func() error {
			resp, err := client.etcd.Put(ctx, client.keys.plan(), "")
			if err == nil {
				revision = resp.Header.Revision
			}
			return err
		})
		return revision, err
	}
	return map[string]func(context.Context) error{
		"read":  func(ctx context.Context) error { _, err := store.Origin(ctx); return err },
		"write": func(ctx context.Context) error { _, err := put(ctx); return err },
		"renew": func(ctx context.Context) error { _, err := renewer.Renew(ctx); return err },
		"watch": func(ctx context.Context) error {
			revision, err := put(ctx)
			for seen := int64(0); err == nil && seen < revision; {
				select {
				case resp := <-watch:
					seen, err = resp.Header.GetRevision(), resp.Err()
				case <-ctx.Done():
					err = ctx.Err()
				}
			}
			return err
		},
	}
}

// Where all endpoints are slow, none is at fault: answers are waited for, also those that take
// longer than an attempt may at first.
func TestAnswersOfAnEtcdThatIsSlowAreWaitedFor(t *testing.T) {
	t.Parallel()
	upstream := strings.TrimPrefix(etcdtest.Endpoints(t)[0], "http://")
	var links []*etcdtest.Link
	var endpoints []string
	for range 3 {
		l, endpoint := etcdtest.NewLink(t, upstream)
		links, endpoints = append(links, l), append(endpoints, endpoint)
	}
	const leaseTTL = 1200 * time.Millisecond // an attempt takes 100 ms at first
	prefix := etcdtest.Prefix(t, []string{upstream})
	client, err := Dial(t.Context(), Config{Endpoints: endpoints, Prefix: prefix, Cluster: "c1", DialTimeout: time.Minute, LeaseTTL: leaseTTL})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	requests := requestsOf(t, client)
	for _, l := range links {
		l.Spoil(`{"name": "late", "type": "latency", "stream": "upstream", "attributes": {"latency": 350}}`)
	}
	for name, request := range requests {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		if err := request(ctx); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		cancel()
	}
}

// A request that no endpoint answers ends, also where its context has no deadline.
func TestRequestWithoutADeadlineEnds(t *testing.T) {
	t.Parallel()
	upstream := etcdtest.Endpoints(t)
	var links []*etcdtest.Link
	var endpoints []string
	for range 3 {
		l, endpoint := etcdtest.NewLink(t, strings.TrimPrefix(upstream[0], "http://"))
		links, endpoints = append(links, l), append(endpoints, endpoint)
	}
	client, err := Dial(t.Context(), Config{
		Endpoints: endpoints, Prefix: etcdtest.Prefix(t, upstream), Cluster: "c1", DialTimeout: time.Minute, LeaseTTL: 1200 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	store := NewStore(client, checkpointtest.Partitions)
	for _, l := range links {
		l.Cut()
	}
	if _, err := store.Origin(t.Context()); fault.Of(err) != fault.EtcdUnreachable {
		t.Errorf("the request ended with %v", err)
	}
}
