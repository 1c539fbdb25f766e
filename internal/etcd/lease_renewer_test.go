package etcd

import (
	"strings"
	"testing"
	"time"

	"github.com/mongostream/streamer/internal/etcd/etcdtest"
)

// A renewal counts from when the request was sent that was answered, at whichever endpoint: neither
// earlier, which would give the node less time than it has, nor later, which would give it more.
func TestRenewalCountsFromTheRequestThatWasAnswered(t *testing.T) {
	t.Parallel()
	const ttl, attempt = 60 * time.Second, 200 * time.Millisecond
	upstream := etcdtest.Endpoints(t)
	var links []*etcdtest.Link
	var endpoints []string
	for range 3 {
		l, endpoint := etcdtest.NewLink(t, strings.TrimPrefix(upstream[0], "http://"))
		links, endpoints = append(links, l), append(endpoints, endpoint)
	}
	client, err := Dial(t.Context(), Config{
		Endpoints: endpoints, Prefix: etcdtest.Prefix(t, upstream), Cluster: "c1", DialTimeout: time.Minute, LeaseTTL: 12 * attempt,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	id, _, err := grantLease(t.Context(), client, ttl)
	if err != nil {
		t.Fatal(err)
	}
	renewer := newLeaseRenewer(client, id)
	defer renewer.Close()
	moved := 0
	for _, l := range links {
		if _, err := renewer.Renew(t.Context()); err != nil {
			t.Fatal(err)
		}
		heal, before := l.Cut(), renewer.stream
		called := time.Now()
		life, err := renewer.Renew(t.Context())
		took := time.Since(called)
		heal()
		if err != nil || life < ttl || life > ttl+took {
			t.Errorf("the lease lives for %v after a call that took %v: %v", life, took, err)
		}
		if renewer.stream != before {
			moved++
			if life < ttl+attempt {
				t.Errorf("the lease lives for %v, as if the request that got no answer had got it", life)
			}
		}
	}
	if moved == 0 {
		t.Error("no endpoint of the stream was cut")
	}
}
