package plan

import (
	"fmt"
	"slices"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/notice"
)

// The notices that a restarted gateway gets again.
const (
	maxRecent = 10
	recentFor = 30 * time.Minute
)

// A stamped notice was posted at a moment.
type stamped struct {
	at time.Duration
	notice.Notice
}

// A resync checks the partitions of a restarted member.
type resync struct {
	node, key string
	kind      cluster.Kind
	restarted time.Duration
	due       time.Duration
	next      int // the partition to be looked at next
	resent    int
	missing   int           // of them, not served
	until     time.Duration // when it is abandoned; 0 before all have been checked
}

// enqueue schedules the resync of a member; a second restart starts it again.
func (s *Planner) enqueue(m *member) {
	s.dequeue(m.key)
	s.queue = append(s.queue, resync{node: m.Node, key: m.key, kind: m.Kind, restarted: s.now, due: s.now + s.cfg.ResyncDelay})
}

// dequeue ends the resync of a member.
func (s *Planner) dequeue(key string) {
	s.queue = slices.DeleteFunc(s.queue, func(r resync) bool { return r.key == key })
}

// resync continues the resyncs that are due, at a bounded number of partitions a second.
func (s *Planner) resync(elapsed time.Duration) {
	rate := float64(s.cfg.ResyncRate)
	s.tokens = min(rate, s.tokens+rate*elapsed.Seconds())
	republish := ""
	kept := s.queue[:0]
	for _, r := range s.queue {
		if r.due > s.now {
			s.at(r.due)
			kept = append(kept, r)
			continue
		}
		if r.until == 0 {
			if again := s.resyncStep(&r); again {
				republish = r.node
			}
		}
		if !s.resynced(&r) {
			kept = append(kept, r)
		}
	}
	s.queue = kept
	if republish != "" && s.d.Publish == nil {
		s.because(replanResync, republish, "is told again")
		plan := s.view.Plan
		s.publish(cluster.Plan{Owners: plan.Owners, Why: plan.Why, Reasons: plan.Reasons}, 0)
	}
}

// resyncStep checks as many of a member's partitions as the rate allows, and reports whether the
// plan must be published again, because all have been checked and some are not served.
func (s *Planner) resyncStep(r *resync) (republish bool) {
	step := Resync{Node: r.node, Kind: r.kind}
	if r.kind == cluster.KindGateway {
		for _, n := range s.recent {
			if s.now-n.at <= recentFor {
				step.Recent = append(step.Recent, n.Notice)
			}
		}
		r.next = len(s.parts)
	}
	for ; r.next < len(s.parts) && s.tokens >= 1; r.next++ {
		if p := &s.parts[r.next]; p.planned == r.node {
			s.tokens--
			step.Partitions = append(step.Partitions, change.Partition(r.next))
			if !p.served {
				step.Missing++
			}
		}
	}
	r.resent += len(step.Partitions)
	r.missing += step.Missing
	if len(step.Partitions)+len(step.Recent) > 0 {
		s.d.Resync = append(s.d.Resync, step)
	}
	if r.next < len(s.parts) {
		s.at(s.now + time.Second)
		return false
	}
	r.until = s.now + s.cfg.Grace
	return r.missing > 0
}

// resynced reports whether a resync is over: everything is served, or it is not within the grace,
// which is for verify to deal with.
func (s *Planner) resynced(r *resync) bool {
	if r.until == 0 {
		return false
	}
	missing := 0
	for p := range s.parts {
		if r.kind != cluster.KindGateway && s.parts[p].planned == r.node && !s.parts[p].served {
			missing++
		}
	}
	switch {
	case missing > 0 && s.now < r.until:
		s.at(r.until)
		return false
	case missing > 0:
		s.tell("%s does not serve %d partitions that it was told of again", r.node, missing)
		return true
	}
	text := fmt.Sprintf("%s was told again after its restart what is its own, and serves it: %s.", r.node, some(r.resent, "partition"))
	if r.kind == cluster.KindGateway {
		text = fmt.Sprintf("Gateway %q was sent the latest notices after its restart.", r.node)
	}
	s.post(notice.Notice{Channel: notice.Resync, Kind: notice.KindResyncComplete, Level: notice.Info, Text: text,
		Fields: map[string]any{
			"member": r.node, "member_kind": string(r.kind), "partitions_resent": r.resent, "missing": r.missing,
			"duration_ms": (s.now - r.restarted).Milliseconds(),
		}})
	return true
}
