package process

import (
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/client"
	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/fault"
)

// A handedOver is what streamer handoff prints.
type handedOver struct {
	Partition change.Partition
	From, To  string
	TookMS    int64 `json:"took_ms"`
	Steps     []struct{ Text string }
}

// A movements is what streamer status --handoffs prints.
type movements struct {
	Recent []struct {
		From, To, Cause string
		Partitions      []change.Partition
		HandedOver      int `json:"handed_over"`
	}
	Pinned, Drained map[string]struct{ To, By string }
}

func (f *fleet) movements() movements {
	f.t.Helper()
	return decode[movements](f.t, f.lab.result("status", "--handoffs", "-o", "json"))
}

// elsewhere returns a partition and a node that does not have it.
func (f *fleet) elsewhere() (p change.Partition, from, to string) {
	view := f.view()
	from = view.Owners[p].Node
	for _, s := range f.ships {
		if s.name != from && s.process != nil {
			to = s.name
		}
	}
	return p, from, to
}

// Operators move partitions and empty nodes under load, and nobody misses anything.
func TestOperatorsMovePartitions(t *testing.T) {
	t.Parallel()
	for _, backend := range backends() {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t, backend, 3, unhurried)
			f.begin()
			follower := f.attend("follower", client.Owned, f.addresses()...)
			other := f.attend("other", client.All, f.addresses()...)
			stop := f.write(300)

			p, from, to := f.elsewhere()
			done := decode[handedOver](t, f.lab.result("handoff", "0", "--to", to, "--yes", "-o", "json"))
			if done.Partition != p || done.From != from || done.To != to || done.TookMS <= 0 || f.view().Owners[p].Node != to {
				t.Errorf("%+v, it is at %q", done, f.view().Owners[p].Node)
			}
			t.Logf("handed over after %d ms: %+v", done.TookMS, done.Steps)
			if pinned := f.movements().Pinned; pinned["0"].To != to {
				t.Errorf("%+v", pinned)
			}

			victim, owned := f.owning(false)
			text := f.lab.result("drain", victim.name, "--yes")
			if !strings.Contains(text, "is empty after") || len(epochs(f.view(), victim.name)) != 0 {
				t.Errorf("%s: it has %v", text, epochs(f.view(), victim.name))
			}
			t.Logf("drained of %d partitions: %q", len(owned), text)
			until(t, "the history tells of the drain", func() bool {
				moved := 0
				for _, r := range f.movements().Recent {
					if r.From == victim.name && strings.Contains(r.Cause, "is drained") {
						moved += r.HandedOver
					}
				}
				return moved > 0
			})
			if now := f.movements(); len(now.Drained) != 1 || now.Drained[victim.name].By == "" {
				t.Errorf("%+v", now)
			}
			if text := f.lab.result("status", "--handoffs"); !strings.Contains(text, "node "+victim.name+" drained") || !strings.Contains(text, "HANDED OVER") {
				t.Errorf("%s", text)
			}
			victim.signal(syscall.SIGTERM)
			if code := victim.wait(); code != 0 {
				t.Errorf("exit code %d", code)
			}
			victim.launch()
			until(t, "it is back", func() bool {
				return slices.ContainsFunc(f.view().Members, func(s cluster.Member) bool { return s.Node == victim.name && s.Status == cluster.StatusHealthy })
			})
			if had := epochs(f.view(), victim.name); len(had) != 0 {
				t.Errorf("a node that is to be empty has got %v", had)
			}
			f.lab.result("drain", victim.name, "--undo", "--yes")
			until(t, "it has a share again", func() bool { return len(epochs(f.view(), victim.name)) > 0 })
			stop()
			follower.judge()
			other.judge()
			f.judge()
		})
	}
}

// What cannot be moved is refused with what is the matter, and nothing is wished.
func TestImpossibleMovesAreRefused(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "etcd", 3)
	f.begin()
	p, from, to := f.elsewhere()
	if p != 0 {
		t.Fatal(p)
	}
	before := f.view()
	refused := func(code fault.Code, says string, args ...string) {
		t.Helper()
		f.lab.operate(args...).refused(code, says)
		if now := f.view(); len(now.Directives.Pinned)+len(now.Directives.Drained) > 0 || now.Plan.Version != before.Plan.Version {
			t.Errorf("%v: plan %d, %+v", args, now.Plan.Version, now.Directives)
		}
	}
	refused(fault.HandoffUnknown, "node-9", "handoff", "0", "--to", "node-9")
	refused(fault.HandoffOwner, from, "handoff", "0", "--to", from)
	refused(fault.CommandBadArgument, "no partition", "handoff", "16", "--to", to)
	refused(fault.CommandBadArgument, "--to", "handoff", "0")
	refused(fault.CommandBadArgument, "--for", "handoff", "0", "--to", to, "--for", "1s")
	refused(fault.HandoffUnknown, "node-9", "drain", "node-9")
	refused(fault.CommandBadArgument, "is not being drained", "drain", to, "--undo")

	frozen := f.ship(to)
	frozen.signal(syscall.SIGSTOP)
	p1 := f.lab.with("STREAMER_CLUSTER_LEASE_TTL=60s").operate("handoff", "0", "--to", to, "--yes")
	if code := p1.wait(); code != 1 || !p1.noted(string(fault.HandoffDetached)) && !p1.noted(string(fault.HandoffDead)) {
		t.Errorf("a frozen node: exit code %d, %q", code, p1.notes.all())
	}
	frozen.signal(syscall.SIGCONT)
	f.settled(nil, patience)
}
