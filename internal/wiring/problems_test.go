package wiring

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/health"
	"github.com/mongostream/streamer/oplog"
	"github.com/mongostream/streamer/sink"
	"github.com/mongostream/streamer/streamer"
)

// A node that is silent is missing, and so is one whose lease ends while it is. One that leaves by
// itself has time to come back.
func TestNodesThatAreMissing(t *testing.T) {
	const second, silence, lease = time.Second, 5 * time.Second, 10 * time.Second
	beats := func(at time.Duration, nodes ...string) (members []cluster.Member) {
		for _, n := range nodes {
			members = append(members, cluster.Member{Heartbeat: cluster.Heartbeat{Node: n}, Beat: int64(at)})
		}
		return members
	}
	type look struct {
		at      time.Duration
		members []cluster.Member
		heard   time.Duration // when the last heartbeat of c arrived, as the watch knows it; 0 for not at all
		missing []string
		since   time.Duration
		awaited int
	}
	for name, looks := range map[string][]look{
		"silent, then gone": {
			{at: 0, members: beats(0, "b", "c")},
			{at: 4 * second, members: append(beats(4, "b"), beats(0, "c")...)},
			{at: 6 * second, members: append(beats(6, "b"), beats(0, "c")...), missing: []string{"c"}, since: 0},
			{at: 11 * second, members: beats(11, "b"), missing: []string{"c"}, since: 0},
			{at: 12 * second, members: beats(12, "b", "c")},
		},
		"left, and back": {
			{at: 0, members: beats(0, "b", "c")},
			{at: 2 * second, members: beats(2, "b"), awaited: 1},
			{at: 90 * second, members: beats(90, "b"), awaited: 1},
			{at: 91 * second, members: beats(91, "b", "c")},
			{at: 92 * second, members: beats(92, "b"), awaited: 1},
		},
		"dead, with a short lease": {
			{at: 0, members: beats(0, "b", "c")},
			{at: 6 * second, members: beats(6, "b"), missing: []string{"c"}, since: 0},
		},
		"dead, and heard late": { // 4 s before its lease ends
			{at: 0, members: beats(0, "b")},
			{at: 1 * second, members: beats(1, "b", "c")},
			{at: 5 * second, members: beats(5, "b"), missing: []string{"c"}, since: 1 * second},
		},
		"slow to leave": {
			{at: 0, members: append(beats(0, "b"), cluster.Member{Heartbeat: cluster.Heartbeat{Node: "c", Status: cluster.StatusStopping}, Beat: 1})},
			{at: 9 * second, members: beats(9, "b"), awaited: 1},
		},
		"left for good": {
			{at: 0, members: beats(0, "b", "c")},
			{at: 2 * second, members: beats(2, "b"), awaited: 1},
			{at: 2*second + restarting, members: beats(130, "b"), missing: []string{"c"}, since: 0},
		},
		"heard between two views": {
			{at: 0, members: beats(0, "b", "c")},
			{at: 6 * second, members: append(beats(6, "b"), beats(0, "c")...), heard: 2 * second},
			{at: 8 * second, members: append(beats(8, "b"), beats(2*second, "c")...), heard: 2 * second, missing: []string{"c"}, since: 2 * second},
		},
		"another one in its place": {
			{at: 0, members: beats(0, "b", "c")},
			{at: 2 * second, members: beats(2, "b"), awaited: 1},
			{at: 3 * second, members: beats(3, "b", "d")},
			{at: 4*second + restarting, members: beats(140, "b", "d")},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var o observed
			begun := time.Unix(1000, 0)
			for _, l := range looks {
				heardOf := func(node string) (int64, time.Time) {
					if node != "c" || l.heard == 0 {
						return 0, time.Time{}
					}
					return int64(l.heard), begun.Add(l.heard)
				}
				missing, since, awaited := o.missing(l.members, heardOf, 2, silence, lease, begun.Add(l.at))
				if !slices.Equal(missing, l.missing) || awaited != l.awaited || len(missing) > 0 && since.Sub(begun) != l.since {
					t.Errorf("after %v: %v are missing since %v, %d awaited", l.at, missing, since.Sub(begun), awaited)
				}
			}
		})
	}
}

