package process

import (
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/internal/admin"
)

// assembly is what status --plan prints.
type assembly struct {
	Cluster, Leader string
	Plan            struct {
		Version   uint64
		By, Cause string
	}
	Members    []attendant
	Absent     []string
	Partitions []struct {
		ID                                         int
		Planned, Why, Owner, Process, Epoch, State string
	}
}

// An attendant is a member of it.
type attendant struct {
	Node, Process, Status, Version, Gateway, Unread string
	Planned, Owned                                  int
	Checks                                          map[string]bool
}

// membership is what /health tells of the cluster.
type membership struct {
	Membership *struct {
		Detached       bool
		Leader         string
		Plan           uint64
		Members        map[string]int
		Planned, Owned int
		Lag            float64 `json:"lease_deadline_lag_seconds"`
	}
}

func TestStatusPlanTellsWhoOwnsWhatAndWhy(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "etcd", 2)
	f.lab.operate("status", "--plan").refused(fault.ClusterUnknown, f.lab.cluster)
	f.begin()
	var c assembly
	until(t, "everybody is well", func() bool {
		c = decode[assembly](t, f.lab.result("status", "--plan", "-o", "json"))
		return !slices.ContainsFunc(c.Members, func(m attendant) bool {
			return m.Status != "healthy"
		})
	})
	if c.Cluster != f.lab.cluster || c.Leader == "" || c.Plan.Version == 0 || c.Plan.Cause == "" || len(c.Members) != 2 || len(c.Absent) != 0 {
		t.Errorf("%+v", c)
	}
	view := f.view()
	for i, m := range c.Members {
		if m.Node != f.ships[i].name || m.Version != testVersion || m.Gateway != f.ships[i].grpc || m.Planned != 8 || m.Owned != 8 || !m.Checks["mongodb_ok"] {
			t.Errorf("%+v", m)
		}
	}
	for i, p := range c.Partitions {
		owner := view.Owners[i]
		if p.ID != i || p.Owner != owner.Node || p.Planned != owner.Node || p.Process != owner.Process || p.Epoch != owner.Epoch.String() || p.State == "" || p.Why == "" {
			t.Errorf("%+v; owner %+v", p, owner)
		}
	}
	human := f.lab.result("status", "--plan")
	for _, want := range []string{c.Leader, "cold start", "node-1", "node-2", "healthy", "MEMBER", "PLANNED", "hash"} {
		if !strings.Contains(human, want) {
			t.Errorf("it does not say %q:\n%s", want, human)
		}
	}
	if lines := strings.Count(human, "\n"); lines > 20 {
		t.Errorf("%d lines for %d partitions:\n%s", lines, partitions, human)
	}
	for _, s := range f.ships {
		var seen membership
		until(t, s.name+" knows that both are well", func() bool {
			seen = decode[membership](t, ask(t, s.url()+"/health").body)
			return seen.Membership != nil && seen.Membership.Plan == c.Plan.Version && seen.Membership.Members["healthy"] == 2
		})
		m := seen.Membership
		if m.Detached || m.Leader != c.Leader || m.Owned != 8 || m.Planned != 8 {
			t.Errorf("%s: %+v", s.name, m)
		}
		ttl := fleetTTL.Seconds()
		if lag := metric(t, s.url(), "streamer_lease_deadline_lag_seconds"); m.Lag < ttl/3 || m.Lag > ttl || lag < ttl/3 || lag > ttl {
			t.Errorf("%s: its lease lives for %g s, %g s, unless it is renewed", s.name, m.Lag, lag)
		}
	}
	if human := f.lab.result("status", "--address", f.ships[0].url()); !strings.Contains(human, "8 owned, 8 planned") {
		t.Errorf("%s", human)
	}

	guess(t, f)

	// One is cut off: it says so, and the others' view has it no more.
	cut := f.ships[0]
	heal := cut.link.Cut()
	until(t, "it is detached", func() bool {
		m := decode[membership](t, ask(t, cut.url()+"/health").body).Membership
		return m.Detached && m.Owned == 0 && m.Lag < fleetTTL.Seconds()/3
	})
	if human := f.lab.result("status", "--address", cut.url()); !strings.Contains(human, "DETACHED") || !strings.Contains(human, "as last seen") {
		t.Errorf("%s", human)
	}
	listed := decode[admin.SubscriberList](t, ask(t, cut.url()+"/v1/subscribers").body).Subscribers
	if !slices.ContainsFunc(listed, func(s admin.Subscriber) bool { return s.Subscriber == "stdout" }) {
		t.Errorf("stdout is not listed: %+v", listed)
	}
	for _, s := range listed {
		if s.Lag != nil {
			t.Errorf("the lag of %s is %v, by what others said before", s.Subscriber, *s.Lag)
		}
	}
	until(t, "the other one owns everything", func() bool {
		c = decode[assembly](t, f.lab.result("status", "--plan", "-o", "json"))
		return len(c.Members) == 1 && c.Members[0].Owned == partitions
	})
	if !strings.Contains(c.Plan.Cause, cut.name+" is dead") || c.Leader != f.ships[1].name {
		t.Errorf("%+v", c.Plan)
	}
	healed := time.Now()
	heal()
	cut.reattached(healed)
	for _, s := range f.ships {
		s.signal(syscall.SIGTERM)
	}
	for _, s := range f.ships {
		s.wait()
	}
	c = decode[assembly](t, f.lab.result("status", "--plan", "-o", "json"))
	if len(c.Members) != 0 || c.Leader != "" || len(c.Absent) == 0 {
		t.Errorf("after the end: %+v", c)
	}
}
