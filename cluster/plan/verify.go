package plan

import (
	"fmt"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/notice"
)

// A part is the leader's knowledge of a partition.
type part struct {
	planned, holder string // by the current plan, and by the key
	epoch           change.Epoch
	turn            uint64        // the step that last found it served by its holder
	served          bool          // by its planned owner
	since           time.Duration // since when it is not, for the same reason
	late            bool          // for longer than the grace
	stays           bool          // with its holder, because who should take it over did not
	live            bool          // on its way between members that live, for balance
	moved           time.Duration // when the plan last gave it to another, 0 if it has not
	gauge           gauge
}

// restart restarts the grace period.
func (p *part) restart(now time.Duration) {
	p.since = now
	p.late = false
	p.stays = false
	p.served = false
}

func (s *Planner) owner(p int) cluster.Owner {
	if p < len(s.view.Owners) {
		return s.view.Owners[p]
	}
	return cluster.Owner{}
}

// observe records the plan, the keys, and the partitions that the members say they serve.
func (s *Planner) observe() {
	for i, m := range s.health.Present() {
		seat := &s.view.Members[i]
		for _, h := range seat.Held {
			if int(h.Partition) >= len(s.parts) || h.State == string(cluster.StatusStarting) || m.Garbled {
				continue
			}
			if o := s.owner(int(h.Partition)); o.Node == m.Node && o.Process == m.Process && o.Epoch == h.Epoch {
				p := &s.parts[h.Partition]
				p.turn = s.turn
				if m.Fresh {
					p.gauge.hear(h.Rate)
				}
			}
		}
	}
	moved := 0
	for i := range s.parts {
		if s.observePart(&s.parts[i], s.view.Plan.Owner(change.Partition(i)), s.owner(i)) {
			moved++
		}
	}
	if s.turn > 1 && moved > 0 {
		s.post(notice.Notice{Channel: notice.Health, Kind: notice.KindMoved, Level: notice.Info,
			Text:   fmt.Sprintf("Plan %d gives %s to others: %s.", s.view.Plan.Version, some(moved, "partition"), s.view.Plan.Cause),
			Fields: map[string]any{"plan": s.view.Plan.Version, "moves": moved, "cause": s.view.Plan.Cause}})
	}
}

// observePart takes in one partition and reports whether the plan has moved it.
func (s *Planner) observePart(p *part, planned string, o cluster.Owner) (moved bool) {
	served := p.turn == s.turn && o.Node == planned && planned != ""
	wasGiven := o.Node != p.holder && p.planned != p.holder && !p.late
	if giver := s.health.Of(p.holder); giver != nil && wasGiven {
		giver.Gave = s.now
	}
	if planned != p.planned {
		if moved = p.planned != ""; moved {
			p.moved = s.now
		}
		donor := s.health.Of(o.Node)
		p.live = donor != nil && o.Node != planned && donor.Keeps()
		p.planned = planned
		p.restart(s.now)
	}
	if o.Node != p.holder || o.Epoch != p.epoch {
		p.holder, p.epoch = o.Node, o.Epoch
		p.restart(s.now)
	}
	switch {
	case served && !p.served && s.turn > 1:
		m := s.health.Of(planned)
		if shut, after := s.health.Succeed(m); shut {
			s.closed(m, after, "serves what it is given again")
		}
	case !served && p.served:
		p.restart(s.now)
	}
	p.served = served
	if served {
		p.late, p.live = false, false
	}
	return moved
}

// A miss is a partition that is not served in time, and the member responsible.
type miss struct {
	part  *part
	blame *member
}

// verify finds members that do not serve their assigned partitions in time, or do not hand over
// others in time.
func (s *Planner) verify() {
	var misses []miss
	blamed := map[*member]int{}
	for i := range s.parts {
		p := &s.parts[i]
		m, holder := s.health.Of(p.planned), s.health.Of(p.holder)
		if p.served || m == nil || !m.Present {
			continue
		}
		blame := m
		if p.holder != "" && p.holder != p.planned {
			if blame = holder; blame == nil || !blame.Present {
				continue // a stranger holds it, with a lease of its own
			}
		}
		due := p.since + s.cfg.Grace
		if blame != m {
			due = max(p.since, blame.Gave) + s.cfg.Grace // a member that hands over one partition after the other is not late with the rest
		}
		keeps := blame.Keeps() && !blame.Narrow && !s.drained[blame.Node] // what it owns, although another should have it
		switch {
		case s.health.Excused(blame):
			p.since = s.now
		case blame != m && blame.Status == StatusDead:
			s.evict(i) // it has been silent for longer than anybody waits
		case s.now < due:
			s.at(due)
		case p.stays:
		case blame != m && p.turn == s.turn && keeps:
			s.leave(p, m, blame)
		default:
			if !p.late {
				misses = append(misses, miss{p, blame})
				blamed[blame]++
			}
			if blame != m {
				s.evict(i)
			}
		}
	}
	if n := len(blamed); n >= 2 && 2*n >= len(s.health.Present()) { // this many cannot all be at fault
		for _, miss := range misses {
			miss.part.since = s.now
		}
		s.d.Evict = nil
		s.tell("%d members do not serve what they are given: waiting for it once more", n)
		return
	}
	s.convict(misses, blamed)
}

// convict marks the missed partitions and the responsible members as late.
func (s *Planner) convict(misses []miss, blamed map[*member]int) {
	for _, miss := range misses {
		miss.part.late, miss.part.live = true, false
	}
	for _, m := range s.health.Present() {
		m.Late = false
		if n := blamed[m]; n > 0 {
			s.blame(m, n)
		}
	}
	for i := range s.parts {
		if p := &s.parts[i]; p.late && (p.holder == "" || p.holder == p.planned) {
			if m := s.health.Of(p.planned); m != nil {
				m.Late = true
			}
		}
	}
}

// leave cancels the move of a partition whose owner is healthy: a plan that is not followed is
// better than a partition without a server.
func (s *Planner) leave(p *part, m, holder *member) {
	p.stays = true
	if !s.health.Resting(m) {
		s.because(replanFailure, m.Node, "did not take over from "+holder.Node)
		s.tell("%s has not taken over from %s in time: what is left stays for now", m.Node, holder.Node)
	}
	s.health.Rest(m)
	s.health.Rest(holder)
}

func (s *Planner) evict(p int) {
	s.d.Evict = append(s.d.Evict, Eviction{Partition: change.Partition(p), Epoch: s.parts[p].epoch})
}

// blame counts failures of a member.
func (s *Planner) blame(m *member, n int) {
	if m.Status == cluster.StatusStopping || m.Status == StatusDead {
		return // it gets nothing new as it is
	}
	s.tell("%s does not serve or give up what it should: %s", m.Node, some(n, "partition"))
	s.because(replanFailure, m.Node, "did not serve or give up "+some(n, "partition"))
	if opened, failures := s.health.Fail(m, n); opened {
		s.opened(m, failures, n)
	}
}
