package admin_test

import (
	"context"
	"testing"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/checkpoint/checkpointtest"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/internal/admin"
	"github.com/mongostream/streamer/snapshot"
)

// A counter keeps what it was asked to count anew.
type counter struct {
	last, next checkpoint.Origin
	err        error
}

func (c *counter) Repartition(_ context.Context, last, next checkpoint.Origin) (checkpoint.Origin, error) {
	c.last, c.next = last, next
	return next, c.err
}

func TestNewPartitionsBeginWhereTheEarliestWas(t *testing.T) {
	s, mongo := world(t)
	connect(t, s, "gateway", at(50), map[change.Partition]change.Position{1: at(300)})
	plan := func() *admin.RepartitionPlan {
		t.Helper()
		plan, err := admin.PlanRepartition(t.Context(), s, mongo, 6, change.Coverage{})
		if err != nil || plan.Check() != nil {
			t.Fatal(err, plan.Check())
		}
		return plan
	}
	p := plan()
	if len(p.Subscribers) != 2 || p.Start.T != at(10).Time.T || *p.Entries != 1000 || p.Reached != admin.Reached {
		t.Fatalf("%+v", p)
	}
	if g := p.Subscribers[0]; g.Kind != admin.Exclusive || g.Earliest.T != at(50).Time.T || g.Latest.T != at(300).Time.T || g.Without != 0 {
		t.Errorf("%+v", g)
	}
	if s := p.Subscribers[1]; s.Kind != admin.Shared || s.Earliest.T != at(10).Time.T || s.Latest.T != at(120).Time.T || s.Without != 1 {
		t.Errorf("%+v", s) // in the partition without a checkpoint it is at the origin
	}
	share(t, s, partitions-1, checkpoint.Checkpoint{Position: at(105)})
	p, c := plan(), &counter{}
	stands, err := p.Apply(t.Context(), c, "ann")
	if err != nil || p.Subscribers[1].Without != 0 || stands != c.next {
		t.Errorf("%+v, %v", stands, err)
	}
	if c.next.Start != at(100).Time || c.next.Partitions != 6 || c.next.Incarnation != 2 || c.next.Cluster != c.last.Cluster || c.next.Source != c.last.Source ||
		c.next.By != "ann" || c.last.Partitions != partitions {
		t.Errorf("%+v after %+v", c.next, c.last)
	}
	c.err = checkpoint.ErrOriginMoved
	if _, err := p.Apply(t.Context(), c, "ann"); fault.Of(err) != fault.ClusterChanged {
		t.Errorf("%v", err)
	}
}

// The new partitions have no lapse that is not reported yet, and none that has lost its checkpoint:
// they begin before what that may have missed.
func TestNewPartitionsBeginBeforeWhatTheOldOnesMayHaveMissed(t *testing.T) {
	began := checkpoint.Beginning{At: at(7).Time, ID: "a"} // before the origin, with start: earliest
	narrow := &change.Coverage{Namespaces: []string{"shop.orders"}}
	for name, c := range map[string]struct {
		last checkpoint.Checkpoint // of the last partition, if it has one
		want change.Position
	}{
		"nothing":                 {checkpoint.Checkpoint{Position: at(120), Began: began}, at(100)},
		"a lapse":                 {checkpoint.Checkpoint{Position: at(120), Began: began, Lapse: &checkpoint.Lapse{At: at(30).Time}, Coverage: narrow}, at(30)},
		"a checkpoint is missing": {want: at(7)},
	} {
		t.Run(name, func(t *testing.T) {
			s, mongo := world(t)
			share(t, s, 2, checkpoint.Checkpoint{Position: at(121), Began: began})
			if !c.last.Position.IsZero() {
				share(t, s, partitions-1, c.last)
			}
			plan, err := admin.PlanRepartition(t.Context(), s, mongo, 6, change.Coverage{})
			if err != nil || plan.Start.T != c.want.Time.T {
				t.Errorf("%+v, %v, want %s", plan, err, c.want)
			}
		})
	}
}

func TestRepartitionsThatWouldLoseAreRefused(t *testing.T) {
	under := func(done bool) func(*testing.T, *checkpointtest.Memory, *source) {
		return func(t *testing.T, s *checkpointtest.Memory, _ *source) {
			share(t, s, 2, checkpoint.Checkpoint{Position: at(121), Snapshots: []snapshot.Progress{{Subscription: "all", Done: done}}})
		}
	}
	gone := func(_ *testing.T, _ *checkpointtest.Memory, mongo *source) { mongo.first = at(50).Time }
	for name, c := range map[string]struct {
		to     int
		before func(*testing.T, *checkpointtest.Memory, *source)
		code   fault.Code
	}{
		"none":                    {0, nil, fault.CommandBadArgument},
		"too many":                {change.MaxPartitions + 1, nil, fault.CommandBadArgument},
		"as many":                 {partitions, nil, fault.CheckpointRepartition},
		"log is gone":             {6, gone, fault.CheckpointRepartition},
		"snapshot under way":      {6, under(false), fault.CheckpointRepartition},
		"snapshot is complete":    {6, under(true), ""},
		"log cannot be looked at": {6, func(_ *testing.T, _ *checkpointtest.Memory, mongo *source) { mongo.unreadable = true }, ""},
		"nobody shares": {6, func(t *testing.T, s *checkpointtest.Memory, mongo *source) {
			gone(t, s, mongo)
			connect(t, s, "gateway", at(100), nil)
			if err := s.Delete(t.Context(), "sink"); err != nil {
				t.Fatal(err)
			}
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s, mongo := world(t)
			if c.before != nil {
				c.before(t, s, mongo)
			}
			plan, err := admin.PlanRepartition(t.Context(), s, mongo, c.to, change.Coverage{})
			if err != nil || fault.Of(plan.Check()) != c.code {
				t.Errorf("%v, %v", err, plan.Check())
			}
			asked := &counter{}
			if _, err := plan.Apply(t.Context(), asked, "ann"); fault.Of(err) != c.code || (asked.next.Partitions != 0) != (c.code == "") {
				t.Errorf("%v, %+v", err, asked)
			}
		})
	}
	s, mongo := world(t)
	mongo.identity = "replicaset/other/2"
	if _, err := admin.PlanRepartition(t.Context(), s, mongo, 6, change.Coverage{}); fault.Of(err) != fault.CheckpointSource {
		t.Errorf("another deployment: %v", err)
	}
}
