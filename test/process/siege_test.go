package process

import (
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mongostream/streamer/client"
	devmongo "github.com/mongostream/streamer/dev/mongo"
	"github.com/mongostream/streamer/dev/mongo/devmongotest"
	"github.com/mongostream/streamer/internal/etcd/etcdtest"
)

// siegeTTL is the life of leases while members of etcd fail: its own leader takes up to 2 s to be
// replaced.
const siegeTTL = 5 * time.Second * pace

// One of three members of etcd after the other is isolated, stopped, paused and replaced under
// load. No node is detached for longer than leases live, and nothing is missing.
func TestFaultsOfOneEtcdMemberHarmNobody(t *testing.T) {
	t.Parallel()
	besiege(t, siegeTTL+time.Second, "isolated follower", "stopped leader", "paused follower", "paused leader", "replaced follower")
}

// While one of three members of etcd is cut off from the others, or stands still, nodes join, and
// one that was detached comes back.
func TestNodesJoinAndComeBackBesideAFaultyEtcdMember(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"isolated follower", "paused follower"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			etcd := etcdtest.StartCluster(t, 3)
			f := fleetBeside(t, etcd)
			faults := etcdtest.Faults()
			fault := faults[slices.IndexFunc(faults, func(f etcdtest.Fault) bool { return f.Name == name })]
			heal := fault.Inject(fault.Victim(etcd))
			f.begin()
			stop := f.write(200)
			frozen, _ := f.owning(false)
			frozen.signal(syscall.SIGSTOP)
			rest := time.NewTimer(siegeTTL + time.Second)
			<-rest.C
			thawed := time.Now()
			frozen.signal(syscall.SIGCONT)
			took := stamped(t, frozen.await("attached to the cluster again")).Sub(thawed)
			t.Logf("a member again after %v", took)
			if took > siegeTTL {
				t.Errorf("it came back after %v", took)
			}
			late := f.add("node-4")
			late.launch()
			until(t, "the new node has its share", func() bool { return len(epochs(f.view(), late.name)) > 0 })
			f.settled(nil, patience)
			heal()
			stop()
			f.judge()
		})
	}
}

// fleetBeside makes a fleet of three that reaches an etcd without links.
func fleetBeside(t *testing.T, etcd *etcdtest.Cluster) *fleet {
	t.Helper()
	l := labOn(t, "etcd", devmongotest.Start(t, devmongo.Config{}).URI(), etcd.Endpoints()...)
	f := plan(t, l, "STREAMER_CLUSTER_LEASE_TTL="+siegeTTL.String())
	f.direct = etcd.Endpoints()
	f.build(3)
	return f
}

// besiege lets each of the faults last for so long; without names, each that there is. A node may
// be detached while etcd answers nobody: a machine that others use gives its members little CPU
// time, and that is no fault of one member.
func besiege(t *testing.T, length time.Duration, names ...string) {
	etcd := etcdtest.StartCluster(t, 3)
	probe := etcd.Probe(siegeTTL / 12) // as long as a node waits for one member
	f := fleetBeside(t, etcd)
	f.begin()
	all := f.attend("all", client.All, f.addresses()...)
	owned := f.attend("owned", client.Owned, f.addresses()...)
	stop := f.write(200)
	for _, fault := range etcdtest.Faults() {
		if len(names) > 0 && !slices.Contains(names, fault.Name) {
			continue
		}
		f.settled(nil, patience)
		settled := time.Now()
		until(t, "etcd answers the probe", func() bool { return probe.Answered(settled, time.Now()) > 0 })
		began := time.Now()
		heal := fault.Inject(fault.Victim(etcd))
		rest := time.NewTimer(length)
		<-rest.C
		heal()
		f.settled(nil, patience)
		over := time.Now()
		for _, s := range f.ships {
			longest, times := s.detached(began, over)
			t.Logf("%s: %s was detached %d times, for %v at most", fault.Name, s.name, times, longest.Round(time.Millisecond))
			for _, d := range s.detachments(began, over) {
				if answered := probe.Answered(d.since, d.back); answered > siegeTTL {
					t.Errorf("%s: %s was detached for %v, although etcd answered for %v", fault.Name, s.name, d.back.Sub(d.since), answered)
				}
			}
		}
		t.Logf("%s: gateways got nothing for %v and %v at most", fault.Name, all.pause(began, over), owned.pause(began, over))
	}
	stop()
	all.judge()
	owned.judge()
	f.judge()
}

// A detachment is a time during which a node was detached.
type detachment struct{ since, back time.Time }

// detachments returns those of the node that ended after one moment, or have not ended before
// another.
func (s *ship) detachments(from, to time.Time) (all []detachment) {
	var since time.Time
	for _, line := range s.notes.all() {
		switch {
		case strings.Contains(line, wasDetached):
			since = stamped(s.fleet.t, line)
		case !since.IsZero() && strings.Contains(line, "attached to the cluster again"):
			if back := stamped(s.fleet.t, line); back.After(from) {
				all = append(all, detachment{since, back})
			}
			since = time.Time{}
		}
	}
	if !since.IsZero() {
		all = append(all, detachment{since, to})
	}
	return all
}

// detached returns for how long the node was detached at most after one moment and before another,
// and how often.
func (s *ship) detached(from, to time.Time) (longest time.Duration, times int) {
	all := s.detachments(from, to)
	for _, d := range all {
		longest = max(longest, d.back.Sub(d.since))
	}
	return longest, len(all)
}

// pause returns for how long nothing has come to the gateway at most after one moment and before
// another.
func (g *guest) pause(from, to time.Time) (longest time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	last := from
	for _, a := range g.arrivals {
		if a.at.After(from) && a.at.Before(to) {
			longest, last = max(longest, a.at.Sub(last)), a.at
		}
	}
	return max(longest, to.Sub(last)).Round(time.Millisecond)
}
