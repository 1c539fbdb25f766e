package policy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/cluster/assign"
	"github.com/mongostream/streamer/cluster/govern/census"
	"github.com/mongostream/streamer/cluster/roster"
)

// plan publishes the next plan if that which stands is not right.
func (s *State) plan(wishes Wishes) {
	if s.view.Plan.Version >= s.pending { // what the last was made for is done, up to joins that it was not enough for
		goesOn := func(c cause) bool { return !s.balanced && c.replan == ReplanJoin }
		done := slices.DeleteFunc(s.causes[:s.covered:s.covered], func(c cause) bool { return !goesOn(c) })
		s.causes, s.covered = append(done, s.causes[s.covered:]...), 0
		if n := len(s.traded); n > 0 {
			s.traded[n-1] += s.trading
		}
		s.trading = 0
	}
	s.wish(wishes)
	if s.census.Cold() {
		return
	}
	in := s.input(wishes)
	if len(in.Members) == 0 || s.same(in) {
		return
	}
	result := assign.Plan(in)
	owners, moved := result.Owners, 0
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
			s.evict(p) // it owns what it does not serve
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
	s.last = assign.Input{}
	s.publish(roster.Plan{Owners: owners, Why: result.Why, Reasons: result.Reasons}, moved)
	s.trading = result.Exchanged
}

// publish has a plan published, for the causes that there are.
func (s *State) publish(plan roster.Plan, moved int) {
	s.d.Replan, plan.Cause = s.cause()
	s.d.Moved = moved
	plan.Version, plan.By = s.view.Plan.Version+1, s.cfg.Node
	s.d.Publish = &plan
	s.covered, s.pending, s.trading = len(s.causes), plan.Version, 0
}

// cause says what a plan is made for.
func (s *State) cause() (Replan, string) {
	switch {
	case len(s.causes) > 0:
	case s.must:
		return ReplanFailure, "partitions that nobody serves"
	default:
		return ReplanRebalance, "balance"
	}
	order := Replans()
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

// wish notes what operators want anew.
func (s *State) wish(wishes Wishes) {
	for _, node := range slices.Sorted(maps.Keys(wishes.Drained)) {
		if wishes.Drained[node] && !s.drained[node] {
			s.because(ReplanWish, node, "is drained")
		}
	}
	s.drained = maps.Clone(wishes.Drained)
	if !maps.Equal(wishes.Pinned, s.last.Pinned) && len(wishes.Pinned) > 0 && !s.census.Sharing() {
		s.because(ReplanWish, "", "an operator's wish")
	}
}

// same says whether the input asks for what the last did, which was that nothing be changed.
func (s *State) same(in assign.Input) bool {
	return in.Partitions == s.last.Partitions && in.Moves == s.last.Moves && in.Exchanges == s.last.Exchanges && slices.Equal(in.Members, s.last.Members) &&
		slices.Equal(in.Current, s.last.Current) && slices.Equal(in.Rates, s.last.Rates) && slices.Equal(in.Cooling, s.last.Cooling) && maps.Equal(in.Pinned, s.last.Pinned)
}

// input says what is to be planned with.
func (s *State) input(wishes Wishes) assign.Input {
	members, trials, fit := s.eligible(wishes)
	in := assign.Input{
		Partitions: s.cfg.Partitions, Members: members, Moves: s.cfg.Moves, Floor: s.cfg.RebalanceFloor, Exchanges: exchanges, Cooling: make([]bool, len(s.parts)),
	}
	s.measure()
	in.Rates = s.rates.partitions
	for i := range members {
		members[i].Chance, members[i].Urgent = s.rates.chance[members[i].Node], s.rates.urgent[members[i].Node]
	}
	for _, n := range s.traded {
		in.Exchanges -= n
	}
	in.Exchanges = max(in.Exchanges, 1)
	keeps, takers := make(map[string]bool, len(members)), 0
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
		switch {
		case keeps[p.holder] && (p.stays || !keeps[at]):
			at = p.holder // it has not gone
		case p.late && takers > 0 && (p.holder == at || p.holder == ""):
			at = ""
		}
		in.Current[i] = at
		in.Cooling[i] = p.moved > 0 && s.now-p.moved < s.cfg.RebalanceCooldown
		s.must = s.must || !keeps[at]
		live = live || p.live
	}
	if s.census.Sharing() || live || !fit { // those of the last plan first
		in.Moves = 0
	}
	if !s.census.Sharing() {
		in.Pinned = maps.Clone(wishes.Pinned)
	}
	if !s.must && in.Moves > 0 && len(trials) > 0 {
		in.Moves = 1 // it may be dark for the grace time
		for _, i := range trials {
			in.Members[i].Takes = true
		}
	}
	return in
}

// eligible says who keeps and who takes partitions, who is to be tried, and whether those who take are fit. A partition with a doubtful
// owner is better off than one without.
func (s *State) eligible(wishes Wishes) (members []assign.Member, trials []int, fit bool) {
	seats := s.census.Seats()
	fitness := make([]census.Fitness, 0, len(seats))
	best := census.Unfit
	for _, m := range seats {
		if !m.Serves() || m.Status == census.Refused && !m.Garbled {
			continue
		}
		keeps := m.Keeps() && !wishes.Drained[m.Node]
		f, try := s.census.Fitness(m)
		if !keeps {
			f = census.Unfit
		} else if try {
			trials = append(trials, len(members))
		}
		best = min(best, f)
		fitness = append(fitness, f)
		members = append(members, assign.Member{Node: m.Node, Capacity: m.Capacity, Keeps: keeps})
	}
	for i := range members {
		members[i].Takes = fitness[i] == best && best < census.Unfit
		members[i].Keeps = members[i].Keeps || best == census.Unfit // there is nobody else
	}
	return members, trials, best == census.Fit
}
