package plan

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/cluster"
)

// plan publishes the next plan if the current one is not right.
func (s *Planner) plan(want directives) {
	if s.view.Plan.Version >= s.pending { // the causes of the last plan are done, except joins that need more plans
		goesOn := func(c cause) bool { return !s.balanced && c.replan == replanJoin }
		done := slices.DeleteFunc(s.causes[:s.covered:s.covered], func(c cause) bool { return !goesOn(c) })
		s.causes = append(done, s.causes[s.covered:]...)
		s.covered = 0
		if n := len(s.traded); n > 0 {
			s.traded[n-1] += s.trading
		}
		s.trading = 0
	}
	s.note(want)
	if s.health.Cold() {
		return
	}
	in := s.input(want)
	if len(in.Candidates) == 0 || s.same(in) {
		return
	}
	result := Assign(in)
	owners := result.Owners
	moved := 0
	stands := len(s.view.Plan.Owners) == len(owners)
	for p, owner := range owners {
		planned := s.view.Plan.Owner(change.Partition(p))
		stands = stands && owner == planned
		if owner == planned {
			continue
		}
		if planned != "" {
			moved++
		}
		if part := &s.parts[p]; part.late && part.holder == planned && planned != "" {
			s.evict(p) // it owns partitions that it does not serve
		}
	}
	s.balanced = result.Balanced
	if stands {
		s.last = in
		if s.balanced {
			s.causes, s.covered = nil, 0
		}
		return
	}
	s.last = Input{}
	s.publish(cluster.Plan{Owners: owners, Why: result.Why, Reasons: result.Reasons}, moved)
	s.trading = result.Exchanged
}

// publish has a plan published, for the causes that there are.
func (s *Planner) publish(plan cluster.Plan, moved int) {
	s.d.Replan, plan.Cause = s.cause()
	s.d.Moved = moved
	plan.Version = s.view.Plan.Version + 1
	plan.By = s.cfg.Node
	s.d.Publish = &plan
	s.covered = len(s.causes)
	s.pending = plan.Version
	s.trading = 0
}

// cause returns the reason for a plan.
func (s *Planner) cause() (Replan, string) {
	order := Replans()
	optional := func(c cause) bool { return slices.Index(order, c.replan) >= slices.Index(order, replanJoin) }
	switch {
	case s.must && !slices.ContainsFunc(s.causes, func(c cause) bool { return !optional(c) }): // a join bounds the moves, this does not
		s.because(replanFailure, "", "partitions that nobody serves")
	case len(s.causes) == 0:
		return replanRebalance, "balance"
	}
	slices.SortStableFunc(s.causes, func(a, b cause) int {
		return cmp.Compare(slices.Index(order, a.replan), slices.Index(order, b.replan))
	})
	var texts []string
	for _, c := range s.causes {
		if !slices.Contains(texts, c.text) {
			texts = append(texts, c.text)
		}
	}
	if n := len(texts); n > 3 {
		texts = append(texts[:3], fmt.Sprintf("%d more", n-3))
	}
	return s.causes[0].replan, strings.Join(texts, ", ")
}

// note records new requests of operators.
func (s *Planner) note(want directives) {
	for _, node := range slices.Sorted(maps.Keys(want.drained)) {
		if want.drained[node] && !s.drained[node] {
			s.because(replanDirective, node, "is drained")
		}
	}
	s.drained = maps.Clone(want.drained)
	if !maps.Equal(want.pinned, s.last.Pinned) && len(want.pinned) > 0 && !s.health.Sharing() {
		s.because(replanDirective, "", "an operator's wish")
	}
}

// same reports whether the input equals the last one, which changed nothing.
func (s *Planner) same(in Input) bool {
	return in.Partitions == s.last.Partitions && in.Moves == s.last.Moves && in.Exchanges == s.last.Exchanges &&
		slices.Equal(in.Candidates, s.last.Candidates) &&
		slices.Equal(in.Current, s.last.Current) && slices.Equal(in.Rates, s.last.Rates) && slices.Equal(in.Cooling, s.last.Cooling) && maps.Equal(in.Pinned, s.last.Pinned)
}

// input returns the input of the next plan.
func (s *Planner) input(want directives) Input {
	members, trials, fit := s.eligible(want)
	in := Input{
		Partitions: s.cfg.Partitions, Candidates: members, Moves: s.cfg.Moves, Floor: s.cfg.RebalanceFloor, Exchanges: exchanges,
		Cooling: make([]bool, len(s.parts)),
	}
	s.measure()
	in.Rates = s.rates.partitions
	for i := range members {
		members[i].Chance = s.rates.chance[members[i].Node]
		members[i].Urgent = s.rates.urgent[members[i].Node]
	}
	for _, n := range s.traded {
		in.Exchanges -= n
	}
	in.Exchanges = max(in.Exchanges, 1)
	keeps := make(map[string]bool, len(members))
	takers := 0
	for _, m := range members {
		keeps[m.Node] = m.Keeps
		if m.Takes {
			takers++
		}
	}
	in.Current = make([]string, len(s.parts))
	live := false
	s.must = false
	for i := range s.parts {
		p := &s.parts[i]
		at := p.planned
		isUntaken := p.holder == at || p.holder == ""
		switch {
		case keeps[p.holder] && (p.stays || !keeps[at]):
			at = p.holder // it has not gone
		case p.late && takers > 0 && isUntaken:
			at = ""
		}
		in.Current[i] = at
		in.Cooling[i] = p.moved > 0 && s.now-p.moved < s.cfg.RebalanceCooldown
		s.must = s.must || !keeps[at]
		live = live || p.live
	}
	if s.health.Sharing() || live || !fit { // those of the last plan first
		in.Moves = 0
	}
	if !s.health.Sharing() {
		in.Pinned = maps.Clone(want.pinned)
	}
	if !s.must && in.Moves > 0 && len(trials) > 0 {
		in.Moves = 1 // it may be dark for the grace time
		for _, i := range trials {
			in.Candidates[i].Takes = true
		}
	}
	return in
}

// eligible returns the members that keep and that take partitions, those that get one as a trial,
// and whether the takers are fit. A doubtful owner is better for a partition than none.
func (s *Planner) eligible(want directives) (members []Candidate, trials []int, healthy bool) {
	seats := s.health.Present()
	fitness := make([]fitness, 0, len(seats))
	best := unfit
	for _, m := range seats {
		if !m.Serves() || m.Status == StatusRefused && !m.Garbled {
			continue
		}
		keeps := m.Keeps() && !m.Narrow && !want.drained[m.Node]
		f, try := s.health.Fitness(m)
		if !keeps {
			f = unfit
		} else if try {
			trials = append(trials, len(members))
		}
		best = min(best, f)
		fitness = append(fitness, f)
		members = append(members, Candidate{Node: m.Node, Capacity: m.Capacity, Keeps: keeps})
	}
	for i := range members {
		members[i].Takes = fitness[i] == best && best < unfit
		members[i].Keeps = members[i].Keeps || best == unfit // there is no other member
	}
	return members, trials, best == fit
}
