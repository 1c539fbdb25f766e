package handoff

import (
	"errors"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/fault"
)

func seatOf(node, version string, status cluster.Status) cluster.Member {
	return cluster.Member{Heartbeat: cluster.Heartbeat{
		Node: node, Process: node + "1", Kind: cluster.KindNode, Version: version, Status: status, Count: 4,
		Checks: map[string]bool{cluster.CheckEtcd: true},
	}}
}

// sampleView is a cluster in which a owns partition 0, nobody partition 3, and d is in the plan but
// dead.
func sampleView() cluster.View {
	own := func(node string) cluster.Owner {
		return cluster.Owner{Node: node, Process: node + "1", Epoch: change.Epoch{Incarnation: 1, Revision: 7}}
	}
	garbled := cluster.Member{Heartbeat: cluster.Heartbeat{Node: "garbled"}, Garbled: errors.New("half a heartbeat")}
	gateway := seatOf("gate", "v1.2.0", cluster.StatusHealthy)
	gateway.Kind = cluster.KindGateway
	cut := seatOf("cut", "v1.2.0", cluster.StatusHealthy)
	cut.Checks = map[string]bool{cluster.CheckEtcd: false}
	fewer := seatOf("fewer", "v1.2.0", cluster.StatusHealthy)
	fewer.Count = 2
	return cluster.View{
		Members: []cluster.Member{
			seatOf("a", "v1.2.0", cluster.StatusHealthy), seatOf("b", "v1.2.0", cluster.StatusHealthy), seatOf("newer", "v1.10.0-rc.1", cluster.StatusHealthy),
			seatOf("older", "v1.1.9", cluster.StatusHealthy), seatOf("odd", "devel", cluster.StatusHealthy), seatOf("sick", "v1.2.0", cluster.StatusDegraded),
			seatOf("ill", "v1.2.0", cluster.StatusUnhealthy), seatOf("new", "v1.2.0", cluster.StatusStarting),
			seatOf("leaving", "v1.2.0", cluster.StatusStopping),
			garbled, gateway, cut, fewer,
		},
		Owners: []cluster.Owner{own("a"), own("b"), own("newer"), {}},
		Plan:   cluster.Plan{Version: 3, Owners: []string{"a", "b", "newer", "d"}},
	}
}

func TestOrdersThatMakeNoSenseAreRefused(t *testing.T) {
	for _, c := range []struct {
		name   string
		order  Request
		silent time.Duration
		code   fault.Code // none: it is taken
	}{
		{"a healthy node", Request{To: "b"}, 0, ""},
		{"a newer one", Request{To: "newer"}, 0, ""},
		{"one of a version that cannot be compared", Request{To: "odd"}, 0, ""},
		{"an older one", Request{To: "older"}, 0, fault.HandoffOlder},
		{"an older one than the newest", Request{Partition: 2, To: "b"}, 0, fault.HandoffOlder},
		{"an older one that may", Request{To: "older", AllowOlder: true}, 0, ""},
		{"an unknown one", Request{To: "nobody"}, 0, fault.HandoffUnknown},
		{"a gateway", Request{To: "gate"}, 0, fault.HandoffUnknown},
		{"a dead one", Request{To: "d"}, 0, fault.HandoffDead},
		{"itself", Request{To: "a"}, 0, fault.HandoffOwner},
		{"one that is cut off", Request{To: "cut"}, 0, fault.HandoffDetached},
		{"one that is silent", Request{To: "b"}, 6 * time.Second, fault.HandoffDetached},
		{"one that was heard lately", Request{To: "b"}, 5 * time.Second, ""},
		{"a degraded one", Request{To: "sick"}, 0, fault.HandoffUnfit},
		{"an unhealthy one", Request{To: "ill"}, 0, fault.HandoffUnfit},
		{"a starting one", Request{To: "new"}, 0, fault.HandoffUnfit},
		{"a stopping one", Request{To: "leaving"}, 0, fault.HandoffUnfit},
		{"one that cannot be read", Request{To: "garbled"}, 0, fault.HandoffUnfit},
		{"one with fewer partitions", Request{To: "fewer"}, 0, fault.HandoffUnfit},
		{"of what nobody owns", Request{Partition: 3, To: "b"}, 0, fault.HandoffNoOwner},
		{"of no partition", Request{Partition: 4, To: "b"}, 0, fault.CommandBadArgument},
	} {
		owner, err := c.order.check(sampleView(), c.silent, 6*time.Second)
		if fault.Of(err) != c.code || (err == nil) != (c.code == "") {
			t.Errorf("%s: %v, want %q", c.name, err, c.code)
		}
		if err == nil && owner.Epoch.Revision != 7 {
			t.Errorf("%s: %+v", c.name, owner)
		}
	}
}

// Of two nodes of different versions one is the older, and never both.
func TestVersionsAreOrdered(t *testing.T) {
	version := rapid.StringMatching(`v[0-9]{1,2}\.[0-9]{1,2}\.[0-9]{1,2}(-rc\.[0-9])?(\+[a-z]+)?|devel|`)
	rapid.Check(t, func(t *rapid.T) {
		one, other := version.Draw(t, "one"), version.Draw(t, "other")
		refused := func(from, to string) bool {
			v := sampleView()
			v.Members = []cluster.Member{seatOf("a", from, cluster.StatusHealthy), seatOf("b", to, cluster.StatusHealthy)}
			_, err := Request{To: "b"}.check(v, 0, 6*time.Second)
			return fault.Of(err) == fault.HandoffOlder
		}
		if refused(one, other) && refused(other, one) || refused(one, one) {
			t.Fatalf("%q and %q are older than each other", one, other)
		}
	})
}
