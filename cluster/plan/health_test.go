package plan

import (
	"testing"
	"time"

	"github.com/mongostream/streamer/cluster"
)

func config() Config {
	return Config{
		Node: "leader", Partitions: 8, Expected: 1, Beat: 2 * time.Second, Late: 7 * time.Second, Silent: 12 * time.Second, Confirm: 6 * time.Second,
		Settle: 10 * time.Second, Failures: 3, Successes: 2, OpenFor: 30 * time.Second,
	}
}

// A roomful is the health of members that are looked at by hand.
type roomful struct {
	*health

	now  time.Duration
	view cluster.View
}

func newRoomful(nodes ...string) *roomful {
	r := &roomful{health: newHealth(config()), now: time.Hour}
	for _, node := range nodes {
		r.view.Members = append(r.view.Members, cluster.Member{Joined: 1, Heartbeat: cluster.Heartbeat{Node: node, Process: "1", Count: 8}})
	}
	return r
}

// look lets everybody beat that is not left out.
func (r *roomful) look(after time.Duration, but ...string) (events []event) {
	r.now += after
	r.view.Revision++
	for i := range r.view.Members {
		if seat := &r.view.Members[i]; len(but) == 0 || seat.Node != but[0] {
			seat.Beat = r.view.Revision
		}
	}
	events = r.Look(r.now, 0, r.view)
	return append(events, r.Judge()...)
}

func TestStatusFollowsHeartbeatReportAndChecks(t *testing.T) {
	type looks []struct {
		after time.Duration
		want  cluster.Status
	}
	for name, tt := range map[string]struct {
		heartbeat cluster.Heartbeat
		silent    bool
		looks     looks
	}{
		"well": {cluster.Heartbeat{Status: cluster.StatusHealthy}, false, looks{
			{0, cluster.StatusHealthy}, {time.Minute, cluster.StatusHealthy},
		}},
		"of an older version": {cluster.Heartbeat{}, false, looks{{0, cluster.StatusHealthy}}},
		"of a newer version":  {cluster.Heartbeat{Status: "splendid"}, false, looks{{0, cluster.StatusHealthy}}},
		"calls itself dead":   {cluster.Heartbeat{Status: StatusDead}, false, looks{{0, cluster.StatusHealthy}}},
		"starting":            {cluster.Heartbeat{Status: cluster.StatusStarting}, false, looks{{0, cluster.StatusStarting}}},
		"stopping":            {cluster.Heartbeat{Status: cluster.StatusStopping}, false, looks{{0, cluster.StatusStopping}}},
		"degraded": {cluster.Heartbeat{Status: cluster.StatusDegraded}, false, looks{
			{0, cluster.StatusDegraded}, {time.Minute, cluster.StatusDegraded},
		}},
		"calls itself unhealthy": {cluster.Heartbeat{Status: cluster.StatusUnhealthy}, false,
			looks{{0, cluster.StatusDegraded}, {5 * time.Second, cluster.StatusDegraded}, {time.Second, cluster.StatusUnhealthy}}},
		"fails a check": {cluster.Heartbeat{Checks: map[string]bool{"disk_ok": false}}, false,
			looks{{0, cluster.StatusDegraded}, {time.Hour, cluster.StatusDegraded}}},
		"fails a critical check": {cluster.Heartbeat{Checks: map[string]bool{cluster.CheckGateway: false}}, false,
			looks{{0, cluster.StatusDegraded}, {5 * time.Second, cluster.StatusDegraded}, {time.Second, cluster.StatusUnhealthy}}},
		"other partitions": {cluster.Heartbeat{Count: 9}, false, looks{{0, StatusRefused}}},
		"silent": {cluster.Heartbeat{}, true,
			looks{{0, cluster.StatusHealthy}, {6 * time.Second, cluster.StatusHealthy}, {time.Second, cluster.StatusDegraded},
				{4 * time.Second, cluster.StatusDegraded}, {time.Second, StatusDead}}},
		"silent and stopping": {cluster.Heartbeat{Status: cluster.StatusStopping}, true,
			looks{{0, cluster.StatusStopping}, {7 * time.Second, cluster.StatusStopping}, {5 * time.Second, StatusDead}}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRoomful("leader", "one", "three", "two")
			seat := &r.view.Members[1]
			tt.heartbeat.Node, tt.heartbeat.Process = "one", "1"
			seat.Heartbeat = tt.heartbeat
			for i, look := range tt.looks {
				if tt.silent && i > 0 {
					r.look(look.after, "one")
				} else {
					r.look(look.after)
				}
				if got := r.Of("one").Status; got != look.want {
					t.Errorf("look %d: %s, want %s", i, got, look.want)
				}
				if got := r.Of("two").Status; got != cluster.StatusHealthy {
					t.Errorf("another one is %s", got)
				}
			}
		})
	}
}

