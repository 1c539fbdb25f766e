//go:build wip

package admin_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/internal/admin"
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

func TestNewPartitionsBeginWhereTheRearmostStood(t *testing.T) {
	s, mongo := world(t)
	terms := []change.Term{{Partition: partitions - 1, Epoch: change.Epoch{Incarnation: 1, Revision: 1}, Context: t.Context()}}
	plan := func() *admin.RepartitionPlan {
		t.Helper()
		plan, err := admin.PlanRepartition(t.Context(), s, mongo, 6, nil)
		if err != nil || plan.Check() != nil {
			t.Fatal(err, plan.Check())
		}
		return plan
	}
	if p := plan(); p.Start.T != at(10).Time.T || p.Furthest.T != at(120).Time.T || p.Without != 1 || *p.Entries != 1000 || p.Reached != admin.Reached {
		t.Errorf("%+v", p) // the one without a mark stands at the origin
	}
	if _, err := s.Claim(t.Context(), terms); err != nil {
		t.Fatal(err)
	}
	mark := checkpoint.Mark{Partition: partitions - 1, Position: at(105), Epoch: terms[0].Epoch, At: time.Now(), By: "n", Reason: checkpoint.ReasonFinal}
	if err := s.Save(t.Context(), []checkpoint.Mark{mark})[0]; err != nil {
		t.Fatal(err)
	}
	p, c := plan(), &counter{}
	stands, err := p.Apply(t.Context(), c, "ann")
	if err != nil || p.Without != 0 || stands != c.next {
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

func TestRepartitionsThatWouldLoseAreRefused(t *testing.T) {
	lost := checkpoint.Gap{Partition: 2, From: at(20), To: at(30), Reason: "history_lost", Found: time.Now(), By: "n", Epoch: change.Epoch{Incarnation: 1}}
	done := map[string]checkpoint.RescanState{"shop.orders": {Done: true}}
	for name, c := range map[string]struct {
		to     int
		before func(s *checkpoint.Memory, mongo *source) error
		code   fault.Code
	}{
		"none":        {0, nil, fault.CommandBadArgument},
		"too many":    {change.MaxPartitions + 1, nil, fault.CommandBadArgument},
		"as many":     {partitions, nil, fault.CheckpointRepartition},
		"log is gone": {6, func(_ *checkpoint.Memory, mongo *source) error { mongo.first = at(50).Time; return nil }, fault.CheckpointRepartition},
		"read again":  {6, func(s *checkpoint.Memory, _ *source) error { return s.AddGap(t.Context(), lost) }, fault.CheckpointRepartition},
		"was read again": {6, func(s *checkpoint.Memory, _ *source) error {
			lost := lost
			lost.Rescan = done
			return s.AddGap(t.Context(), lost)
		}, ""},
		"was read again by another count": {6, func(s *checkpoint.Memory, _ *source) error {
			lost := lost
			lost.Of = 16
			return s.AddGap(t.Context(), lost)
		}, ""},
		"log cannot be looked at": {6, func(_ *checkpoint.Memory, mongo *source) error { mongo.unreadable = true; return nil }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s, mongo := world(t)
			if c.before != nil {
				if err := c.before(s, mongo); err != nil {
					t.Fatal(err)
				}
			}
			plan, err := admin.PlanRepartition(t.Context(), s, mongo, c.to, []string{"shop.orders"})
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
	for _, from := range []uint32{20, 40, 60} { // of a partition that has lost several spans there is still one
		again := lost
		again.From, again.To = at(from), at(from+10)
		if err := s.AddGap(t.Context(), again); err != nil {
			t.Fatal(err)
		}
	}
	plan, err := admin.PlanRepartition(t.Context(), s, mongo, 6, []string{"shop.orders"})
	if err != nil || !slices.Equal(plan.Rescans, []change.Partition{2}) {
		t.Errorf("%v, %v", err, plan.Rescans)
	}
	mongo.identity = "replicaset/other/2"
	if _, err := admin.PlanRepartition(t.Context(), s, mongo, 6, nil); fault.Of(err) != fault.CheckpointSource {
		t.Errorf("another deployment: %v", err)
	}
}
