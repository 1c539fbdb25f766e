package ledger_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/cluster/roster"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/handoff/ledger"
)

func seat(node, version string, status roster.Status) roster.Seat {
	return roster.Seat{Heartbeat: roster.Heartbeat{
		Node: node, Process: node + "1", Kind: roster.Node, Version: version, Status: status, Count: 4,
		Checks: map[string]bool{roster.CheckEtcd: true},
	}}
}

// view is a cluster in which a owns partition 0, nobody partition 3, and d is in the plan but dead.
func view() roster.View {
	own := func(node string) roster.Owner {
		return roster.Owner{Node: node, Process: node + "1", Epoch: change.Epoch{Incarnation: 1, Revision: 7}}
	}
	garbled := roster.Seat{Heartbeat: roster.Heartbeat{Node: "garbled"}, Garbled: errors.New("half a heartbeat")}
	gateway := seat("gate", "v1.2.0", roster.Healthy)
	gateway.Kind = roster.Gateway
	cut := seat("cut", "v1.2.0", roster.Healthy)
	cut.Checks = map[string]bool{roster.CheckEtcd: false}
	fewer := seat("fewer", "v1.2.0", roster.Healthy)
	fewer.Count = 2
	return roster.View{
		Members: []roster.Seat{
			seat("a", "v1.2.0", roster.Healthy), seat("b", "v1.2.0", roster.Healthy), seat("newer", "v1.10.0-rc.1", roster.Healthy),
			seat("older", "v1.1.9", roster.Healthy), seat("odd", "devel", roster.Healthy), seat("sick", "v1.2.0", roster.Degraded),
			seat("ill", "v1.2.0", roster.Unhealthy), seat("new", "v1.2.0", roster.Starting), seat("leaving", "v1.2.0", roster.Stopping),
			garbled, gateway, cut, fewer,
		},
		Owners: []roster.Owner{own("a"), own("b"), own("newer"), {}},
		Plan:   roster.Plan{Version: 3, Owners: []string{"a", "b", "newer", "d"}},
	}
}

func TestOrdersThatMakeNoSenseAreRefused(t *testing.T) {
	for _, c := range []struct {
		name  string
		order ledger.Order
		code  fault.Code // none: it is taken
	}{
		{"a healthy node", ledger.Order{To: "b"}, ""},
		{"a newer one", ledger.Order{To: "newer"}, ""},
		{"one of a version that cannot be compared", ledger.Order{To: "odd"}, ""},
		{"an older one", ledger.Order{To: "older"}, fault.HandoffOlder},
		{"an older one than the newest", ledger.Order{Partition: 2, To: "b"}, fault.HandoffOlder},
		{"an older one that may", ledger.Order{To: "older", AllowOlder: true}, ""},
		{"an unknown one", ledger.Order{To: "nobody"}, fault.HandoffUnknown},
		{"a gateway", ledger.Order{To: "gate"}, fault.HandoffUnknown},
		{"a dead one", ledger.Order{To: "d"}, fault.HandoffDead},
		{"itself", ledger.Order{To: "a"}, fault.HandoffOwner},
		{"one that is cut off", ledger.Order{To: "cut"}, fault.HandoffDetached},
		{"one that is silent", ledger.Order{To: "b", Silent: 5 * time.Second, SilentFor: 5 * time.Second}, fault.HandoffDetached},
		{"one that was heard lately", ledger.Order{To: "b", Silent: 4 * time.Second, SilentFor: 5 * time.Second}, ""},
		{"a degraded one", ledger.Order{To: "sick"}, fault.HandoffUnfit},
		{"an unhealthy one", ledger.Order{To: "ill"}, fault.HandoffUnfit},
		{"a starting one", ledger.Order{To: "new"}, fault.HandoffUnfit},
		{"a stopping one", ledger.Order{To: "leaving"}, fault.HandoffUnfit},
		{"one that cannot be read", ledger.Order{To: "garbled"}, fault.HandoffUnfit},
		{"one with fewer partitions", ledger.Order{To: "fewer"}, fault.HandoffUnfit},
		{"of what nobody owns", ledger.Order{Partition: 3, To: "b"}, fault.HandoffNoOwner},
		{"of no partition", ledger.Order{Partition: 4, To: "b"}, fault.CommandBadArgument},
	} {
		r, err := c.order.Record(view())
		if fault.Of(err) != c.code || (err == nil) != (c.code == "") {
			t.Errorf("%s: %v, want %q", c.name, err, c.code)
		}
		if err == nil && (r.From.Process != "a1" || r.To.Process != c.order.To+"1" || r.Epoch.Revision != 7 || r.Phase != ledger.Prepared) {
			t.Errorf("%s: %+v", c.name, r)
		}
	}
}

// A keeper answers as it is told to.
type keeper struct {
	ledger.Keeper

	err error
}

func (k keeper) Prepare(_ context.Context, r ledger.Record) (ledger.Record, error) {
	r.Revision = 9
	return r, k.err
}

func TestOrdersThatComeTooLateAreRefused(t *testing.T) {
	order := ledger.Order{To: "b", Cause: "by hand", By: "operator"}
	for _, c := range []struct {
		err  error
		code fault.Code
	}{{nil, ""}, {ledger.ErrMoving, fault.HandoffMoving}, {ledger.ErrStale, fault.HandoffNoOwner}} {
		r, err := order.Begin(t.Context(), view(), keeper{err: c.err})
		if fault.Of(err) != c.code || (err == nil) != (c.code == "") {
			t.Errorf("%v gave %v, want %q", c.err, err, c.code)
		}
		if err == nil && (r.Revision != 9 || r.Cause != "by hand" || r.By != "operator" || r.Started.IsZero()) {
			t.Errorf("%+v", r)
		}
	}
	away := errors.New("no connection")
	if _, err := order.Begin(t.Context(), view(), keeper{err: away}); !errors.Is(err, away) || fault.Of(err) != "" {
		t.Errorf("%v", err)
	}
}

// Of two nodes of different versions one is the older, and never both.
func TestVersionsAreOrdered(t *testing.T) {
	version := rapid.StringMatching(`v[0-9]{1,2}\.[0-9]{1,2}\.[0-9]{1,2}(-rc\.[0-9])?(\+[a-z]+)?|devel|`)
	rapid.Check(t, func(t *rapid.T) {
		one, other := version.Draw(t, "one"), version.Draw(t, "other")
		refused := func(from, to string) bool {
			v := view()
			v.Members = []roster.Seat{seat("a", from, roster.Healthy), seat("b", to, roster.Healthy)}
			_, err := ledger.Order{To: "b"}.Record(v)
			return fault.Of(err) == fault.HandoffOlder
		}
		if refused(one, other) && refused(other, one) || refused(one, one) {
			t.Fatalf("%q and %q are older than each other", one, other)
		}
	})
}
