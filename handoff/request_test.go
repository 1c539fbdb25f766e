package handoff_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/cluster/clustertest"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/handoff"
	"github.com/mongostream/streamer/internal/leaktest"
	"github.com/mongostream/streamer/notice"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// partitions is how many there are.
const partitions = 4

// A book is a history that a test writes.
type book struct{ notices []notice.Notice }

func (b *book) Read(context.Context, int64) ([]notice.Notice, int64, error) { return b.notices, 0, nil }

// A stage is a cluster of two nodes, whose parts a test plays.
type stage struct {
	t       *testing.T
	memory  *clustertest.Memory
	book    *book
	cluster handoff.Cluster
	members map[string]cluster.Membership
	owners  []cluster.Owner
	held    map[string][]cluster.HeldPartition
	mute    map[string]bool // sends no heartbeats
	mu      sync.Mutex
	beside  sync.WaitGroup // what happens while an operator waits: it ends before the test does
}

// play has a test play on a stage where node a owns everything and node b nothing.
func play(t *testing.T, run func(s *stage)) {
	synctest.Test(t, func(t *testing.T) {
		s := &stage{t: t, memory: clustertest.NewMemory(partitions, nil), book: &book{}, members: map[string]cluster.Membership{},
			held: map[string][]cluster.HeldPartition{}, mute: map[string]bool{}}
		s.cluster = handoff.Cluster{View: s.memory.For("operator"), Directives: s.memory.Operator("operator"), Notices: s.book}
		ctx, stop := context.WithCancel(t.Context())
		var beating sync.WaitGroup
		for _, node := range []string{"a", "b"} {
			s.join(node)
			beating.Go(func() { s.beat(ctx, node) })
		}
		s.owners = s.claim("a", 0, 1, 2, 3)
		run(s)
		s.beside.Wait()
		stop()
		beating.Wait()
	})
}

