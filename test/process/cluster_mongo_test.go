package process

import (
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongostream/streamer/client"
	"github.com/mongostream/streamer/cluster"
)

// MongoDB has no primary for anybody, for longer than a node may fail a check alone. No partition
// is moved for it, and everything goes on where it stood.
func TestNoPrimaryForEverybodyMovesNothing(t *testing.T) {
	t.Parallel()
	l, _ := newDevLab(t, "etcd")
	f := fleetOn(t, l, 3, "STREAMER_RELIABILITY_CIRCUIT_BREAKER_TIMEOUT=1s")
	f.begin()
	g := f.attend("g", client.All, f.addresses()...)
	stop := f.write(200)
	before := f.view()
	set := func(mode any) {
		data := bson.D{{Key: "failCommands", Value: bson.A{"aggregate", "getMore", "find"}}, {Key: "errorCode", Value: 10107}}
		command := bson.D{{Key: "configureFailPoint", Value: "failCommand"}, {Key: "mode", Value: mode}, {Key: "data", Value: data}}
		if err := l.client.Database("admin").RunCommand(t.Context(), command).Err(); err != nil {
			t.Fatal(err)
		}
	}
	set("alwaysOn")
	began := time.Now()
	failing := func(s cluster.Member) bool { ok, told := s.Checks[cluster.CheckMongoDB]; return told && !ok }
	until(t, "all nodes say that MongoDB is away", func() bool {
		return !slices.ContainsFunc(f.view().Members, func(s cluster.Member) bool { return !failing(s) })
	})
	told := time.Now()
	rest := time.NewTimer(8 * time.Second) // a node that fails alone loses what it has after 6
	<-rest.C
	view := f.view()
	if some := moved(before, view); len(some) > 0 || view.Plan.Version != before.Plan.Version {
		t.Errorf("partitions %v moved: %s", some, view.Plan.Cause)
	}
	if !slices.ContainsFunc(f.ships, func(s *ship) bool { return s.noted("no partition is moved until fewer than half of them do") }) {
		t.Error("the leader does not tell what all of them fail")
	}
	if n := len(f.between(told, told, time.Now())); n > 0 {
		t.Errorf("%d events were read without a primary", n)
	}
	set("off")
	back := time.Now()
	took := f.again(epochs(before, ""), "", back)
	t.Logf("all nodes said so after %v; delivered again %v after it was back", told.Sub(began), took)
	f.settled(nil, patience)
	if some := moved(before, f.view()); len(some) > 0 {
		t.Errorf("partitions %v moved afterwards", some)
	}
	stop()
	g.judge()
	f.judge()
}

// One node alone cannot reach MongoDB: it loses what it has to those who can, and gets its share
// again when it can.
func TestNodeWithoutMongoDBLosesItsPartitions(t *testing.T) {
	t.Parallel()
	l, _ := newDevLab(t, "etcd")
	f := fleetOn(t, l, 3, "STREAMER_RELIABILITY_CIRCUIT_BREAKER_TIMEOUT=1s")
	f.begin()
	stop := f.write(200)
	victim, owned := f.owning(false)
	set := func(mode any) {
		data := bson.D{
			{Key: "failCommands", Value: bson.A{"aggregate", "getMore", "find"}}, {Key: "errorCode", Value: 10107},
			{Key: "appName", Value: "streamer " + l.cluster + "/" + victim.name},
		}
		command := bson.D{{Key: "configureFailPoint", Value: "failCommand"}, {Key: "mode", Value: mode}, {Key: "data", Value: data}}
		if err := l.client.Database("admin").RunCommand(t.Context(), command).Err(); err != nil {
			t.Fatal(err)
		}
	}
	set("alwaysOn")
	began := time.Now()
	t.Logf("delivered again after %v", f.again(owned, victim.name, began))
	until(t, "it owns nothing", func() bool { return len(epochs(f.view(), victim.name)) == 0 })
	set("off")
	until(t, "it owns something again", func() bool { return len(epochs(f.view(), victim.name)) > 0 })
	stop()
	f.judge()
}

// Two of four nodes are killed and start again at once: they are told what is their own at a
// bounded rate, the plan is not made again and again, and in the end everybody has a share.
func TestNodesThatRestartTogetherMakeNoStorm(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "etcd", 4)
	f.begin()
	stop := f.write(200)
	before := f.view()
	var victims []*ship
	for _, s := range f.ships {
		if s.name != before.Leader && len(victims) < 2 {
			victims = append(victims, s)
		}
	}
	for _, s := range victims {
		s.signal(syscall.SIGKILL)
	}
	killed := time.Now()
	for _, s := range victims {
		s.wait()
		s.launch()
	}
	leader := f.ship(before.Leader)
	for _, s := range victims {
		until(t, s.name+" was told what is its own", func() bool {
			return slices.ContainsFunc(leader.notes.all(), func(line string) bool {
				return strings.Contains(line, "kind=resync_complete") && strings.Contains(line, "member="+s.name)
			})
		})
	}
	within := time.Since(killed)
	var view cluster.View
	until(t, "everybody has a share", func() bool {
		view = f.view()
		return !slices.ContainsFunc(f.ships, func(s *ship) bool { n := len(epochs(view, s.name)); return n < 3 || n > 5 })
	})
	if plans := view.Plan.Version - before.Plan.Version; plans > 12 {
		t.Errorf("%d plans for one restart", plans)
	}
	told := metric(t, leader.url(), "streamer_cluster_resynced_partitions_total")
	t.Logf("%v partitions looked at, done %v after the kill; %d plans", told, within, view.Plan.Version-before.Plan.Version)
	if told < 1 || told > 10*within.Seconds() {
		t.Errorf("%v partitions looked at within %v", told, within)
	}
	stop()
	f.judge()
}

// ship returns the node of a name.
func (f *fleet) ship(name string) *ship {
	f.t.Helper()
	i := slices.IndexFunc(f.ships, func(s *ship) bool { return s.name == name })
	if i < 0 {
		f.t.Fatalf("there is no node %q", name)
	}
	return f.ships[i]
}
