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
		soon(t, name, func() time.Duration { return f.away(name, g, length, spoils) })
	}
	stop()
	g.judge()
	f.judge()
}

// soon fails the test where delivery resumes late after etcd is back. The machine may have been
// busy then: of three times one must be in time.
func soon(t *testing.T, name string, once func() (took time.Duration)) {
	t.Helper()
	const most = 4 * time.Second * pace
	for late := 1; ; late++ {
		switch took := once(); {
		case took <= most:
			return
		case late == 3:
			t.Errorf("%s: delivered again only %v after it was back, for the third time", name, took)
			return
		}
	}
}

// away has etcd away in one way for a time, and returns how long it took then until everything was
// delivered again.
func (f *fleet) away(name string, g *guest, length time.Duration, spoils []string) (took time.Duration) {
	t := f.t
	t.Helper()
	before := f.settled(nil, patience)
	var heals []func()
	for _, s := range f.ships {
		for _, spoil := range spoils {
			heals = append(heals, s.link.Spoil(spoil))
		}
	}
	began := time.Now() // after the last renewal that etcd may have had
	for _, s := range f.ships {
		until(t, name+": "+s.name+" is detached", func() bool { return metric(t, s.url(), "streamer_sharding_detached") == 1 })
		if !follow(t, s.url()+"/v1/events").comes(": connected") {
			t.Errorf("%s: /v1/events of %s does not serve whoever needs no owner", name, s.name)
		}
		if a := ask(t, s.url()+"/readyz"); a.status != http.StatusOK {
			t.Errorf("%s: %s says that it is not ready, although it serves clients", name, s.name)
		}
	}
	detached, deadline := time.Since(began), began.Add(fleetDeadline)
	rest := time.NewTimer(time.Until(began.Add(length)))
	<-rest.C
	until(t, name+": the gateway, which needs no owner, is served after the deadline", func() bool { return g.between(time.Time{}, deadline, time.Now()) > 0 })
	healed := time.Now()
	for _, heal := range heals {
		heal()
	}
	if got := f.between(deadline, deadline, healed); len(got) > 0 {
		t.Errorf("%s: %d events were printed after the deadline, the last by %s after %v", name, len(got), got[len(got)-1].by, got[len(got)-1].at.Sub(began))
	}
	if got := f.between(time.Time{}, deadline.Add(5*time.Second), healed); len(got) > 0 { // if it lasts that long
		t.Errorf("%s: %d older events were printed 5 s after the deadline", name, len(got))
	}
	took = f.again(before, "", healed)
	t.Logf("%s: all detached after %v, delivered again %v after it was back", name, detached, took)
	f.settled(before, patience)
	return took
}

// etcd stops and starts again, with the marks in MongoDB all the while: nodes are detached although
// their marks could be saved.
func TestClusterOutlivesARestartOfEtcd(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "mongo", 2)
	f.begin()
	g := f.attend("g", client.All, f.addresses()...)
	stop := f.write(200)
	soon(t, "a restart", func() time.Duration {
		before := f.settled(nil, patience)
		f.server.end()
		began := time.Now()
		for _, s := range f.ships {
			until(t, s.name+" is detached", func() bool { return metric(t, s.url(), "streamer_sharding_detached") == 1 })
		}
		rest, deadline := time.NewTimer(time.Until(began.Add(fleetTTL+time.Second))), began.Add(fleetDeadline)
		<-rest.C
		until(t, "the gateway, which needs no owner, is served after the deadline", func() bool { return g.between(time.Time{}, deadline, time.Now()) > 0 })
		back := time.Now()
		f.startEtcd(f.dir)
		if got := f.between(deadline, deadline, back); len(got) > 0 {
			t.Errorf("%d events were printed after the deadline", len(got))
		}
		back = time.Now()
		took := f.again(before, "", back)
		t.Logf("delivered again %v after it was back", took)
		return took
	})
	stop()
	g.judge()
	f.judge()
}
