package census_test

import (
	"testing"
	"time"

	"github.com/mongostream/streamer/cluster/govern/census"
	"github.com/mongostream/streamer/cluster/roster"
)

func config() census.Config {
	return census.Config{
		Node: "leader", Partitions: 8, Expected: 1, Beat: 2 * time.Second, Late: 7 * time.Second, Silent: 12 * time.Second, Confirm: 6 * time.Second,
		Settle: 10 * time.Second, Failures: 3, Successes: 2, OpenFor: 30 * time.Second,
	}
}

// A roomful is a census of members that are looked at by hand.
type roomful struct {
	*census.Census

	now  time.Duration
	view roster.View
}

func newRoomful(nodes ...string) *roomful {
	r := &roomful{Census: census.New(config()), now: time.Hour}
	for _, node := range nodes {
		r.view.Members = append(r.view.Members, roster.Seat{Joined: 1, Heartbeat: roster.Heartbeat{Node: node, Process: "1", Count: 8}})
	}
	return r
}

// look lets everybody beat that is not left out.
func (r *roomful) look(after time.Duration, but ...string) (events []census.Event) {
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
		want  roster.Status
	}
	for name, tt := range map[string]struct {
		heartbeat roster.Heartbeat
		silent    bool
		looks     looks
	}{
		"well":                {roster.Heartbeat{Status: roster.Healthy}, false, looks{{0, roster.Healthy}, {time.Minute, roster.Healthy}}},
		"of an older version": {roster.Heartbeat{}, false, looks{{0, roster.Healthy}}},
		"of a newer version":  {roster.Heartbeat{Status: "splendid"}, false, looks{{0, roster.Healthy}}},
		"calls itself dead":   {roster.Heartbeat{Status: census.Dead}, false, looks{{0, roster.Healthy}}},
		"starting":            {roster.Heartbeat{Status: roster.Starting}, false, looks{{0, roster.Starting}}},
		"stopping":            {roster.Heartbeat{Status: roster.Stopping}, false, looks{{0, roster.Stopping}}},
		"degraded":            {roster.Heartbeat{Status: roster.Degraded}, false, looks{{0, roster.Degraded}, {time.Minute, roster.Degraded}}},
		"calls itself unhealthy": {roster.Heartbeat{Status: roster.Unhealthy}, false,
			looks{{0, roster.Degraded}, {5 * time.Second, roster.Degraded}, {time.Second, roster.Unhealthy}}},
		"fails a check": {roster.Heartbeat{Checks: map[string]bool{"disk_ok": false}}, false,
			looks{{0, roster.Degraded}, {time.Hour, roster.Degraded}}},
		"fails a critical check": {roster.Heartbeat{Checks: map[string]bool{roster.CheckGateway: false}}, false,
			looks{{0, roster.Degraded}, {5 * time.Second, roster.Degraded}, {time.Second, roster.Unhealthy}}},
		"other partitions": {roster.Heartbeat{Count: 9}, false, looks{{0, census.Refused}}},
		"silent": {roster.Heartbeat{}, true,
			looks{{0, roster.Healthy}, {6 * time.Second, roster.Healthy}, {time.Second, roster.Degraded}, {4 * time.Second, roster.Degraded}, {time.Second, census.Dead}}},
		"silent and stopping": {roster.Heartbeat{Status: roster.Stopping}, true,
			looks{{0, roster.Stopping}, {7 * time.Second, roster.Stopping}, {5 * time.Second, census.Dead}}},
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
				if got := r.Member("one").Status; got != look.want {
					t.Errorf("look %d: %s, want %s", i, got, look.want)
				}
				if got := r.Member("two").Status; got != roster.Healthy {
					t.Errorf("another one is %s", got)
				}
			}
		})
	}
}

func TestCheckOfAGatewayIsNotCritical(t *testing.T) {
	r := newRoomful("gw", "leader")
	r.view.Members[0].Kind = roster.Gateway
	r.view.Members[0].Checks = map[string]bool{roster.CheckMongoDB: false}
	r.look(0)
	r.look(time.Minute)
	if got := r.Member("gw").Status; got != roster.Degraded {
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
	if got := r.Member("one").Status; got != roster.Degraded {
		t.Error(got)
	}
}

func TestBreakersLife(t *testing.T) {
	r := newRoomful("leader", "one")
	r.look(0)
	m := r.Member("one")
	state := func() string { return r.Standings()[1].Breaker }
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
	expect(census.BreakerOpen)
	if fitness, try := r.Fitness(m); fitness != census.LastResort || try {
		t.Error("an open breaker lets something through")
	}
	if shut, _ := r.Succeed(m); shut {
		t.Error("a success while it is open closes it")
	}
	r.look(30*time.Second - 1)
	expect(census.BreakerOpen)
	r.look(1)
	expect(census.BreakerHalfOpen)
	r.look(time.Minute) // its rest is over too
	if fitness, try := r.Fitness(m); fitness != census.Makeshift || !try {
		t.Error("a half-open breaker is not tried")
	}
	if opened, _ := r.Fail(m, 1); opened {
		t.Error("what was open is told again")
	}
	expect(census.BreakerOpen)
	r.look(time.Minute - 1)
	expect(census.BreakerOpen)
	r.look(1)
	expect(census.BreakerHalfOpen)
	if shut, _ := r.Succeed(m); shut {
		t.Error("one success closes it")
	}
	if shut, after := r.Succeed(m); !shut || after < 2*time.Minute {
		t.Errorf("two do not, or it was open for %s", after)
	}
	expect(census.BreakerClosed)
	r.Fail(m, 3)
	r.view.Members[1].Process = "2"
	events := r.look(time.Second)
	expect(census.BreakerClosed)
	if len(events) != 2 || events[0].What != census.Closed || events[1].What != census.Restarted {
		t.Errorf("%+v", events)
	}
}

// What is known of members that are gone is bounded, whatever names come.
func TestStrangersAreForgotten(t *testing.T) {
	r := newRoomful("leader")
	r.look(0)
	for i := range 5000 {
		r.view.Members = append(r.view.Members[:1], roster.Seat{Joined: 1, Heartbeat: roster.Heartbeat{Node: "stranger-" + time.Duration(i).String(), Process: "1"}})
		r.look(10 * time.Millisecond)
	}
	known := 0
	for i := range 5000 {
		if r.Member("stranger-"+time.Duration(i).String()) != nil {
			known++
		}
	}
	if known > 1100 {
		t.Errorf("%d of 5000 are known", known)
	}
}