func (s *stage) join(node string) {
	m, err := s.memory.For(node).Join(s.t.Context(), cluster.Heartbeat{Node: node, Process: "p" + node, Status: cluster.StatusHealthy,
		Version: "v1.0.0"}, time.Hour)
	if err != nil {
		s.t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.members[node] = m
}

func (s *stage) beat(ctx context.Context, node string) {
	tick := time.NewTicker(2 * time.Second)
	defer tick.Stop()
	for ctx.Err() == nil {
		s.mu.Lock()
		if !s.mute[node] {
			_ = s.members[node].Beat(ctx, cluster.Heartbeat{Node: node, Process: "p" + node, Status: cluster.StatusHealthy, Version: "v1.0.0",
				Held: s.held[node]})
		}
		s.mu.Unlock()
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

func (s *stage) claim(node string, all ...change.Partition) []cluster.Owner {
	owners, err := s.members[node].Claim(s.t.Context(), all)
	if err != nil {
		s.t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, p := range all {
		s.held[node] = append(s.held[node], cluster.HeldPartition{Partition: p, Epoch: owners[i].Epoch})
	}
	return owners
}

// give moves a partition from a to b, as a handoff does.
func (s *stage) give(p change.Partition) {
	if err := s.members["a"].Return(s.t.Context(), []change.Partition{p}, []change.Epoch{s.owners[p].Epoch}); err != nil {
		s.t.Fatal(err)
	}
	s.claim("b", p)
}

// plan publishes plans, of which partition 0 goes to a node.
func (s *stage) plan(version uint64, to string) {
	l, err := s.memory.For("a").Campaign(s.t.Context(), "a")
	if err == nil {
		err = errors.Join(l.Publish(s.t.Context(), cluster.Plan{Version: version, Owners: []string{to, "a", "a", "a"}}), l.Resign(s.t.Context()))
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *stage) wishes() cluster.Directives {
	view, err := s.memory.For("operator").View(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	return view.Directives
}

func TestHandoffIsFollowedUntilItIsServed(t *testing.T) {
	play(t, func(s *stage) {
		s.beside.Go(func() {
			time.Sleep(5 * time.Second)
			if pin := s.wishes().Pinned[0]; pin.To != "b" || pin.By != "ann" {
				t.Errorf("wished: %+v", pin)
			}
			s.plan(1, "b")
			time.Sleep(2 * time.Second)
			s.give(0)
		})
		done, err := handoff.Request{Partition: 0, To: "b", By: "ann", For: time.Minute}.Run(s.t.Context(), s.cluster)
		var told []string
		for _, step := range done.Steps {
			told = append(told, step.Text)
		}
		if got := strings.Join(told, "; "); err != nil || got != "requested; plan 1 assigns it to node b; node b serves it" {
			t.Errorf("%q, %v", got, err)
		}
		if done.From != "a" || done.To != "b" || done.Plan != 1 || done.TookMS < 7000 || len(s.wishes().Pinned) != 1 {
			t.Errorf("%+v", done)
		}
	})
}

func TestHandoffsThatComeToNothingSayWhyAndAreWithdrawn(t *testing.T) {
	later := func(s *stage, do func()) {
		s.beside.Go(func() {
			time.Sleep(5 * time.Second)
			do()
		})
	}
	for name, c := range map[string]struct {
		before func(s *stage)
		code   fault.Code
		says   string
	}{
		"nothing is heard":        {func(s *stage) { s.mute["b"] = true }, fault.HandoffDetached, "for 6"},
		"nothing is heard later":  {func(s *stage) { later(s, func() { s.mu.Lock(); s.mute["b"] = true; s.mu.Unlock() }) }, fault.HandoffDetached, "for 6s"},
		"it goes":                 {func(s *stage) { later(s, func() { _ = s.members["b"].Leave(s.t.Context()) }) }, fault.HandoffDead, "has left the cluster"},
		"it is planned by nobody": {func(*stage) {}, fault.HandoffAbandoned, "has no leader"},
		"it is wished elsewhere": {
			func(s *stage) {
				_ = s.cluster.Directives.Pin(s.t.Context(), 0, cluster.Pin{To: "c", By: "bob"}, time.Hour)
			}, fault.HandoffMoving, "bob",
		},
		"it is to be empty": {
			func(s *stage) { _ = s.cluster.Directives.Drain(s.t.Context(), "b", cluster.Drain{By: "bob"}) }, fault.HandoffUnfit, "being drained",
		},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(s *stage) {
				s.mu.Lock()
				c.before(s)
				s.mu.Unlock()
				_, err := handoff.Request{Partition: 0, To: "b", By: "ann", For: 20 * time.Second}.Run(s.t.Context(), s.cluster)
				if fault.Of(err) != c.code || !strings.Contains(err.Error(), c.says) {
					t.Errorf("%v", err)
				}
				if pin, stands := s.wishes().Pinned[0]; stands && pin.By == "ann" {
					t.Errorf("the wish stands: %+v", pin)
				}
			})
		})
	}
}

func TestHandoffIsWithdrawnWhenItIsInterrupted(t *testing.T) {
	play(t, func(s *stage) {
		ctx, cancel := context.WithTimeout(s.t.Context(), 10*time.Second)
		defer cancel()
		_, err := handoff.Request{Partition: 0, To: "b", By: "ann", For: time.Minute}.Run(ctx, s.cluster)
		if !errors.Is(err, context.DeadlineExceeded) || len(s.wishes().Pinned) != 0 {
			t.Errorf("%v, %+v", err, s.wishes())
		}
	})
}

func TestDrainIsFollowedUntilNothingIsLeft(t *testing.T) {
	play(t, func(s *stage) {
		s.beside.Go(func() {
			for p := range change.Partition(partitions) {
				time.Sleep(time.Second)
				s.give(p)
			}
		})
		var left []int
		done, err := handoff.Drain{Node: "a", By: "ann", For: time.Minute, Progress: func(n int) { left = append(left, n) }}.Run(s.t.Context(), s.cluster)
		if err != nil || done.Had != 4 || done.Left != 0 || done.TookMS < 4000 || len(left) != 5 {
			t.Errorf("%+v, %v, %v", done, left, err)
		}
		if s.wishes().Drained["a"].By != "ann" {
			t.Error("the wish does not stand")
		}
		if _, err := (handoff.Drain{Node: "b", By: "ann", For: time.Minute}).Run(s.t.Context(), s.cluster); fault.Of(err) != fault.DrainNobody {
			t.Errorf("to drain the last one gave %v", err)
		}
		if err := handoff.Undrain(s.t.Context(), s.cluster, "a", nil); err != nil || len(s.wishes().Drained) != 0 {
			t.Error(err)
		}
		if err := handoff.Undrain(s.t.Context(), s.cluster, "a", nil); fault.Of(err) != fault.CommandBadArgument {
			t.Error(err)
		}
	})
}

// What the plan gives to a node that owns nothing yet is on its way to it: whoever stopped it then
// would have it noticed.
func TestDrainWaitsForThePlan(t *testing.T) {
	play(t, func(s *stage) {
		s.plan(1, "b")
		s.beside.Go(func() {
			time.Sleep(5 * time.Second)
			s.plan(2, "a")
		})
		done, err := handoff.Drain{Node: "b", By: "ann", For: time.Minute}.Run(s.t.Context(), s.cluster)
		if err != nil || done.Left != 0 || done.TookMS < 5000 {
			t.Errorf("%+v, %v", done, err)
		}
		s.plan(3, "b")
		done, err = handoff.Drain{Node: "b", By: "ann", For: 5 * time.Second}.Run(s.t.Context(), s.cluster)
		if fault.Of(err) != fault.DrainUnfinished || !strings.Contains(err.Error(), "plan 3 assigns some to it") {
			t.Errorf("%+v, %v", done, err)
		}
	})
}

func TestDrainThatTakesLongGoesOnByItself(t *testing.T) {
	play(t, func(s *stage) {
		done, err := handoff.Drain{Node: "a", By: "ann", For: 5 * time.Second}.Run(s.t.Context(), s.cluster)
		if fault.Of(err) != fault.DrainUnfinished || done.Left != 4 || s.wishes().Drained["a"].By != "ann" {
			t.Errorf("%+v, %v", done, err)
		}
		for node, code := range map[string]fault.Code{"x": fault.HandoffUnknown} {
			if _, err := (handoff.Drain{Node: node, For: time.Second}).Run(s.t.Context(), s.cluster); fault.Of(err) != code {
				t.Errorf("%s: %v", node, err)
			}
		}
	})
}

func TestListTellsTheNewestFirstAndNoMoreThanIsKept(t *testing.T) {
	play(t, func(s *stage) {
		at := time.Date(2026, time.January, 2, 3, 4, 5, 0, time.UTC)
		digest := func(to string, partitions ...change.Partition) notice.Notice {
			at = at.Add(time.Minute)
			return notice.Notice{Kind: notice.KindHandedOver, At: at, Fields: map[string]any{
				"from": "a", "to": to, "handed_over": len(partitions), "cause": "grown", "partitions": partitions, "took_ms": 12, "plan": 3,
			}}
		}
		many := make([]change.Partition, 120)
		for i := range many {
			many[i] = change.Partition(i)
		}
		s.book.notices = []notice.Notice{
			digest("too old", 1), digest("b", many...), {Kind: notice.KindMoved}, {Kind: notice.KindHandedOver, At: at, Fields: map[string]any{"partitions": "shortened"}},
			digest("c", 1, 2, 3, 7),
		}
		_ = s.cluster.Directives.Pin(s.t.Context(), 2, cluster.Pin{To: "b", By: "ann"}, time.Hour)
		_ = s.cluster.Directives.Drain(s.t.Context(), "a", cluster.Drain{By: "bob"})
		list, err := handoff.ReadHistory(s.t.Context(), s.cluster)
		if err != nil || len(list.Recent) != 2 || list.Recent[0].To != "c" || list.Recent[1].To != "b" {
			t.Fatalf("%+v, %v", list, err)
		}
		if list.Pinned["2"].To != "b" || list.Drained["a"].By != "bob" || list.Recent[0].HandedOver != 4 || list.Recent[0].Plan != 3 {
			t.Errorf("%+v", list)
		}
	})
}