// While the extent of the oplog is unknown, what was late, without a majority or near the end of
// the oplog still is, since when it was. What is known counts at once, and so does that a
// subscriber has no place, or has gone.
func TestWhatIsUnknownHoldsOn(t *testing.T) {
	const none = -1
	seconds := func(n int) *time.Duration { d := time.Duration(n) * time.Second; return &d }
	status := func(lag, room *time.Duration, level oplog.Level) []streamer.SubscriberStatus {
		return []streamer.SubscriberStatus{{
			Name: "sink/x", Shared: true, Position: change.Position{Time: change.Timestamp{T: 1, I: 1}}, Lag: lag, HeadRoom: room, HeadRoomLevel: level,
		}}
	}
	well := status(seconds(0), seconds(90), oplog.Fine)
	low := status(seconds(60), seconds(9), oplog.CriticallyLow)
	unknown := status(nil, nil, oplog.Fine)
	nowhere := []streamer.SubscriberStatus{{Name: "sink/x", Shared: true}}
	late := streamer.Reading{Known: true, Lag: time.Minute, NoMajority: true}
	reads := streamer.Reading{Known: true}
	type look struct {
		subscribers []streamer.SubscriberStatus
		reading     streamer.Reading
		sink, node  int // the look since which it holds
	}
	for name, looks := range map[string][]look{
		"nothing":                  {{well, reads, none, none}, {unknown, streamer.Reading{}, none, none}, {well, reads, none, none}},
		"late, and still":          {{well, reads, none, none}, {low, late, 1, 1}, {unknown, streamer.Reading{}, 1, 1}, {unknown, streamer.Reading{}, 1, 1}, {low, late, 1, 1}},
		"late, and well again":     {{low, late, 0, 0}, {unknown, streamer.Reading{}, 0, 0}, {well, reads, none, none}, {unknown, streamer.Reading{}, none, none}, {low, late, 4, 4}},
		"late while nothing known": {{unknown, streamer.Reading{}, none, none}, {low, late, 1, 1}},
		"late, and without place":  {{low, late, 0, 0}, {nowhere, streamer.Reading{}, none, 0}, {unknown, streamer.Reading{}, none, 0}},
		"late, and gone":           {{low, late, 0, 0}, {nil, streamer.Reading{}, none, 0}, {unknown, streamer.Reading{}, none, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			var o observed
			begun := time.Unix(1000, 0)
			since := func(s health.Since) int {
				if s.At.IsZero() {
					return none
				}
				return int(s.At.Sub(begun) / time.Second)
			}
			for i, l := range looks {
				f := health.Facts{Now: begun.Add(time.Duration(i) * time.Second)}
				o.look(o.looked)
				o.reading(&f, l.reading, time.Second)
				if since(f.Late) != l.node || since(f.Majority) != l.node {
					t.Errorf("look %d: late since %v, no majority since %v", i, f.Late, f.Majority)
				}
				for _, s := range o.subscribers(f.Now, l.subscribers, time.Second) {
					if since(s.Late) != l.sink || since(s.Near) != l.sink || s.Urgent != (l.sink != none) || s.Urgent && s.HeadRoom != 9*time.Second {
						t.Errorf("look %d: %+v", i, s)
					}
				}
			}
		})
	}
}

// Partitions that were not served before the node was detached have not been since then, also when
// it is back; those that it serves no more because it is detached are so since it is back.
func TestDetachedNodeKnowsSinceWhenPartitionsAreUnserved(t *testing.T) {
	const none = -1
	missing := errors.New("3 partitions of this node are not served yet")
	type look struct {
		detached bool
		err      error
		since    int // the look
	}
	for name, looks := range map[string][]look{
		"before it was detached":  {{false, nil, none}, {false, missing, 1}, {true, missing, 1}, {true, missing, 1}, {false, missing, 1}, {false, nil, none}},
		"since it is back":        {{false, nil, none}, {true, missing, none}, {true, missing, none}, {false, missing, 3}, {false, missing, 3}},
		"served, when it is back": {{false, missing, 0}, {true, missing, 0}, {false, nil, none}, {true, missing, none}},
	} {
		var o observed
		begun := time.Unix(1000, 0)
		for i, l := range looks {
			o.look(o.looked)
			got := o.unserved(begun.Add(time.Duration(i)*time.Second), l.detached, l.err)
			if want := begun.Add(time.Duration(l.since) * time.Second); got.At.IsZero() != (l.since == none) || l.since != none && !got.At.Equal(want) {
				t.Errorf("%s, look %d: since %v, want look %d", name, i, got.At, l.since)
			}
		}
	}
}

// A stall begins once, although the age of the last progress stands still while MongoDB is away;
// another one has a beginning of its own.
func TestStallHasOneBeginning(t *testing.T) {
	var o observed
	begun := time.Unix(1000, 0)
	for i, l := range []struct {
		at, age time.Duration
		since   time.Duration // when it began
	}{
		{at: 0},
		{at: 11 * time.Second, age: 11 * time.Second, since: 0},
		{at: 12 * time.Second, age: 12 * time.Second, since: 0},
		{at: time.Minute, age: 12 * time.Second, since: 0},
		{at: time.Hour, age: 12 * time.Second, since: 0},
		{at: time.Hour + time.Second},
		{at: 2 * time.Hour, age: 30 * time.Second, since: 2*time.Hour - 30*time.Second},
	} {
		var vitals []health.Vital
		if l.age > 0 {
			vitals = []health.Vital{{Slug: "snapshots", LastDecision: l.age.Milliseconds()}}
		}
		o.look(o.looked)
		stalls := o.stalled(begun.Add(l.at), vitals, 10*time.Second)
		if len(stalls) != len(vitals) || len(stalls) > 0 && stalls[0] != (health.Stall{Slug: "snapshots", Since: begun.Add(l.since)}) {
			t.Errorf("look %d: %v", i, stalls)
		}
	}
}