func TestCheckOfAGatewayIsNotCritical(t *testing.T) {
	r := newRoomful("gw", "leader")
	r.view.Members[0].Kind = cluster.KindGateway
	r.view.Members[0].Checks = map[string]bool{cluster.CheckMongoDB: false}
	r.look(0)
	r.look(time.Minute)
	if got := r.Of("gw").Status; got != cluster.StatusDegraded {
		t.Error(got)
	}
}

func TestSilenceCountsNothingWhileTheLeadersOwnHeartbeatFails(t *testing.T) {
	r := newRoomful("leader", "one", "three", "two")
	r.look(0)
	for range 30 { // neither is heard
		r.now += 2 * time.Second
		r.view.Revision++
		r.view.Members[2].Beat, r.view.Members[3].Beat = r.view.Revision, r.view.Revision
		r.Look(r.now, 0, r.view)
		r.Judge()
	}
	if got := r.Of("one").Status; got != cluster.StatusDegraded {
		t.Error(got)
	}
}

func TestBreakersLife(t *testing.T) {
	r := newRoomful("leader", "one")
	r.look(0)
	m := r.Of("one")
	state := func() string { return r.Statuses()[1].Breaker }
	expect := func(want string) {
		t.Helper()
		if got := state(); got != want {
			t.Fatalf("%s, want %s", got, want)
		}
	}
	if opened, _ := r.Fail(m, 2); opened {
		t.Error("two failures open it")
	}
	r.Succeed(m)
	if opened, _ := r.Fail(m, 2); opened {
		t.Error("a success between failures counts for nothing")
	}
	if opened, failures := r.Fail(m, 1); !opened || failures != 3 {
		t.Error("three failures do not open it")
	}
	expect(BreakerOpen)
	if fitness, try := r.Fitness(m); fitness != lastResort || try {
		t.Error("an open breaker lets something through")
	}
	if shut, _ := r.Succeed(m); shut {
		t.Error("a success while it is open closes it")
	}
	r.look(30*time.Second - 1)
	expect(BreakerOpen)
	r.look(1)
	expect(BreakerHalfOpen)
	r.look(time.Minute) // its rest is over too
	if fitness, try := r.Fitness(m); fitness != makeshift || !try {
		t.Error("a half-open breaker is not tried")
	}
	if opened, _ := r.Fail(m, 1); opened {
		t.Error("what was open is told again")
	}
	expect(BreakerOpen)
	r.look(time.Minute - 1)
	expect(BreakerOpen)
	r.look(1)
	expect(BreakerHalfOpen)
	if shut, _ := r.Succeed(m); shut {
		t.Error("one success closes it")
	}
	if shut, after := r.Succeed(m); !shut || after < 2*time.Minute {
		t.Errorf("two do not, or it was open for %s", after)
	}
	expect(BreakerClosed)
	r.Fail(m, 3)
	r.view.Members[1].Process = "2"
	events := r.look(time.Second)
	expect(BreakerClosed)
	if len(events) != 2 || events[0].What != eventClosed || events[1].What != eventRestarted {
		t.Errorf("%+v", events)
	}
}

// What is known of members that are gone is bounded, whatever names come.
func TestStrangersAreForgotten(t *testing.T) {
	r := newRoomful("leader")
	r.look(0)
	for i := range 5000 {
		r.view.Members = append(r.view.Members[:1], cluster.Member{Joined: 1,
			Heartbeat: cluster.Heartbeat{Node: "stranger-" + time.Duration(i).String(), Process: "1"}})
		r.look(10 * time.Millisecond)
	}
	known := 0
	for i := range 5000 {
		if r.Of("stranger-"+time.Duration(i).String()) != nil {
			known++
		}
	}
	if known > 1100 {
		t.Errorf("%d of 5000 are known", known)
	}
}

func TestBreakerIsAsConfigured(t *testing.T) {
	r := newRoomful("leader", "one")
	cfg := config()
	cfg.Failures, cfg.OpenFor, cfg.Successes = 5, 7*time.Second, 3
	r.health = newHealth(cfg)
	r.look(0)
	m := r.Of("one")
	if opened, _ := r.Fail(m, 4); opened {
		t.Error("four failures open it")
	}
	if opened, _ := r.Fail(m, 1); !opened {
		t.Error("five failures do not open it")
	}
	r.look(7*time.Second - 1)
	if state := r.Statuses()[1].Breaker; state != BreakerOpen {
		t.Errorf("before OpenFor is over: %s", state)
	}
	r.look(1)
	if state := r.Statuses()[1].Breaker; state != BreakerHalfOpen {
		t.Errorf("after OpenFor: %s", state)
	}
	for range 2 {
		if shut, _ := r.Succeed(m); shut {
			t.Error("fewer than three successes close it")
		}
	}
	if shut, _ := r.Succeed(m); !shut {
		t.Error("three successes do not close it")
	}
}
