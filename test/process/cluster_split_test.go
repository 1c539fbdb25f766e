package process

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/mongostream/streamer/client"
)

// toxics are the ways in which etcd can be away, for all nodes at once.
func toxics() map[string][]string {
	const mute = `{"name": "%s", "type": "timeout", "stream": "%s", "attributes": {"timeout": 0}}`
	toxic := func(name, stream string) string {
		return strings.NewReplacer(`"%s", "type"`, `"`+name+`", "type"`, `"stream": "%s"`, `"stream": "`+stream+`"`).Replace(mute)
	}
	return map[string][]string{
		"requests do not arrive": {toxic("up", "upstream")},
		"answers do not arrive":  {toxic("down", "downstream")},
		"nothing arrives":        {toxic("up", "upstream"), toxic("down", "downstream")},
		"everything is late":     {`{"name": "late", "type": "latency", "stream": "upstream", "attributes": {"latency": 5000}}`},
		"connections are reset":  {`{"name": "reset", "type": "reset_peer", "stream": "upstream", "attributes": {"timeout": 50}}`},
	}
}

// etcd is away for longer than leases live, in one way after the other. Nodes end their terms and
// hand nothing to anybody, until it is back; then they soon own everything again, and nobody misses
// anything. Gateways are served all the while.
func TestNobodyHandsOutAnythingWhileEtcdIsAway(t *testing.T) {
	t.Parallel()
	away(t, fleetTTL+time.Second, toxics())
}

func away(t *testing.T, length time.Duration, ways map[string][]string) {
	f := newFleet(t, "etcd", 3)
	f.begin()
	g := f.attend("g", client.All, f.addresses()...)
	stop := f.write(200)
	for name, spoils := range ways {
		before := f.settled(nil, patience)
		var heals []func()
		began := time.Now()
		for _, s := range f.ships {
			for _, spoil := range spoils {
				heals = append(heals, s.link.Spoil(spoil))
			}
		}
		for _, s := range f.ships {
			until(t, name+": "+s.name+" is detached", func() bool { return metric(t, s.url(), "streamer_sharding_detached") == 1 })
			if !follow(t, s.url()+"/v1/events").comes(": connected") {
				t.Errorf("%s: /v1/events of %s does not serve whoever needs no owner", name, s.name)
			}
			if a := ask(t, s.url()+"/readyz"); a.status != http.StatusOK {
				t.Errorf("%s: %s says that it is not ready, although it serves clients", name, s.name)
			}
		}
		detached := time.Since(began)
		rest := time.NewTimer(time.Until(began.Add(length)))
		<-rest.C
		healed := time.Now()
		for _, heal := range heals {
			heal()
		}
		deadline := began.Add(fleetDeadline)
		if got := f.between(deadline, deadline, healed); len(got) > 0 {
			t.Errorf("%s: %d events were printed after the deadline, the last by %s after %v", name, len(got), got[len(got)-1].by, got[len(got)-1].at.Sub(began))
		}
		if got := f.between(time.Time{}, deadline.Add(5*time.Second), healed); len(got) > 0 { // if it lasts that long
			t.Errorf("%s: %d older events were printed 5 s after the deadline", name, len(got))
		}
		if n := g.between(time.Time{}, deadline, healed); n == 0 {
			t.Errorf("%s: the gateway got nothing after the deadline, although it needs no owner", name)
		}
		took := f.again(before, "", healed)
		t.Logf("%s: all detached after %v, delivered again %v after it was back", name, detached, took)
		if took > 4*time.Second*pace {
			t.Errorf("%s: delivered again only %v after it was back", name, took)
		}
		f.settled(before, patience)
	}
	stop()
	g.judge()
	f.judge()
}

// etcd stops and starts again, with the marks in MongoDB all the while: nodes are detached although
// their marks could be saved.
func TestClusterOutlivesARestartOfEtcd(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "mongo", 2)
	f.begin()
	g := f.attend("g", client.All, f.addresses()...)
	stop := f.write(200)
	before := f.settled(nil, patience)
	began := time.Now()
	f.server.end()
	for _, s := range f.ships {
		until(t, s.name+" is detached", func() bool { return metric(t, s.url(), "streamer_sharding_detached") == 1 })
	}
	rest := time.NewTimer(time.Until(began.Add(fleetTTL + time.Second)))
	<-rest.C
	back := time.Now()
	f.startEtcd(f.dir)
	deadline := began.Add(fleetDeadline)
	if got := f.between(deadline, deadline, back); len(got) > 0 {
		t.Errorf("%d events were printed after the deadline", len(got))
	}
	if n := g.between(time.Time{}, deadline, back); n == 0 {
		t.Error("the gateway got nothing after the deadline, although it needs no owner")
	}
	back = time.Now()
	took := f.again(before, "", back)
	t.Logf("delivered again %v after it was back", took)
	if took > 4*time.Second*pace {
		t.Errorf("delivered again only %v after it was back", took)
	}
	stop()
	g.judge()
	f.judge()
}