// The number of changes in a heartbeat is that of its own problems. Others that knew the number of
// a change before the change itself would not look again.
func TestHeartbeatsCountTheChangesOfTheirProblems(t *testing.T) {
	const rounds = 10_000
	s := &Service{}
	s.observed.news = make(chan struct{}, 1)
	problem := health.Problem{Subject: "sink/out", Code: fault.SinkTarget, Severity: health.Critical}
	var reporting sync.WaitGroup
	reporting.Go(func() {
		for range rounds {
			s.observed.report(health.Degraded, []health.Problem{problem})
			s.observed.report(health.Healthy, nil)
		}
	})
	defer reporting.Wait()
	for {
		_, problems, changes := s.reported()
		if uint64(len(problems)) != changes%2 { // every other change brings one
			t.Fatalf("%d problems after %d changes", len(problems), changes)
		}
		if changes == 2*rounds {
			return
		}
	}
}

// That other nodes are missing each node sees by itself: it is told with the next heartbeat, and
// makes nobody look at the cluster.
func TestMissingNodesAreNoNews(t *testing.T) {
	s := &Service{}
	s.observed.news = make(chan struct{}, 1)
	s.observed.report(health.Healthy, nil)
	s.observed.report(health.Healthy, []health.Problem{{Subject: "nodes", Code: fault.NodeMissing, Severity: health.Critical}})
	if _, problems, changes := s.reported(); len(problems) != 1 || changes != 0 || len(s.observed.news) != 0 {
		t.Errorf("%d problems after %d changes, %d hints", len(problems), changes, len(s.observed.news))
	}
}

// A node that has joined and is not ready yet is starting for those who look at the cluster, and
// what it is afterwards when it is ready.
func TestNodeThatIsNotReadyIsStartingForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Service{}
		s.observed.news = make(chan struct{}, 1)
		var ready atomic.Bool
		facts := func(now time.Time) health.Facts {
			f := health.Facts{Now: now, Node: "a"}
			if !ready.Load() {
				f.Starting = health.Since{At: now, Err: errors.New("the change stream is not open yet")}
			}
			return f
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go s.observed.judge(ctx, nil, facts, func(bool) {}, func(health.Facts) bool { return false })
		look := func(want cluster.Status) {
			t.Helper()
			synctest.Wait()
			h := cluster.Heartbeat{Status: cluster.StatusHealthy}
			if h.Verdict, h.Problems, h.News = s.reported(); h.Condition() != want {
				t.Errorf("others see %s, want %s", h.Condition(), want)
			}
		}
		look(cluster.StatusStarting)
		ready.Store(true)
		time.Sleep(judgeEvery)
		look(cluster.StatusHealthy)
	})
}

// That a destination of a sink waits, or an operator must resume it, does not hide that its target
// acknowledges nothing.
func TestFactsOfASinkDoNotHideEachOther(t *testing.T) {
	silent := time.Unix(1000, 0)
	for name, c := range map[string]struct {
		status               sink.Status
		failed, waits, quiet bool
	}{
		"it publishes":              {sink.Status{State: sink.Publishing}, false, false, false},
		"its target is away":        {sink.Status{State: sink.Retrying, Silent: &silent, Error: "away"}, false, false, true},
		"it waits":                  {sink.Status{State: sink.Waiting, Error: "topic"}, false, true, false},
		"it waits and all is away":  {sink.Status{State: sink.Waiting, Silent: &silent, Error: "away"}, false, true, true},
		"it is halted":              {sink.Status{State: sink.Halted, Error: "refused"}, true, false, false},
		"it is paused":              {sink.Status{State: sink.Paused}, false, false, false},
		"it is halted in part, too": {sink.Status{State: sink.Halted, Silent: &silent, Error: "away"}, true, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			var o observed
			sub := health.Subscriber{Name: "sink/out", Shared: true}
			o.look(silent)
			o.published(silent.Add(time.Minute), &sub, c.status)
			if is := func(s health.Since) bool { return !s.At.IsZero() }; is(sub.Failed) != c.failed || is(sub.Waits) != c.waits || is(sub.Unacknowledged) != c.quiet || sub.Paused != (c.status.State == sink.Paused) {
				t.Errorf("%+v", sub)
			}
		})
	}
}

// Partitions are stuck exactly while it is a problem that MongoDB is away: a passing failure is
// none.
func TestMongoDBIsAwayWhileThatIsAProblem(t *testing.T) {
	var o observed
	now := time.Unix(1000, 0)
	for _, c := range []struct {
		lasts time.Duration
		away  bool
	}{{0, false}, {time.Second, false}, {4 * time.Second, true}, {0, false}} {
		f := health.Facts{Now: now, Node: "a"}
		if c.lasts > 0 {
			f.MongoDB = health.Since{At: now.Add(-c.lasts), Err: fault.Newf(fault.MongoUnreachable, "no answer")}
		}
		o.setAway(health.Judge(f))
		if at := o.mongoDBAway(); at.IsZero() == c.away || c.away && !at.Equal(f.MongoDB.At) {
			t.Errorf("failing for %s: away since %v", c.lasts, at)
		}
	}
}
